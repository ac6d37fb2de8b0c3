"""Reservation for the first blocked job, and backfill by jobs that do not delay it (EASY backfill). Pure.

The blocked job gets the node where it can start soonest by the time limits of what runs there; a launch without a limit
counts as endless. A later job may start there if it ends before, by its own limit, or if it takes nothing that is
reserved.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.shares.units import PER_PERCENT
from mesos_gpu.policy.capacity.fit import Chosen, room_for, soonest
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity, Reservation, Spare, by_end
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.keeping import Kept, keep_shares, reservation_of
from mesos_gpu.policy.sharing.parts import GpuPart


def ends_by(spec: JobSpec, now: float) -> float:
    """Return the latest end of a launch that starts now: after its time limit and its grace period."""
    return ENDLESS if spec.timeout_s is None else now + spec.timeout_s + spec.kill_grace_s


def outlasts(ends_at: float, reservation: Reservation) -> bool:
    """Return whether a launch that ends at `ends_at` may delay the job of a reservation.

    Every launch may if the reservation's start is unknown, as that may be at any time.
    """
    return reservation.at == ENDLESS or ends_at > reservation.at


def decisive(reservations: Sequence[Reservation]) -> Reservation | None:
    """Return the reservation, of several that start together, whose node is ready last; it explains their start."""
    return max(reservations, key=lambda r: r.awaited[-1].ends_at if r.awaited else -ENDLESS, default=None)


def beyond(reservation: Reservation, gpu_id: GpuId, more_mib: int, more_milli: int) -> str:
    """Describe what a GPU lacks for shares to grow beside a reservation that they outlast; "" if nothing.

    Args:
        reservation: Reservation with shares of the GPU.
        gpu_id: GPU of the shares.
        more_mib: Growth of their memory in MiB.
        more_milli: Growth of their compute in thousandths.
    """
    part = next((part for part in reservation.beside if part.gpu_id == gpu_id), None)
    if part is None:
        return ""  # nothing of the GPU is reserved, or all of it, which no share outlasts
    free_mib, free_milli = max(part.memory_mib, 0), max(part.milli, 0)
    if more_mib > free_mib:
        return f"{gpu_id} has {free_mib} MiB free beside its share, and {more_mib} MiB more are asked for"
    if more_milli > free_milli:
        free, more = free_milli / PER_PERCENT, more_milli / PER_PERCENT
        return (
            f"{gpu_id} has {free:g} % of its compute free beside its share, and {more:g} % more are asked for"
        )
    return ""


def after_launch(
    reservation: Reservation,
    request: Request,
    *,
    here: bool,
    takes: Sequence[tuple[str, str, int]] = (),
    chosen: Chosen | None = None,
) -> Reservation:
    """Return the reservation with less to spare after a launch that outlasts it.

    Args:
        reservation: Reservation before the launch.
        request: Requirements of the launched task.
        here: Whether the launch is on the reservation's node.
        takes: Increase of each queue's use of a pool: queue, pool, thousandths of cost.
        chosen: GPUs of the launch, if it got shares; None otherwise.
    """
    return replace(
        reservation,
        beside=_parts_after(reservation, chosen) if here and chosen else reservation.beside,
        spare=reservation.spare - request.resources if here else reservation.spare,
        spares=_spares_after(reservation.spares, takes) if takes else reservation.spares,
    )


def _spares_after(spares: tuple[Spare, ...], takes: Sequence[tuple[str, str, int]]) -> tuple[Spare, ...]:
    """Return the amounts that limits of queues leave beside a reservation, reduced by a launch.

    Args:
        spares: Amounts before the launch.
        takes: Increase of each queue's use of a pool: queue, pool, thousandths of cost.
    """
    taken = {(queue, pool): milli for queue, pool, milli in takes}
    return tuple(
        replace(spare, milli=spare.milli - taken.get((spare.queue, spare.pool), 0)) for spare in spares
    )


def _parts_after(reservation: Reservation, chosen: Chosen) -> tuple[GpuPart, ...]:
    """Return the parts of GPUs for others after a launch of shares."""
    if chosen.share is None:
        return reservation.beside
    share, gpus = chosen.share, chosen.gpus
    return tuple([part.less(share) if part.gpu_id in gpus else part for part in reservation.beside])


def reserve(
    job: Job,
    request: Request,
    nodes: Iterable[NodeCapacity],
    taken: Sequence[Reservation] = (),
    *,
    now: float,
) -> Reservation | None:
    """Return the earliest possible start of a job beside earlier reservations.

    Args:
        job: Blocked job to reserve for.
        request: Requirements of one launch.
        nodes: Nodes that may serve the job.
        taken: Earlier reservations; what they reserve is not used again.
        now: Seconds since the epoch.

    Returns:
        None if no node would have enough even after everything that runs there has ended.
    """
    best: Reservation | None = None
    for node in nodes:
        if as_new_as(node.driver, request.min_driver) and node.could_share(request):
            best = _better(job, request, node, taken, now, best)
    return best


def _rank(reservation: Reservation) -> tuple[float, int, str, str]:
    """Return the key by which reservations are compared: the lowest is best."""
    return reservation.at, len(reservation.awaited), reservation.hostname, str(reservation.agent_id)


def _better(
    job: Job,
    request: Request,
    node: NodeCapacity,
    taken: Sequence[Reservation],
    now: float,
    best: Reservation | None,
) -> Reservation | None:
    """Return the node's reservation if it is better than the best so far, else the best so far."""
    if best is not None and len(node.gpus) < request.gpu.count:
        # At least the first allocation must end: in a full cluster this test excludes most nodes.
        first = max(node.allocations[0].ends_at, now) if node.allocations else inf
        if (first, 1, node.hostname, str(node.agent_id)) >= _rank(best):
            return best
    if not (node.free + node.given_back).covers(request.resources):
        return best
    left = node.keeping(taken)
    for model in (request.gpu.models or node.models) if request.gpu.count else (None,):
        limit = (best.at, len(best.awaited)) if best else (inf, sys.maxsize)
        ended = soonest(request, left, model, limit)
        if ended is None:
            continue
        at = max(left.allocations[ended - 1].ends_at, now) if ended else now
        if best is None or (at, ended, node.hostname, str(node.agent_id)) < _rank(best):
            best = _reservation(job, request, left, model, ended, at) or best
    return best


