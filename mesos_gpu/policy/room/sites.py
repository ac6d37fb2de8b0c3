"""Nodes as a plan of moves sees them: what is free, and which jobs could go. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.plan import Move, Target
from mesos_gpu.policy.cluster.placement import Ask

#: Whether a job (None: the request) may go to an agent, when some jobs have moved, and members of the request are
#: placed already.
Open = Callable[[JobId | None, AgentId, Mapping[JobId, AgentId], Sequence[AgentId]], bool]


@dataclass(frozen=True, slots=True)
class Movable:
    """A job of one task that may be ended and started elsewhere."""

    job_id: JobId
    name: str
    ask: Ask
    gpus: tuple[Gpu, ...]  # those that another job could use then
    lost_gpu_s: float
    bound: bool = False  # where it may go depends on where others are


@dataclass(frozen=True, slots=True)
class Site:
    """A node that may be given work: what is free on it, and the jobs that could leave."""

    agent_id: AgentId
    hostname: str
    cpus: float
    mem_mib: float
    free: tuple[Gpu, ...]
    tasks: tuple[Movable, ...] = ()
    driver: str | None = None
    able: bool = True  # the request may go there, at least when others have moved
    disk_mib: float = 0.0

    def without(self, task: Movable) -> "Site":
        """After the job has left."""
        return replace(
            self,
            cpus=round(self.cpus + task.ask.cpus, 3),
            mem_mib=self.mem_mib + task.ask.mem_mib,
            disk_mib=self.disk_mib + task.ask.disk_mib,
            free=self.free + task.gpus,
            tasks=tuple(other for other in self.tasks if other.job_id != task.job_id),
        )

    def less(self, ask: Ask, gpus: tuple[Gpu, ...]) -> "Site":
        """After a launch."""
        return replace(
            self,
            cpus=round(self.cpus - ask.cpus, 3),
            mem_mib=self.mem_mib - ask.mem_mib,
            disk_mib=self.disk_mib - ask.disk_mib,
            free=tuple(gpu for gpu in self.free if gpu not in gpus),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster after some moves."""

    changed: Mapping[int, Site] = field(default_factory=dict)  # by the number of the site
    moved: Mapping[JobId, AgentId] = field(default_factory=dict)  # where they are now
    moves: tuple[Move, ...] = ()
    members: tuple[Target, ...] = ()  # of the request, that have their places
    lost_gpu_s: float = 0.0

    def moving(self, task: Movable, source: tuple[int, Site], to: tuple[int, Site]) -> "Stage | None":
        """After one more move; None: it does not fit there."""
        gpus = chosen(task.ask, to[1])
        if gpus is None:
            return None
        lost = 0.0 if task.job_id in self.moved else task.lost_gpu_s
        there = to[1].less(task.ask, gpus)
        there = replace(there, tasks=(*there.tasks, replace(task, gpus=gpus)))
        ids = tuple(gpu.id for gpu in gpus)
        return replace(
            self,
            changed={**self.changed, source[0]: source[1].without(task), to[0]: there},
            moved={**self.moved, task.job_id: to[1].agent_id},
            moves=(*self.moves, Move(task.job_id, task.name, source[1].hostname, to[1].hostname, ids, lost)),
            lost_gpu_s=self.lost_gpu_s + lost,
        )

    def seating(self, ask: Ask, number: int, site: Site) -> "Stage | None":
        """With a member of the request there; None: it does not fit."""
        gpus = chosen(ask, site)
        if gpus is None:
            return None
        member = Target(site.agent_id, site.hostname, tuple(gpu.id for gpu in gpus))
        return replace(
            self,
            changed={**self.changed, number: site.less(ask, gpus)},
            members=(*self.members, member),
        )


def chosen(ask: Ask, site: Site) -> tuple[Gpu, ...] | None:
    """The GPUs that a launch gets on the site, all of one model; None: it does not fit."""
    if ask.cpus > site.cpus or ask.mem_mib > site.mem_mib or not as_new_as(site.driver, ask.min_driver):
        return None
    if ask.gpus > len(site.free) or ask.disk_mib > site.disk_mib:
        return None
    for model in _models(ask, site.free):
        good = suited(ask, model, site.free)
        if len(good) >= ask.gpus:
            return tuple(sorted(good, key=lambda gpu: (gpu.memory_mib, gpu.minor, gpu.id))[: ask.gpus])
    return None


def least_departures(ask: Ask, site: Site) -> int | None:
    """How many jobs must leave before the ask fits, at the least; None: it does not fit even when all have left."""
    if not as_new_as(site.driver, ask.min_driver):
        return None
    cpus = _fewest(round(ask.cpus - site.cpus, 3), (task.ask.cpus for task in site.tasks))
    mem = _fewest(ask.mem_mib - site.mem_mib, (task.ask.mem_mib for task in site.tasks))
    disk = _fewest(ask.disk_mib - site.disk_mib, (task.ask.disk_mib for task in site.tasks))
    gpus = [_of_model(ask, site, model) for model in _models(ask, _all(site))]
    known = [count for count in gpus if count is not None]
    if cpus is None or mem is None or disk is None or not known:
        return None
    return max(cpus, mem, disk, min(known))


def _of_model(ask: Ask, site: Site, model: str | None) -> int | None:
    gives = (len(suited(ask, model, task.gpus)) for task in site.tasks)
    return _fewest(ask.gpus - len(suited(ask, model, site.free)), gives)


def _models(ask: Ask, gpus: Iterable[Gpu]) -> Sequence[str | None]:
    """Those that will do, the first choice first; [None] where the model is of no account."""
    if not ask.gpus:
        return [None]
    return ask.models or sorted({gpu.model for gpu in gpus})


def suited(ask: Ask, model: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those that will do for the ask, if it gets that model."""
    found = [gpu for gpu in gpus if gpu.model == model] if ask.gpus else []
    return list(filter(ask.takes, found)) if ask.choosy else found


def _all(site: Site) -> Iterator[Gpu]:
    yield from site.free
    for task in site.tasks:
        yield from task.gpus


def _fewest(lack: float, gives: Iterable[float]) -> int | None:
    """How many of the gifts make up for a lack, the largest first."""
    count = 0
    if lack <= 0:
        return count
    for gift in sorted(gives, reverse=True):
        lack = round(lack - gift, 3)
        count += 1
        if lack <= 0:
            return count
    return None
