"""Offers: what an agent has to give at the moment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, OfferId


@dataclass(frozen=True, slots=True)
class Scalar:
    """An amount of one resource. `kind` is the rest of Mesos' Resource (role, reservation) as canonical
    JSON: amounts of different kinds do not add up in one Resource."""

    name: str
    amount: float
    kind: str = "{}"


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports of an agent, both ends included. `kind` as of a Scalar."""

    begin: int
    end: int
    kind: str = "{}"


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer of one agent."""

    id: OfferId
    agent_id: AgentId
    hostname: str
    agent_url: str
    resources: tuple[Scalar, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    received_at: float = 0.0
    region: str | None = None  # of the agent's fault domain
    zone: str | None = None
    ports: tuple[PortRange, ...] = ()


def total(resources: Iterable[Scalar], name: str) -> float:
    """Sum of one resource over all kinds. Mesos keeps scalars to three decimals: so does this."""
    return round(sum(r.amount for r in resources if r.name == name), 3)


def amounts(resources: Sequence[Scalar]) -> tuple[float, float, float, float]:
    """Of cpus, MiB of memory, GPUs and MiB of disk."""
    return (
        total(resources, "cpus"),
        total(resources, "mem"),
        total(resources, "gpus"),
        total(resources, "disk"),
    )


def count_ports(ports: Iterable[PortRange]) -> int:
    """How many there are in all."""
    return sum(span.end - span.begin + 1 for span in ports)


def take_port(ports: tuple[PortRange, ...]) -> tuple[PortRange, tuple[PortRange, ...]]:
    """The first port, and what is left.

    Raises:
        ValueError: There is none.
    """
    if not ports:
        raise ValueError("the offer has no port")
    first, rest = ports[0], ports[1:]
    taken = PortRange(first.begin, first.begin, first.kind)
    left = () if first.begin == first.end else (PortRange(first.begin + 1, first.end, first.kind),)
    return taken, (*left, *rest)


def carve(resources: tuple[Scalar, ...], ask: Mapping[str, float]) -> tuple[list[Scalar], tuple[Scalar, ...]]:
    """Take `ask` (name to amount) out of `resources`.

    Returns:
        What was taken, and what is left.

    Raises:
        ValueError: There is less than asked for.
    """
    taken: list[Scalar] = []
    left: list[Scalar] = []
    missing = {name: amount for name, amount in ask.items() if amount > 0}
    for resource in resources:
        part = min(resource.amount, missing.get(resource.name, 0.0))
        if part > 0:
            taken.append(Scalar(resource.name, round(part, 3), resource.kind))
            missing[resource.name] = round(missing[resource.name] - part, 3)
        rest = round(resource.amount - part, 3)
        if rest > 0:
            left.append(Scalar(resource.name, rest, resource.kind))
    short = {name: amount for name, amount in missing.items() if amount > 0}
    if short:
        raise ValueError(f"the offer lacks {short}")
    return taken, tuple(left)
