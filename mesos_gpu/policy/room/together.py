"""Where several tasks of one job could start together, and when. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.cluster.placement import Ask
from mesos_gpu.policy.room import allotment
from mesos_gpu.policy.room.reservation import Holding, Reservation, Room


@dataclass(frozen=True, slots=True)
class Slots:
    """How many tasks a node could hold, and what is left of it beside them."""

    room: Room
    count: int
    cpus: float
    mem_mib: float
    gpus: tuple[GpuId, ...]  # those that will do, in whole sets
    disk_mib: float


def times(most: float, each: float) -> int:
    """How often an amount is in another one."""
    return int((most + 1e-6) // each) if each > 0 else 1 << 30


def slots_of(
    ask: Ask,
    room: Room,
    taken: Sequence[Reservation],
    ended: Sequence[Holding],
    model: str | None = None,
) -> Slots:
    """What a node could hold when some of what runs there has ended, beside the reservations of it."""
    mine = [other for other in taken if other.agent_id == room.agent_id]
    kept = {gpu_id for other in mine for gpu_id in other.gpus}
    cpus = room.cpus + sum(h.cpus for h in ended) - sum(other.need.cpus for other in mine)
    mem_mib = room.mem_mib + sum(h.mem_mib for h in ended) - sum(other.need.mem_mib for other in mine)
    disk_mib = room.disk_mib + sum(h.disk_mib for h in ended) - sum(other.need.disk_mib for other in mine)
    gpus = (g for gpus in (room.free, *(h.gpus for h in ended)) for g in gpus if g.id not in kept)
    free = tuple(gpu.id for gpu in whole_sets(ask, gpus, model))
    count = min(
        times(cpus, ask.cpus),
        times(mem_mib, ask.mem_mib),
        times(disk_mib, ask.disk_mib),
        times(len(free), ask.gpus),
    )
    return Slots(room, max(count, 0), round(cpus, 3), mem_mib, free, disk_mib)


def whole_sets(ask: Ask, gpus: Iterable[Gpu], model: str | None) -> list[Gpu]:
    """The GPUs that will do, of the given model or of any, in sets as large as a task wants: no task gets a mix."""
    fit: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if model in (None, gpu.model) and ask.takes(gpu):
            fit.setdefault(gpu.model, []).append(gpu)
    each = max(ask.gpus, 1)
    return [gpu for found in fit.values() for gpu in found[: len(found) // each * each]]


#: How many tasks of one job go to each of some nodes, which could hold so many each.
Allot = Callable[[Sequence[Slots]], list[int]]


def reserve_together(
    job: Job,
    ask: Ask,
    rooms: Iterable[Room],
    taken: Sequence[Reservation] = (),
    *,
    now: float,
    allot: Allot | None = None,
) -> list[Reservation]:
    """The soonest start of all tasks of a job, beside the reservations that stand before it.

    Args:
        job: The blocked job.
        ask: What each of its tasks takes.
        rooms: The nodes that may serve it at all.
        taken: Earlier reservations; what they keep is not given out again.
        now: Seconds since the epoch.
        allot: Which nodes share the tasks; None: the largest first.

    Returns:
        One for each node, all with the time of the whole; none if the nodes could not hold all even if all that
        runs there had ended.
    """
    able = [room for room in rooms if as_new_as(room.driver, ask.min_driver)]
    share = allot or partial(_largest_first, job.spec.tasks)
    ends = sorted({now, *(max(h.ends_at, now) for room in able for h in room.holdings)})
    best: tuple[float, list[tuple[Slots, int]], str | None] | None = None
    for model in ask.models or (None,):

        def at(time: float, model: str | None = model) -> list[tuple[Slots, int]]:
            slots = [slots_of(ask, room, taken, _ended(room, time), model) for room in able]
            slots.sort(key=lambda s: (-s.count, s.room.hostname, s.room.agent_id))
            return list(zip(slots, share(slots), strict=True))

        found = _soonest(job.spec.tasks, at, ends)
        if found is not None and (best is None or found[0] < best[0]):
            best = *found, model
    if best is None:
        return []
    time, chosen, model = best
    made = []
    for slots, count in chosen:
        if count:
            least, awaited = _least(ask, slots.room, taken, time, model, count)
            made.append(_reservation(job, ask, least, awaited, count, time))
    return made


def _largest_first(tasks: int, slots: Sequence[Slots]) -> list[int]:
    """So many tasks on as few nodes as can be; the nodes come with the largest first."""
    return allotment.allot(tasks, [found.count for found in slots])


def _ended(room: Room, at: float) -> list[Holding]:
    return [holding for holding in room.holdings if holding.ends_at <= at]


def _least(
    ask: Ask, room: Room, taken: Sequence[Reservation], at: float, model: str | None, count: int
) -> tuple[Slots, list[Holding]]:
    """Let one launch after the other end, the soonest first, until there is room for so many: what need not end is not
    waited for, and what is free is kept, or others would take it again and again."""
    ended = _ended(room, at)
    for some in range(len(ended)):
        found = slots_of(ask, room, taken, ended[:some], model)
        if found.count >= count:
            return found, ended[:some]
    return slots_of(ask, room, taken, ended, model), ended


def _soonest(
    tasks: int, at: Callable[[float], list[tuple[Slots, int]]], ends: Sequence[float]
) -> tuple[float, list[tuple[Slots, int]]] | None:
    """Bisect the times at which something ends: what fits once fits later too."""
    low, high, found = 0, len(ends) - 1, at(ends[-1])
    if sum(count for _, count in found) < tasks:
        return None
    while low < high:
        middle = (low + high) // 2
        earlier = at(ends[middle])
        if sum(count for _, count in earlier) >= tasks:
            high, found = middle, earlier
        else:
            low = middle + 1
    return ends[low], found


def _reservation(
    job: Job, ask: Ask, found: Slots, awaited: Sequence[Holding], count: int, at: float
) -> Reservation:
    need = replace(
        ask,
        cpus=round(ask.cpus * count, 3),
        mem_mib=ask.mem_mib * count,
        disk_mib=ask.disk_mib * count,
        gpus=ask.gpus * count,
    )
    return Reservation(
        job_id=job.id,
        queue=job.spec.queue,
        need=need,
        at=at,
        agent_id=found.room.agent_id,
        hostname=found.room.hostname,
        gpus=frozenset(found.gpus[len(found.gpus) - need.gpus :]),
        spare_cpus=round(found.cpus - need.cpus, 3),
        spare_mem_mib=found.mem_mib - need.mem_mib,
        awaited=tuple(awaited),
        spare_disk_mib=found.disk_mib - need.disk_mib,
    )
