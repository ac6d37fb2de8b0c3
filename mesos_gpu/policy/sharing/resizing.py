"""Changes of a share while its task runs. Pure."""

from collections.abc import Collection
from dataclasses import replace

from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import PER_PERCENT
from mesos_gpu.policy.sharing.methods import most_mib

_FIXED_COMPUTE = {
    "mig": "its compute is that of a MIG instance",
    "mps2": "its percentage of an MPS server is fixed when it starts",
}


def fixed(old: Share, new: Share) -> str:
    """Return why a running task's share cannot be changed in this way; "" if it can."""
    if new.memory_mib != old.memory_mib and old.method.memory_by == "mig":
        return "its memory is that of a MIG instance"
    return _FIXED_COMPUTE.get(old.method.compute_by, "") if new.compute_milli != old.compute_milli else ""


def resized(share: Share, request: ShareRequest, capacity_mib: int) -> Share:
    """Return a share changed to a new request, on the same card and with the same method."""
    memory_mib = request.memory_of(capacity_mib)
    most = most_mib(request, memory_mib, capacity_mib, share.method)
    return replace(share, memory_mib=memory_mib, memory_max_mib=most, compute_milli=request.compute_milli)


def lacking(
    gpu_id: str, capacity_mib: int, capacity_milli: int, old: Collection[Share], new: Collection[Share]
) -> str:
    """Describe what a card lacks for a change of its shares; "" if it lacks nothing.

    Args:
        gpu_id: Identifier of the card.
        capacity_mib: Memory that all its shares together may have, in MiB.
        capacity_milli: Thousandths of its compute that all its shares together may have.
        old: Shares of the card now.
        new: Shares of the card after the change. A total that does not grow is always accepted.
    """
    had_mib, want_mib = (sum(share.memory_mib for share in shares) for shares in (old, new))
    if want_mib > max(had_mib, capacity_mib):
        free_mib = max(capacity_mib - had_mib, 0)
        return f"{gpu_id} has {free_mib} MiB free, and {want_mib - had_mib} MiB more are asked for"
    had_milli, want_milli = (sum(share.compute_milli for share in shares) for shares in (old, new))
    if want_milli > max(had_milli, capacity_milli):
        free, more = max(capacity_milli - had_milli, 0) / PER_PERCENT, (want_milli - had_milli) / PER_PERCENT
        return f"{gpu_id} has {free:g} % of its compute free, and {more:g} % more are asked for"
    return ""
