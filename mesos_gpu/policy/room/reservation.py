"""What is kept for the first job that is blocked, and who may pass it (EASY backfill). Pure.

The blocked job gets the node where it can start soonest by the time limits of what runs there; a launch
without a limit counts as endless. A later job may start there if it ends before, by its own limit, or if it
takes nothing of what is kept.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.cluster.placement import Ask, Candidate

ENDLESS: Final = inf


@dataclass(frozen=True, slots=True)
class Holding:
    """A launch, and what it gives back when it ends. Times are seconds since the epoch."""

    job_id: JobId | None  # None: a node monitor
    cpus: float
    mem_mib: float
    gpus: tuple[Gpu, ...]  # those that another job could use then
    gpu_count: int  # all that count against its queue's limit
    since: float
    ends_at: float = ENDLESS
    lasts_s: float | None = None  # what `ends_at` follows from
    learnt: str = ""  # if that is no time limit: where it comes from
    disk_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """A node: what is free now, and what its launches will give back."""

    agent_id: AgentId
    hostname: str
    cpus: float
    mem_mib: float
    free: tuple[Gpu, ...]
    holdings: tuple[Holding, ...] = ()  # in the order of `by_end`
    driver: str | None = None
    most: tuple[float, float, int, float] = (
        inf,
        inf,
        sys.maxsize,
        inf,
    )  # cpus, MiB, GPUs, disk: when all has ended
    models: tuple[str, ...] = ()  # of those GPUs; a job never gets a mix
    disk_mib: float = 0.0


def room_of(
    agent_id: AgentId,
    hostname: str,
    *,
    cpus: float,
    mem_mib: float,
    free: tuple[Gpu, ...],
    holdings: Iterable[Holding] = (),
    driver: str | None = None,
    disk_mib: float = 0.0,
) -> Room:
    """A node with its launches in order."""
    ordered = by_end(holdings)
    most = (
        round(cpus + sum(h.cpus for h in ordered), 3),
        mem_mib + sum(h.mem_mib for h in ordered),
        len(free) + sum(len(h.gpus) for h in ordered),
        disk_mib + sum(h.disk_mib for h in ordered),
    )
    models = {gpu.model for gpus in (free, *(h.gpus for h in ordered)) for gpu in gpus}
    return Room(
        agent_id, hostname, cpus, mem_mib, free, tuple(ordered), driver, most, tuple(sorted(models)), disk_mib
    )


def by_end(holdings: Iterable[Holding]) -> list[Holding]:
    """The soonest to end first; of those that nobody knows, the ones with GPUs, then the oldest."""
    return sorted(holdings, key=lambda h: (h.ends_at, not h.gpus, h.since, str(h.job_id)))


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for a job, from now until it starts."""

    job_id: JobId
    queue: str
    need: Ask
    at: float  # when it can start at the latest; ENDLESS: nobody knows
    agent_id: AgentId | None = None  # None: no node, only a share of its queue's limit
    hostname: str = ""
    gpus: frozenset[GpuId] = frozenset()
    spare_cpus: float = 0.0  # what others may hold of the node at that time
    spare_mem_mib: float = 0.0
    spare_share: float = inf  # GPUs that others of its queue may hold at that time
    awaited: tuple[Holding, ...] = ()  # what must end before, by the time of its end
    spare_disk_mib: float = 0.0


def ends_by(spec: JobSpec, now: float) -> float:
    """When a launch of now has ended for certain: its limit, and the grace that it has to obey."""
    return ENDLESS if spec.timeout_s is None else now + spec.timeout_s + spec.kill_grace_s


def outlasts(ends_at: float, found: Reservation) -> bool:
    """Whether a launch may be in the way of the reservation.

    Nobody knows when an endless one begins: it may be at once, so everything outlasts it.
    """
    return found.at == ENDLESS or ends_at > found.at


def narrowed(candidate: Candidate, found: Reservation) -> Candidate:
    """The reserved node as a launch that outlasts the reservation may use it."""
    return replace(
        candidate,
        cpus=min(candidate.cpus, found.spare_cpus),
        mem_mib=min(candidate.mem_mib, found.spare_mem_mib),
        disk_mib=min(candidate.disk_mib, found.spare_disk_mib),
        free=tuple(gpu for gpu in candidate.free if gpu.id not in found.gpus),
    )


def beside(found: Reservation, ask: Ask, *, here: bool, same_queue: bool) -> Reservation:
    """The reservation after a launch that outlasts it: less is to spare."""
    return replace(
        found,
        spare_cpus=round(found.spare_cpus - ask.cpus, 3) if here else found.spare_cpus,
        spare_mem_mib=found.spare_mem_mib - ask.mem_mib if here else found.spare_mem_mib,
        spare_disk_mib=found.spare_disk_mib - ask.disk_mib if here else found.spare_disk_mib,
        spare_share=found.spare_share - ask.gpus if same_queue else found.spare_share,
    )


