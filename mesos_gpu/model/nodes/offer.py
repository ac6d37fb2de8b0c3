"""Resource offers of agents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.resources import Resources, thousandths, units


@dataclass(frozen=True, slots=True)
class Scalar:
    """An amount of one resource. `kind` is the rest of Mesos' Resource (role, reservation) as canonical JSON; amounts
    of different kinds cannot be added up in one Resource."""

    name: str
    amount: float
    kind: str = "{}"


@dataclass(frozen=True, slots=True)
class PortRange:
    """A range of ports of an agent, both ends included. `kind` as in `Scalar`."""

    begin: int
    end: int
    kind: str = "{}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource offer of an agent."""

    id: OfferId
    agent_id: AgentId
    hostname: str
    agent_url: str
    resources: tuple[Scalar, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    received_at: float = 0.0
    region: str | None = None  # region of the agent's fault domain
    zone: str | None = None
    ports: tuple[PortRange, ...] = ()
    role: str = ""  # Mesos role to which it was made; "" if not known


def resources_of(scalars: Iterable[Scalar]) -> Resources:
    """Return the sums of scalars over all kinds."""
    return Resources.of_mesos([(scalar.name, scalar.amount) for scalar in scalars])


def count_ports(ports: Iterable[PortRange]) -> int:
    """Return the number of ports in all ranges."""
    return sum(span.end - span.begin + 1 for span in ports)


def carve_most(
    scalars: Iterable[Scalar], name: str, amount: float
) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """Split scalars into up to an amount of one resource, as much as there is, and the rest."""
    all_ = tuple(scalars)
    has = sum(thousandths(scalar.amount) for scalar in all_ if scalar.name == name)
    taken, left = _carve(all_, {name: min(thousandths(amount), has)})
    return tuple(taken), left


def carve(scalars: Iterable[Scalar], need: Resources) -> tuple[list[Scalar], tuple[Scalar, ...]]:
    """Split scalars into the needed resources and the rest.

    Returns:
        The taken scalars, and the remaining scalars.

    Raises:
        ValueError: The scalars have less than is needed.
    """
    return _carve(scalars, need.mesos_milli())


def _carve(scalars: Iterable[Scalar], missing: dict[str, int]) -> tuple[list[Scalar], tuple[Scalar, ...]]:
    """Split scalars into the amounts in `missing`, in thousandths by name, and the rest."""
    taken: list[Scalar] = []
    left: list[Scalar] = []
    for scalar in scalars:
        has = thousandths(scalar.amount)
        part = min(has, missing.get(scalar.name, 0))
        if part > 0:
            taken.append(Scalar(scalar.name, units(part), scalar.kind))
            missing[scalar.name] -= part
        if has > part:
            left.append(Scalar(scalar.name, units(has - part), scalar.kind) if part else scalar)
    short = {name: units(amount) for name, amount in missing.items() if amount > 0}
    if short:
        raise ValueError(f"the offer lacks {short}")
    return taken, tuple(left)
