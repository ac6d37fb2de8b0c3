"""Resizing of a share while its task runs.

An increase is claimed before it is given, a decrease is enforced before it is released. A message that
arrives twice is answered twice and carried out once.
"""

from dataclasses import dataclass, replace

from isolator.gpus.ledger import Claimed, Owner
from isolator.shares.enforcing import Enforcing
from isolator.shares.tenancy import MemoryInUse
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.shares.units import PER_PERCENT
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.wire.mesos.resize import decode_request, encode_answer


class NoRoom(Conflict):
    """The card has no room for the larger share."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a resize request, as text and as data for the scheduler."""

    words: str
    data: bytes


def answer_to(data: bytes, enforcing: Enforcing | None, owner: Owner) -> Answer | None:
    """Carry out a resize request and return the answer; None if the message is not a valid request.

    Args:
        data: Message from the scheduler.
        enforcing: Enforcement of the task's share; None if it has no share.
        owner: Owner of the claim in the ledger.
    """
    try:
        wish = decode_request(data)
    except ValueError:
        return None
    if wish is None:
        return None
    if enforcing is None:
        refusal = ResizeAnswer(wish.number, 0, 0, 0, refused="it has no share of a GPU")
        return Answer(f"not resized: {refusal.refused}", encode_answer(refusal))
    resized = enforcing.resized
    if resized is None and not wish.number:
        resized = _has(wish.number, enforcing.tenancy.share)
    elif resized is None or wish.number > resized.number:
        resized = enforcing.resized = _done(wish, enforcing, owner)
    return Answer(_words(resized), encode_answer(resized))


def _done(wish: Resize, enforcing: Enforcing, owner: Owner) -> ResizeAnswer:
    """Check and carry out a resize request; return the share that the task has afterwards, and why it was
    refused if it was.
    """
    before = enforcing.tenancy.share
    wanted = replace(
        before,
        memory_mib=wish.memory_mib,
        memory_max_mib=wish.memory_max_mib,
        compute_milli=wish.compute_milli,
    )
    if why := _cannot(before, wanted):
        return _refusal(wish, before, why, restart=True)
    try:
        with enforcing.turn():
            change(enforcing, owner, before, wanted)
    except NoRoom as error:
        return _refusal(wish, enforcing.tenancy.share, error.what)
    except MemoryInUse as error:
        return replace(_refusal(wish, before, error.what), used_mib=error.used_mib)
    except (
        MesosGpuError,
        OSError,
    ) as error:  # may come after the change: the task then has the new share
        what = error.what if isinstance(error, MesosGpuError) else str(error)
        return _refusal(wish, enforcing.tenancy.share, what, restart=isinstance(error, Conflict))
    return _has(wish.number, wanted)


def _has(number: int, share: Share) -> ResizeAnswer:
    return ResizeAnswer(number, share.memory_mib, share.memory_max_mib, share.compute_milli)


def _cannot(before: Share, wanted: Share) -> str:
    """Return why a share cannot become another while its task runs; "" if it can."""
    if not (0 < wanted.memory_mib <= wanted.memory_max_mib and wanted.compute_milli > 0):
        return (
            f"{wanted.memory_mib} to {wanted.memory_max_mib} MiB and {wanted.compute_milli} thousandths are not a "
            "valid share"
        )
    return "its share is a MIG instance" if before.method is Method.MIG and wanted != before else ""


def change(enforcing: Enforcing, owner: Owner, before: Share, wanted: Share) -> None:
    """Change a share in the cards' turn; the ledger holds the larger of both sizes until the limits are
    changed.

    Raises:
        Conflict: It does not fit, or the task cannot be changed; nothing is changed.
        MesosGpuError, OSError: A limit cannot be set; the limits before are restored as far as possible.
    """
    both = replace(
        wanted,
        memory_mib=max(before.memory_mib, wanted.memory_mib),
        memory_max_mib=max(before.memory_max_mib, wanted.memory_max_mib),
        compute_milli=max(before.compute_milli, wanted.compute_milli),
    )
    _hold(enforcing, owner, both)
    try:
        enforcing.limit(wanted, before)
    except (MesosGpuError, OSError):
        _hold(enforcing, owner, before)
        raise
    _hold(enforcing, owner, wanted)
    enforcing.plan()


def _hold(enforcing: Enforcing, owner: Owner, share: Share) -> None:
    answer = enforcing.hold(owner, share)
    if not isinstance(answer, Claimed):
        why = getattr(answer, "why", "") or "remains of an ended task are in the way, and are removed soon"
        raise NoRoom(why, remedy="ask for less, or wait until others end")


def _refusal(wish: Resize, before: Share, why: str, *, restart: bool = False) -> ResizeAnswer:
    return replace(_has(wish.number, before), refused=why, restart=restart)


def _words(resized: ResizeAnswer) -> str:
    if resized.refused:
        return f"not resized: {resized.refused}"
    return f"resized: {resized.memory_mib} MiB and {resized.compute_milli / PER_PERCENT:g} % of each GPU"