def reserve(
    job: Job,
    ask: Ask,
    rooms: Iterable[Room],
    taken: Sequence[Reservation] = (),
    *,
    now: float,
) -> Reservation | None:
    """The soonest start of a job, beside the reservations that stand before it.

    Args:
        job: The blocked job.
        ask: What one launch of it takes.
        rooms: The nodes that may serve it at all.
        taken: Earlier reservations; what they keep is not given out again.
        now: Seconds since the epoch.

    Returns:
        None: No node has as much even when all that runs there has ended.
    """
    best: Reservation | None = None
    for room in rooms:
        if as_new_as(room.driver, ask.min_driver):
            best = _better(job, ask, room, taken, now, best)
    return best


def _rank(found: Reservation) -> tuple[float, int, str, str]:
    return found.at, len(found.awaited), found.hostname, str(found.agent_id)


def _better(
    job: Job, ask: Ask, room: Room, taken: Sequence[Reservation], now: float, best: Reservation | None
) -> Reservation | None:
    """The room's reservation if it is better than the best so far, else that one."""
    most_cpus, most_mem_mib, most_gpus, most_disk_mib = room.most
    if ask.gpus > most_gpus or ask.cpus > most_cpus or ask.mem_mib > most_mem_mib:
        return best
    if ask.disk_mib > most_disk_mib:
        return best
    mine = [other for other in taken if other.agent_id == room.agent_id]
    kept = frozenset(gpu_id for other in mine for gpu_id in other.gpus)
    if mine:
        room = replace(
            room,
            cpus=room.cpus - sum(other.need.cpus for other in mine),
            mem_mib=room.mem_mib - sum(other.need.mem_mib for other in mine),
            disk_mib=room.disk_mib - sum(other.need.disk_mib for other in mine),
        )
    for model in (ask.models or room.models) if ask.gpus else ("",):
        found = _with_model(job, ask, room, kept, model, now, best)
        if found is not None and (best is None or _rank(found) < _rank(best)):
            best = found
    return best


def _with_model(
    job: Job,
    ask: Ask,
    room: Room,
    kept: frozenset[GpuId],
    model: str,
    now: float,
    best: Reservation | None,
) -> Reservation | None:
    """Let one launch after the other end, the soonest first, until there is enough, or the best is better."""
    limit = (best.at, len(best.awaited)) if best else (inf, sys.maxsize)

    def fit(gpus: Iterable[Gpu]) -> list[GpuId]:
        found = (g for g in gpus if g.id not in kept and g.model == model)
        return [g.id for g in (filter(ask.takes, found) if ask.choosy else found)]

    cpus, mem_mib, disk_mib, gpus, waits = (
        room.cpus, room.mem_mib, room.disk_mib, fit(room.free), room.holdings
    )  # fmt: skip
    ended = 0
    while cpus < ask.cpus or mem_mib < ask.mem_mib or len(gpus) < ask.gpus or disk_mib < ask.disk_mib:
        if ended == len(waits) or (waits[ended].ends_at, ended + 1) > limit:
            return None
        cpus = round(cpus + waits[ended].cpus, 3)
        mem_mib += waits[ended].mem_mib
        disk_mib += waits[ended].disk_mib
        gpus += fit(waits[ended].gpus)
        ended += 1
    awaited = waits[:ended]
    return Reservation(
        job_id=job.id,
        queue=job.spec.queue,
        need=ask,
        at=max(awaited[-1].ends_at, now) if awaited else now,
        agent_id=room.agent_id,
        hostname=room.hostname,
        # Those that come last: what is free already can serve others.
        gpus=frozenset(gpus[len(gpus) - ask.gpus :]),
        spare_cpus=round(cpus - ask.cpus, 3),
        spare_mem_mib=mem_mib - ask.mem_mib,
        awaited=awaited,
        spare_disk_mib=disk_mib - ask.disk_mib,
    )


@dataclass(frozen=True, slots=True)
class Share:
    """When a queue's limit leaves room for a job, and how much beside it."""

    at: float
    spare: float
    awaited: tuple[Holding, ...] = ()


def share_of(limit_gpus: int, want_gpus: int, held: Sequence[Holding], now: float) -> Share | None:
    """The soonest time at which the queue may hold so many GPUs more; None: never."""
    if want_gpus > limit_gpus:
        return None
    used, awaited = sum(holding.gpu_count for holding in held), []
    for holding in by_end(held):
        if used + want_gpus <= limit_gpus:
            break
        used -= holding.gpu_count
        awaited.append(holding)
    at = max(awaited[-1].ends_at, now) if awaited else now
    return Share(at, limit_gpus - used - want_gpus, tuple(awaited))


def with_share(
    found: Reservation, share: Share, held: Sequence[Holding], limit_gpus: int, want_gpus: int
) -> Reservation:
    """The reservation of a job whose queue has a limit, and that wants so many GPUs in all: it waits for both."""
    at = max(found.at, share.at)
    given_back = {id(holding) for holding in share.awaited}
    stays = [h for h in held if id(h) not in given_back and (h.ends_at > at or at == ENDLESS)]
    later = sum(holding.gpu_count for holding in stays)
    awaited = found.awaited if found.at >= share.at else share.awaited
    return replace(found, at=at, spare_share=limit_gpus - later - want_gpus, awaited=awaited)
