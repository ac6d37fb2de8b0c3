"""Claims of shares of cards: the requested size, whether it fits beside others, and what is made of a card
for all shares.

`isolator.gpus.ledger` imports it only for shares, as few executors need it and each import slows the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share
from mesos_gpu.model.shares.units import WHOLE

CLOSED: Final = "closed"  # kind of a row: the card takes no more shares, for the reason in `what`


@dataclass(frozen=True, slots=True)
class CardTrace:
    """Something that was made of a card for all its shares, or is about to be; `isolator.shares.card` knows
    each kind.

    Attributes:
        gpu: Id of the card.
        kind, what: Kind of the thing, and which one of the kind.
        state: Details that are needed to undo it.
    """

    gpu: GpuId
    kind: str
    what: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """Capacity of a card for all its shares together.

    Attributes:
        clients: Number of MPS clients; 0 for any number.
    """

    memory_mib: int
    compute_milli: int = WHOLE
    clients: int = 0


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """Claim of a share of each of several GPUs.

    Attributes:
        share: Share of each GPU.
        rooms: Capacity of each GPU for all its shares.
        cards: Rows to be added for the GPUs, unless they exist.
    """

    share: Share
    rooms: Mapping[GpuId, Room]
    cards: tuple[CardTrace, ...] = ()


def misfit(share: Share, room: Room, beside: Sequence[Share | None]) -> str:
    """Return why a share does not fit on a card beside other holdings; "" if it fits.

    Args:
        beside: Shares of the other holdings; None for one of the whole card.
    """
    shares = [other for other in beside if other is not None]
    if len(shares) < len(beside):
        return "it is held whole"
    for other in shares:
        if other.method is not share.method:
            return f"its shares are enforced by {other.method.value}, but this one by {share.method.value}"
        if other.domain != share.domain:
            whose = "several users" if other.domain == EVERYBODY else f"the user {other.domain!r}"
            return f"its shares belong to {whose}"
        if share.instance and other.instance == share.instance:
            return f"its instance {share.instance} is held"
    if share.method.has_domain and 0 < room.clients <= len(shares):
        return f"its MPS server takes {room.clients} clients, and {len(shares)} shares have one"
    for name, unit, requested, held, most in (
        ("memory", "MiB", share.memory_mib, sum(o.memory_mib for o in shares), room.memory_mib),
        ("compute", "thousandths", share.compute_milli, sum(o.compute_milli for o in shares), room.compute_milli),
    ):  # fmt: skip
        if held + requested > most:
            return f"of its {most} {unit} of {name} {held} are held, and {requested} more are asked for"
    return ""


def columns(share: Share) -> tuple[object, ...]:
    """Return the values of a share in the ledger's columns."""
    return (
        share.compute_milli, share.memory_mib, share.memory_max_mib, share.method.value, share.domain, share.instance,
    )  # fmt: skip


def share_of(compute: int, memory: int, most: int, method: str, *rest: str) -> Share:
    """Return the share from the ledger's columns; the inverse of `columns`."""
    return Share(compute, memory, most, Method(method), *rest)
