"""Claims of shares of cards: what is asked for, whether it fits beside others, and what was made of a card for all.

`isolator.gpus.ledger` imports it where it meets a share: it costs each executor what only one of a share need pay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share
from mesos_gpu.model.shares.units import WHOLE

CLOSED: Final = "closed"  # kind of a row: the card takes no more shares, and `what` says why


@dataclass(frozen=True, slots=True)
class CardTrace:
    """Something that was made of a card for all its shares, or is about to be: `isolator.shares.card` knows each kind.

    Attributes:
        gpu: The card.
        kind, what: Which kind, and which one of it.
        state: What whoever made it must know to undo it.
    """

    gpu: GpuId
    kind: str
    what: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """What all shares of a card may have together. `clients`: of MPS; 0: any number."""

    memory_mib: int
    compute_milli: int = WHOLE
    clients: int = 0


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """A share of each of the GPUs of a claim.

    Attributes:
        share: What is asked for of each.
        rooms: What each of them has for all its shares.
        cards: What is about to be made of them, unless it is there already.
    """

    share: Share
    rooms: Mapping[GpuId, Room]
    cards: tuple[CardTrace, ...] = ()


def misfit(share: Share, room: Room, beside: Sequence[Share | None]) -> str:
    """Why a share does not fit on a card beside these holdings, of which None is of a whole card; "": it does."""
    shares = [other for other in beside if other is not None]
    if len(shares) < len(beside):
        return "it is held whole"
    for other in shares:
        if other.method is not share.method:
            return f"its shares are kept by {other.method.value}, and this one by {share.method.value}"
        if other.domain != share.domain:
            whose = "several users" if other.domain == EVERYBODY else f"the user {other.domain!r}"
            return f"its shares are all of {whose}"
        if share.instance and other.instance == share.instance:
            return f"its instance {share.instance} is held"
    if share.method.has_domain and 0 < room.clients <= len(shares):
        return f"its MPS server takes {room.clients} clients, and {len(shares)} shares have one"
    for name, unit, asked, held, most in (
        ("memory", "MiB", share.memory_mib, sum(o.memory_mib for o in shares), room.memory_mib),
        ("compute", "thousandths", share.compute_milli, sum(o.compute_milli for o in shares), room.compute_milli),
    ):  # fmt: skip
        if held + asked > most:
            return f"of its {most} {unit} of {name} {held} are held, and {asked} more are asked for"
    return ""


def columns(share: Share) -> tuple[object, ...]:
    """A share as the ledger's columns have it."""
    return (
        share.compute_milli, share.memory_mib, share.memory_max_mib, share.method.value, share.domain, share.instance,
    )  # fmt: skip


def share_of(compute: int, memory: int, most: int, method: str, *rest: str) -> Share:
    """The inverse of `columns`."""
    return Share(compute, memory, most, Method(method), *rest)