def _reservation(
    job: Job, request: Request, node: NodeCapacity, model: str | None, ended: int, at: float
) -> Reservation | None:
    """Return the reservation of a node after `ended` allocations have ended; None if there is no room even then."""
    awaited = node.allocations[:ended]
    reserved = _keep(request, node, node.without(awaited), model)
    return None if reserved is None else reservation_of(job, request.resources, node, reserved, awaited, at)


def _keep(request: Request, node: NodeCapacity, ready: NodeCapacity, model: str | None) -> Kept | None:
    """Return the GPUs to reserve for a task that can start when the node is `ready`; None if there is no room."""
    if request.gpu.share is not None:
        return keep_shares(request, node, ready, model, 1)
    if not room_for(request, ready, model).slots:
        return None
    size = request.gpu.count
    gpus = [gpu.id for group in ready.usable(request.gpu, model) for gpu in group]
    # Take the last ones: they become free last, and others can use the GPUs that are free already.
    return Kept(frozenset(gpus[len(gpus) - size :]), ready.free - request.resources)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit that applies to a job, and what counts against it.

    Attributes:
        queue: Queue with the limit: the job's, or an ancestor.
        pool: Pool to which the limit applies.
        milli: The limit in thousandths of cost.
        held: Allocations that count against it now.
    """

    queue: str
    pool: str
    milli: int
    held: Sequence[Allocation]


@dataclass(frozen=True, slots=True)
class QuotaRelease:
    """Quota release time: when limits leave room for a job, seconds since the epoch.

    Attributes:
        at: Time from which there is room.
        spare_milli: Thousandths of cost that are left beside the job then.
        awaited: Allocations that must end before.
    """

    at: float
    spare_milli: float
    awaited: tuple[Allocation, ...] = ()


def leave_of(
    limit_milli: int, want_milli: int, held: Sequence[Allocation], now: float
) -> QuotaRelease | None:
    """Return the quota release time of one limit: when it leaves room for a job; None if never.

    Args:
        limit_milli: The limit in thousandths of cost.
        want_milli: Cost of the job, in thousandths.
        held: Allocations that count against the limit now.
        now: Seconds since the epoch.
    """
    if want_milli > limit_milli:
        return None
    used, awaited = sum(allocation.counted_milli for allocation in held), []
    for allocation in by_end(held):
        if used + want_milli <= limit_milli:
            break
        used -= allocation.counted_milli
        awaited.append(allocation)
    at = max(awaited[-1].ends_at, now) if awaited else now
    return QuotaRelease(at, limit_milli - used - want_milli, tuple(awaited))


def leave_of_all(
    limits: Sequence[Limit], want_milli: int, now: float
) -> tuple[QuotaRelease, tuple[Spare, ...]] | None:
    """Return when all limits leave room for a job, and what each has to spare then; None if never, or without limits.

    Args:
        limits: Limits that apply to the job.
        want_milli: Cost of the job, in thousandths.
        now: Seconds since the epoch.
    """
    leaves: list[QuotaRelease] = []
    for limit in limits:
        leave = leave_of(limit.milli, want_milli, limit.held, now)
        if leave is None:
            return None
        leaves.append(leave)
    if not leaves:
        return None
    last = max(leaves, key=lambda leave: leave.at)
    return last, tuple(
        Spare(limit.queue, limit.pool, leave.spare_milli)
        if leave is last
        else _spare_at(limit, last.at, leave.awaited, want_milli)
        for limit, leave in zip(limits, leaves, strict=True)
    )


def with_leaves(
    reservation: Reservation, leaves: Iterable[tuple[QuotaRelease, Sequence[Limit], int]]
) -> Reservation:
    """Return the reservation of a job delayed until the limits of pools leave room.

    Args:
        reservation: Reservation on nodes.
        leaves: Quota release time for each pool, its limits, and the job's cost there in thousandths.
    """
    for leave, limits, want_milli in leaves:
        at = max(reservation.at, leave.at)
        spares = tuple(_spare_at(limit, at, leave.awaited, want_milli) for limit in limits)
        awaited = reservation.awaited if reservation.at >= leave.at else leave.awaited
        reservation = replace(reservation, at=at, spares=(*reservation.spares, *spares), awaited=awaited)
    return reservation


def _spare_at(limit: Limit, at: float, awaited: Sequence[Allocation], want_milli: int) -> Spare:
    """Return the amount that a limit leaves beside the job at a time, once the awaited allocations have ended."""
    given_back = {id(allocation) for allocation in awaited}
    stays = [
        allocation
        for allocation in limit.held
        if id(allocation) not in given_back and (allocation.ends_at > at or at == ENDLESS)
    ]
    later = sum(allocation.counted_milli for allocation in stays)
    return Spare(limit.queue, limit.pool, limit.milli - later - want_milli)
