"""What is kept for the first job that is blocked, and who may pass it (EASY backfill). Pure.

The blocked job gets the node where it can start soonest by the time limits of what runs there; a launch
without a limit counts as endless. A later job may start there if it ends before, by its own limit, or if it
takes nothing of what is kept.
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
    """When a launch of now has ended for certain: its limit, and the grace that it has to obey."""
    return ENDLESS if spec.timeout_s is None else now + spec.timeout_s + spec.kill_grace_s


def outlasts(ends_at: float, reservation: Reservation) -> bool:
    """Whether a launch may be in the way of the reservation.

    Nobody knows when an endless one begins: it may be at once, so everything outlasts it.
    """
    return reservation.at == ENDLESS or ends_at > reservation.at


def decisive(reservations: Sequence[Reservation]) -> Reservation | None:
    """All of them start at one time; the one whose node is ready last says why then."""
    return max(reservations, key=lambda r: r.awaited[-1].ends_at if r.awaited else -ENDLESS, default=None)


def beyond(reservation: Reservation, gpu_id: GpuId, more_mib: int, more_milli: int) -> str:
    """What a GPU lacks beside a reservation, in words, for shares on it that outlast it and grow by so much; "":
    nothing."""
    part = next((part for part in reservation.beside if part.gpu_id == gpu_id), None)
    if part is None:
        return ""  # nothing of it is kept, or all of it, and nobody outlasts that
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
    """The reservation after a launch that outlasts it: less is to spare.

    Args:
        reservation: The reservation.
        request: What was launched.
        here: Whether it is on the reservation's node.
        takes: What it adds to each queue in a pool, thousandths of cost.
        chosen: Where it went, if it got shares of GPUs.
    """
    return replace(
        reservation,
        beside=_parts_after(reservation, chosen) if here and chosen else reservation.beside,
        spare=reservation.spare - request.resources if here else reservation.spare,
        spares=_spares_after(reservation.spares, takes) if takes else reservation.spares,
    )


def _spares_after(spares: tuple[Spare, ...], takes: Sequence[tuple[str, str, int]]) -> tuple[Spare, ...]:
    taken = {(queue, pool): milli for queue, pool, milli in takes}
    return tuple(replace(each, milli=each.milli - taken.get((each.queue, each.pool), 0)) for each in spares)


def _parts_after(reservation: Reservation, chosen: Chosen) -> tuple[GpuPart, ...]:
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
    """The soonest start of a job, beside the reservations that stand before it.

    Args:
        job: The blocked job.
        request: What one launch of it takes.
        nodes: Those that may serve it at all.
        taken: Earlier reservations; what they keep is not given out again.
        now: Seconds since the epoch.

    Returns:
        None: No node has as much even when all that runs there has ended.
    """
    best: Reservation | None = None
    for node in nodes:
        if as_new_as(node.driver, request.min_driver) and node.could_share(request):
            best = _better(job, request, node, taken, now, best)
    return best


def _rank(reservation: Reservation) -> tuple[float, int, str, str]:
    return reservation.at, len(reservation.awaited), reservation.hostname, str(reservation.agent_id)


def _better(
    job: Job,
    request: Request,
    node: NodeCapacity,
    taken: Sequence[Reservation],
    now: float,
    best: Reservation | None,
) -> Reservation | None:
    """The node's reservation if it is better than the best so far, else that one."""
    if best is not None and len(node.gpus) < request.gpu.count:
        # The first of those that run there ends at the soonest then: of a full cluster that rules most nodes out.
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
    """What is kept of a node; None: there is no room even when so many of its allocations have ended."""
    awaited = node.allocations[:ended]
    kept = _keep(request, node, node.without(awaited), model)
    return None if kept is None else reservation_of(job, request.resources, node, kept, awaited, at)


def _keep(request: Request, node: NodeCapacity, ready: NodeCapacity, model: str | None) -> Kept | None:
    """What is kept of its GPUs for one task that can start when the node is `ready`; None: there is no room."""
    if request.gpu.share is not None:
        return keep_shares(request, node, ready, model, 1)
    if not room_for(request, ready, model).slots:
        return None
    size = request.gpu.count
    gpus = [gpu.id for group in ready.usable(request.gpu, model) for gpu in group]
    # Those that come last: what is free already can serve others.
    return Kept(frozenset(gpus[len(gpus) - size :]), ready.free - request.resources)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that holds for a job, and what counts against it.

    Attributes:
        queue: Whose it is: the job's queue, or one above it.
        pool: Of whose nodes it limits the use.
        milli: The limit, thousandths of cost.
        held: What is held of it now.
    """

    queue: str
    pool: str
    milli: int
    held: Sequence[Allocation]


@dataclass(frozen=True, slots=True)
class Leave:
    """When a queue's limit leaves room for a job, and how many thousandths of cost beside it."""

    at: float
    spare_milli: float
    awaited: tuple[Allocation, ...] = ()


def leave_of(limit_milli: int, want_milli: int, held: Sequence[Allocation], now: float) -> Leave | None:
    """The soonest time at which the queue may hold so many thousandths of cost more; None: never."""
    if want_milli > limit_milli:
        return None
    used, awaited = sum(each.counted_milli for each in held), []
    for each in by_end(held):
        if used + want_milli <= limit_milli:
            break
        used -= each.counted_milli
        awaited.append(each)
    at = max(awaited[-1].ends_at, now) if awaited else now
    return Leave(at, limit_milli - used - want_milli, tuple(awaited))


def leave_of_all(
    limits: Sequence[Limit], want_milli: int, now: float
) -> tuple[Leave, tuple[Spare, ...]] | None:
    """The soonest time at which all limits leave room for so much more, and what is to spare of each then; None:
    never."""
    leaves: list[Leave] = []
    for each in limits:
        leave = leave_of(each.milli, want_milli, each.held, now)
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
    reservation: Reservation, leaves: Iterable[tuple[Leave, Sequence[Limit], int]]
) -> Reservation:
    """The reservation of a job that waits for the limits of pools, too. `leaves`: of each pool when its limits leave
    room, the limits, and what the job costs there, thousandths."""
    for leave, limits, want_milli in leaves:
        at = max(reservation.at, leave.at)
        spares = tuple(_spare_at(limit, at, leave.awaited, want_milli) for limit in limits)
        awaited = reservation.awaited if reservation.at >= leave.at else leave.awaited
        reservation = replace(reservation, at=at, spares=(*reservation.spares, *spares), awaited=awaited)
    return reservation


def _spare_at(limit: Limit, at: float, awaited: Sequence[Allocation], want_milli: int) -> Spare:
    given_back = {id(each) for each in awaited}
    stays = [
        each for each in limit.held if id(each) not in given_back and (each.ends_at > at or at == ENDLESS)
    ]
    later = sum(each.counted_milli for each in stays)
    return Spare(limit.queue, limit.pool, limit.milli - later - want_milli)
