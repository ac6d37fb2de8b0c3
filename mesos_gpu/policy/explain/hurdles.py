"""What keeps a job off one node. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange, count_ports
from mesos_gpu.model.words import counted
from mesos_gpu.policy.apps.ports import enough, offers
from mesos_gpu.policy.cluster.placement import Ask
from mesos_gpu.policy.explain.estimate import gpus_of
from mesos_gpu.policy.room.reservation import Reservation

OFF_GPUS: Final = "has GPUs, and this work without GPUs keeps off such nodes"
_DAY_S: Final = 86400.0
_MOST_RANGES: Final = 3


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the explanation sees it."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[Gpu, ...]
    holders: dict[GpuId, str] = field(default_factory=dict)  # GPU to the name of what holds it
    lost: str = ""  # since when
    silent: str = ""  # why its GPUs are not known
    drained: str = ""  # why nothing at all may start there
    cpus: float | None = None  # what its held offers leave; None: no offer of it is held
    mem_mib: float | None = None
    gpus_offered: int | None = None
    ports: tuple[PortRange, ...] | None = None
    driver: str | None = None  # as its monitor reported it
    kept: tuple[Reservation, ...] = ()  # of others, that the job must leave alone
    barred: str = ""  # which constraint keeps the job off it now
    ruled_out: str = ""  # which one does so whatever runs where
    disk_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Hurdle:
    """One thing that keeps the job off a node."""

    stage: Stage
    words: str  # said of the node: "has …", "lacks …"


def hurdles(
    ask: Ask, node: NodeView, *, now: float, gang: bool = False, ports: Sequence[PortWish] = ()
) -> list[Hurdle]:
    """All that keeps one task of a job off a node, in the order of stages; what is kept only if nothing else does.

    Args:
        ask: What one task needs.
        node: Where it would go.
        now: Seconds since the epoch.
        gang: The job has several tasks: each takes a port.
        ports: What it asks for by itself.
    """
    if node.drained:
        return [Hurdle(Stage.DRAINED, node.drained)]
    if node.lost:
        return [Hurdle(Stage.LOST, f"cannot be used: {node.lost}")]
    found = []
    if node.silent and ask.gpus:
        found.append(Hurdle(Stage.UNREPORTED, f"cannot be used: {node.silent}"))
    if node.ruled_out or node.barred:
        stage = Stage.SCARCE if node.ruled_out == OFF_GPUS else Stage.CONSTRAINT
        found.append(Hurdle(stage, node.ruled_out or node.barred))
    if not as_new_as(node.driver, ask.min_driver):
        has = f"has driver {node.driver}" if node.driver else "reports no NVIDIA driver"
        found.append(Hurdle(Stage.DRIVER, f"{has}, and {ask.min_driver} is the oldest that will do"))
    scalars = [*_scalars(ask, node), *_of_ports(node, ports, gang=gang)]
    if ask.gpus and not node.silent:
        gpus = _of_gpus(ask, node, now)
        after = [hurdle for hurdle in gpus if hurdle.stage is Stage.GPUS]
        found += [hurdle for hurdle in gpus if hurdle.stage is not Stage.GPUS] + scalars + after
    else:
        found += scalars
    if found:
        return found
    if node.cpus is None:
        return [Hurdle(Stage.OFFER, "has made no offer: it is full, or its offer is on the way")]
    return _kept(ask, node)


def _scalars(ask: Ask, node: NodeView) -> list[Hurdle]:
    found = []
    if node.cpus is not None and _milli(node.cpus) < _milli(ask.cpus):
        found.append(Hurdle(Stage.CPUS, f"lacks {round(ask.cpus - node.cpus, 3):g} cpus"))
    if node.mem_mib is not None and math.floor(node.mem_mib) < math.ceil(ask.mem_mib):
        found.append(Hurdle(Stage.MEM, f"lacks {ask.mem_mib - node.mem_mib:g} MiB of memory"))
    if node.disk_mib is not None and node.disk_mib < ask.disk_mib:
        found.append(Hurdle(Stage.DISK, f"lacks {ask.disk_mib - node.disk_mib:g} MiB of disk"))
    return found


def _of_ports(node: NodeView, wishes: Sequence[PortWish], *, gang: bool) -> list[Hurdle]:
    if node.ports is None:
        return []
    if gang and not node.ports:
        return [Hurdle(Stage.PORTS, "has no free port, and each task takes one")]
    if enough(wishes, node.ports):
        return []
    absent = sorted({port for wish in wishes if (port := wish.host_port) and not offers(node.ports, port)})
    if absent:
        numbers = f"port{'' if len(absent) == 1 else 's'} {', '.join(map(str, absent))}"
        return [Hurdle(Stage.PORTS, f"does not offer {numbers}; it offers {_ranges(node.ports)}")]
    free, wanted = count_ports(node.ports), sum(wish.host_port is not None for wish in wishes)
    return [Hurdle(Stage.PORTS, f"offers {counted(free, 'port')}, and it asks for {wanted}")]


def _ranges(ports: Sequence[PortRange]) -> str:
    """In words; of many the first."""
    shown = [f"{found.begin}-{found.end}" for found in sorted(ports, key=lambda found: found.begin)]
    more = f" and {len(shown) - _MOST_RANGES} more" if len(shown) > _MOST_RANGES else ""
    return ", ".join(shown[:_MOST_RANGES]) + more if shown else "none"


def _kept(ask: Ask, node: NodeView) -> list[Hurdle]:
    for i, reservation in enumerate(node.kept, 1):
        if rooms(ask, replace(node, kept=node.kept[:i])) == 0:
            words = f"keeps room for job {reservation.job_id}, which is before it"
            return [Hurdle(Stage.KEPT, words)]
    return []


# --- GPUs


def groups(ask: Ask, gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """GPUs of acceptable models, by model: one task never gets a mix."""
    found: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if not ask.models or gpu.model in ask.models:
            found.setdefault(gpu.model, []).append(gpu)
    return list(found.values())


def most(found: Sequence[Sequence[Gpu]]) -> Sequence[Gpu]:
    """The largest group; empty: there is none."""
    return max(found, key=len, default=())


def that(found: Iterable[Iterable[Gpu]], does: Callable[[Gpu], bool]) -> list[list[Gpu]]:
    """Of each group, those that will do."""
    return [[gpu for gpu in group if does(gpu)] for group in found]


def suited(ask: Ask, gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """By model, what one task could have if all were well and idle."""
    found = groups(ask, gpus)
    return that(found, ask.takes) if ask.choosy else found


def large(ask: Ask, found: Iterable[Iterable[Gpu]]) -> list[list[Gpu]]:
    """Of each group, those with the memory that is asked for."""
    return that(found, replace(ask, compute_capability=None).takes)


def free_of(ask: Ask, node: NodeView) -> list[list[Gpu]]:
    """By model, what one task could have now."""
    return that(suited(ask, node.gpus), lambda gpu: is_free(gpu, node))


def free_here(ask: Ask, node: NodeView) -> int:
    """How many of one model one task could have now, as Mesos offers them."""
    free = len(most(free_of(ask, node)))
    return free if node.gpus_offered is None else min(free, node.gpus_offered)


def is_free(gpu: Gpu, node: NodeView) -> bool:
    """Whether it may be given out."""
    return gpu.health is Health.OK and gpu.id not in node.holders


def of_model(ask: Ask) -> str:
    """The models in words, with a space before them."""
    return f" of model {' or '.join(ask.models)}" if ask.models else ""


def _of_gpus(ask: Ask, node: NodeView, now: float) -> list[Hurdle]:
    """The first thing that its GPUs lack."""
    fit = groups(ask, node.gpus)
    if not fit and node.gpus:
        return [Hurdle(Stage.MODEL, f"has {', '.join(sorted({gpu.model for gpu in node.gpus}))}")]
    if len(most(fit)) < ask.gpus:
        return [Hurdle(Stage.SIZE, _only(len(most(fit)), of_model(ask)))]
    able = fit
    if ask.choosy:
        roomy = large(ask, fit)
        if len(most(roomy)) < ask.gpus:
            return [Hurdle(Stage.MEMORY, _too_small(ask, fit, len(most(roomy))))]
        able = that(roomy, ask.takes)
        if len(most(able)) < ask.gpus:
            return [Hurdle(Stage.COMPUTE_CAPABILITY, _too_old(ask, roomy))]
    well = that(able, lambda gpu: gpu.health is Health.OK)
    if len(most(well)) < ask.gpus:
        return [Hurdle(Stage.HEALTH, _lacks(ask, node, able, now))]
    if len(most(that(well, lambda gpu: is_free(gpu, node)))) < ask.gpus:
        return [Hurdle(Stage.GPUS, _lacks(ask, node, able, now))]
    if node.gpus_offered is not None and node.gpus_offered < ask.gpus:
        words = f"lacks {gpus_of(ask.gpus - node.gpus_offered)}: its offers hold {node.gpus_offered}"
        return [Hurdle(Stage.GPUS, words)]
    return []


def _only(number: int, kind: str) -> str:
    return f"has only {gpus_of(number)}{kind}"


def _too_small(ask: Ask, fit: Sequence[Sequence[Gpu]], number: int) -> str:
    largest = max(gpu.memory_mib for group in fit for gpu in group)
    if not number:
        return f"has GPUs of {largest} MiB at most, and {ask.gpu_memory_mib} is the least that will do"
    return _only(number, f"{of_model(ask)} with {ask.gpu_memory_mib} MiB")


def _too_old(ask: Ask, fit: Sequence[Sequence[Gpu]]) -> str:
    known = sorted({gpu.compute_capability or "unknown" for group in fit for gpu in group})
    least = ask.compute_capability
    return f"has compute capability {', '.join(known)}, and {least} is the oldest that will do"


def _lacks(ask: Ask, node: NodeView, able: Sequence[Sequence[Gpu]], now: float) -> str:
    """Of the model that comes nearest."""
    enough = [group for group in able if len(group) >= ask.gpus]
    nearest = max(enough, key=lambda group: len([gpu for gpu in group if is_free(gpu, node)]))
    blocked = [gpu for gpu in nearest if not is_free(gpu, node)]
    missing = ask.gpus - (len(nearest) - len(blocked))
    users: dict[str, list[Gpu]] = {}
    for gpu in blocked:
        users.setdefault(node.holders.get(gpu.id, ""), []).append(gpu)
    unwell = [_unwell(gpu, now) for gpu in users.pop("", ())]
    return f"lacks {gpus_of(missing)}: " + "; ".join(
        [*(_used(job, held, now) for job, held in users.items()), *unwell]
    )


def _used(job: str, held: Sequence[Gpu], now: float) -> str:
    """What holds them, and those of them that would be of no use without it."""
    words = f"{held[0].id} is used by {job}" if len(held) == 1 else f"{len(held)} are used by {job}"
    return ", and ".join([words, *(_unwell(gpu, now) for gpu in held if gpu.health is not Health.OK)])


def _unwell(gpu: Gpu, now: float) -> str:
    since = f" since {clock(gpu.since, now)}" if gpu.since else ""
    return f"{gpu.id} is {gpu.health.value}{since}" + (f" ({gpu.reason})" if gpu.reason else "")


def clock(moment: float, now: float) -> str:
    """A moment in UTC: the time of day if it is not a day ago, "10:02Z", else with the date."""
    found = datetime.fromtimestamp(moment, UTC)
    return found.strftime("%H:%MZ" if abs(now - moment) < _DAY_S else "%Y-%m-%dT%H:%MZ")


# --- room


def rooms(ask: Ask, node: NodeView, *, gang: bool = False) -> int | None:
    """How many tasks its offers have room for, beside what is kept; None: no end, it asks for nothing.

    Whether the node is well, and the job may go there, is for `hurdles` to say.
    """
    cpus = min([node.cpus or 0.0, *(found.spare_cpus for found in node.kept)])
    mem_mib = min([node.mem_mib or 0.0, *(found.spare_mem_mib for found in node.kept)])
    disk_mib = min([node.disk_mib or 0.0, *(found.spare_disk_mib for found in node.kept)])
    fits = []
    if ask.cpus > 0:
        fits.append(math.floor(cpus * 1000 + 1e-6) // _milli(ask.cpus))
    if ask.mem_mib > 0:
        fits.append(math.floor(mem_mib) // math.ceil(ask.mem_mib))
    if ask.disk_mib > 0:
        fits.append(int(disk_mib // ask.disk_mib))
    if ask.gpus:
        kept = frozenset[GpuId]().union(*(found.gpus for found in node.kept))
        free = that(free_of(ask, node), lambda gpu: gpu.id not in kept)
        fits.append(sum(len(group) // ask.gpus for group in free))
        if node.gpus_offered is not None:
            fits.append(node.gpus_offered // ask.gpus)
    if gang and node.ports is not None:
        fits.append(count_ports(node.ports))
    return max(min(fits), 0) if fits else None


def one_model(ask: Ask) -> list[Ask]:
    """What all tasks of a job of several may ask for, as they get GPUs of one model, if any is named."""
    return [replace(ask, models=(model,)) for model in ask.models] or [ask]


def _milli(cpus: float) -> int:
    return math.ceil(cpus * 1000 - 1e-6)
