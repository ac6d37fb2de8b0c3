"""Reasons against a job on one node as text, from the results of `fit`. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import PortRange, count_ports
from mesos_gpu.model.shares.units import PER_PERCENT, number_of
from mesos_gpu.model.words import clock, counted
from mesos_gpu.policy.apps.ports import offers
from mesos_gpu.policy.capacity.fit import Misfit, largest, misfits
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.explain.estimate import gpus_of

_MAX_RANGES: Final = 3
_MAX_GPUS: Final = 4  # different reasons against a share that are listed; a host may have 16 GPUs


@dataclass(frozen=True, slots=True)
class Hurdle:
    """Reason that keeps a job off a node."""

    stage: Stage
    words: str  # a predicate about the node: "has …", "lacks …"


def hurdles(request: Request, node: NodeCapacity, *, now: float) -> list[Hurdle]:
    """Return all reasons that keep one task of a job off a node, in the order of stages.

    Args:
        request: Requirements of the task.
        node: Capacity of the node.
        now: Seconds since the epoch.
    """
    return [Hurdle(misfit.stage, _words(misfit, request, node, now)) for misfit in misfits(request, node)]


def _words(misfit: Misfit, request: Request, node: NodeCapacity, now: float) -> str:
    """Return a reason as a predicate about the node."""
    match misfit.stage:
        case Stage.DRAINED | Stage.PACE:
            return node.drained or node.paced
        case Stage.LOST | Stage.UNREPORTED:
            return f"cannot be used: {node.lost or node.silent}"
        case Stage.CONSTRAINT | Stage.SCARCE | Stage.POOL:
            return node.ruled_out or node.barred
        case Stage.DRIVER:
            driver = f"has driver {node.driver}" if node.driver else "reports no NVIDIA driver"
            return f"{driver}, and {request.min_driver} is the oldest that will do"
        case Stage.PORTS:
            return _of_ports(request, node.ports or ())
        case Stage.OFFER:
            return "has made no offer: it is full, or its offer is on the way"
        case Stage.KEPT if misfit.kept_for is not None:
            return _of_kept(misfit.kept_for)
        case Stage.GPUS if not misfit.in_use and misfit.shortfall.gpus > len(node.installed):
            return "opens no GPU to shares now: the Mesos task that holds its shared GPUs failed to start"
        case Stage.GPUS if not misfit.in_use:
            return f"lacks {gpus_of(misfit.shortfall.gpus)}: its offers hold {node.free.gpus}"
        case Stage.ISOLATION | Stage.HEALTH | Stage.GPUS if request.gpu.share is not None:
            return _of_share(request, node, now, even_full=misfit.stage is Stage.ISOLATION)
        case _ if misfit.stage in _OF_GPUS:
            return _OF_GPUS[misfit.stage](request.gpu, node, now)
        case _:
            ((amount, value),) = misfit.shortfall.items()
            return f"lacks {value:g} {amount.words}"


def _of_kept(kept: Reservation) -> str:
    """Return which reservation keeps the node's room, as text."""
    return f"is {kept.words}" if kept.booking else f"keeps room for job {kept.job_id}, which is before it"


def _of_ports(request: Request, ports: Sequence[PortRange]) -> str:
    """Return which ports a node lacks for a task."""
    if request.tasks > 1:
        return "has no free port, and each task takes one"
    wishes = request.ports
    absent = sorted({port for wish in wishes if (port := wish.host_port) and not offers(ports, port)})
    if absent:
        numbers = f"port{'' if len(absent) == 1 else 's'} {', '.join(map(str, absent))}"
        return f"does not offer {numbers}; it offers {_ranges(ports)}"
    free, requested = count_ports(ports), sum(wish.host_port is not None for wish in wishes)
    return f"offers {counted(free, 'port')}, and it asks for {requested}"


def _ranges(ports: Sequence[PortRange]) -> str:
    """Return port ranges as text, the first few of many."""
    shown = [f"{span.begin}-{span.end}" for span in sorted(ports, key=lambda span: span.begin)]
    more = f" and {len(shown) - _MAX_RANGES} more" if len(shown) > _MAX_RANGES else ""
    return ", ".join(shown[:_MAX_RANGES]) + more if shown else "none"


# --- GPUs


def free_here(request: GpuRequest, node: NodeCapacity) -> int:
    """Return how many suitable GPUs of one model a task could have now, limited to the number that Mesos offers."""
    free = largest(node.usable(request))
    return min(free, node.free.gpus) if node.offered else free


def of_model(request: GpuRequest) -> str:
    """Return the requested models as text with a leading space; "" for any model."""
    return f" of model {' or '.join(request.models)}" if request.models else ""


def _other_models(request: GpuRequest, node: NodeCapacity, now: float) -> str:
    """Return which GPU models a node has instead."""
    return f"has {', '.join(node.models)}"


def _too_few(request: GpuRequest, node: NodeCapacity, now: float) -> str:
    """Return that a node has fewer GPUs than requested."""
    return _only(largest(request.of_any_size().by_model(node.installed)), of_model(request))


def _only(number: int, kind: str) -> str:
    return f"has only {gpus_of(number)}{kind}"


def _too_small(request: GpuRequest, node: NodeCapacity, now: float) -> str:
    """Return that a node's GPUs have too little memory."""
    number = largest(request.of_any_capability().by_model(node.installed))
    if not number:
        size = max(gpu.memory_mib for gpu in request.of_any_size().suited(node.installed))
        return f"has GPUs of {size} MiB at most, and {request.memory_mib} is the least that will do"
    return _only(number, f"{of_model(request)} with {request.memory_mib} MiB")


def _too_old(request: GpuRequest, node: NodeCapacity, now: float) -> str:
    """Return that a node's GPUs have too low a compute capability."""
    roomy = request.of_any_capability().suited(node.installed)
    capabilities = sorted({gpu.compute_capability or "unknown" for gpu in roomy})
    least = request.compute_capability
    return f"has compute capability {', '.join(capabilities)}, and {least} is the oldest that will do"


def _lacks(request: GpuRequest, node: NodeCapacity, now: float) -> str:
    """Describe what is lacking for the GPU model that comes closest."""
    free = {gpu.id for group in node.usable(request) for gpu in group}
    enough = [group for group in request.by_model(node.installed) if len(group) >= request.count]
    unfree = [[gpu for gpu in group if gpu.id not in free] for group in enough]
    nearest, blocked = max(zip(enough, unfree, strict=True), key=lambda pair: len(pair[0]) - len(pair[1]))
    missing = request.count - (len(nearest) - len(blocked))
    users: dict[str, list[Gpu]] = {}
    for gpu in blocked:
        users.setdefault(node.holders.get(gpu.id, ""), []).append(gpu)
    unwell = [_unwell(gpu, now) for gpu in users.pop("", ())]
    return f"lacks {gpus_of(missing)}: " + "; ".join(
        [*(_used(job, gpus, now) for job, gpus in users.items()), *unwell]
    )


_OF_GPUS: Final = {
    Stage.MODEL: _other_models,
    Stage.SIZE: _too_few,
    Stage.MEMORY: _too_small,
    Stage.COMPUTE_CAPABILITY: _too_old,
    Stage.HEALTH: _lacks,
    Stage.GPUS: _lacks,
}


def _of_share(request: Request, node: NodeCapacity, now: float, *, even_full: bool) -> str:
    """Describe what each GPU lacks for a share; with `even_full` as if no task held any."""
    groups = node.cards(request, even_full=even_full)
    able = {card.gpu.id for group in groups for card in group}
    unable = {gpu.id: words for gpu, words in _refusals(request, node, now, even_full=even_full)}
    missing = max(request.gpu.count - len(able), 1)
    by_reason: dict[str, list[GpuId]] = {}
    for gpu_id, words in unable.items():
        by_reason.setdefault(words, []).append(gpu_id)
    reasons = [f"{ids[0]}{_and_more(len(ids) - 1)} {words}" for words, ids in by_reason.items()]
    if len(reasons) > _MAX_GPUS:
        rest = sum(len(ids) for ids in list(by_reason.values())[_MAX_GPUS:])
        reasons = [*reasons[:_MAX_GPUS], f"and so on for {counted(rest, 'more GPU')}"]
    return f"lacks {counted(missing, 'GPU')} with room for its share: {'; '.join(reasons)}"


def asked_for(want: GpuRequest) -> str:
    """Return the GPUs of a task as text without their model: "2 GPUs", "0.25 GPUs", or the size of a share of each."""
    share = want.share
    if share is None:
        return gpus_of(want.count)
    if share.memory_mib is None and share.memory_milli == share.compute_milli:
        return gpus_of(number_of(want.count * share.compute_milli))
    memory = (
        f"{share.memory_milli / PER_PERCENT:g} %" if share.memory_mib is None else f"{share.memory_mib} MiB"
    )
    of_each = "" if want.count == 1 else " each"
    compute = f"{share.compute_milli / PER_PERCENT:g} % of compute"
    return f"a share of {gpus_of(want.count)} ({compute} and {memory} of memory{of_each})"


def _and_more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def _refusals(
    request: Request, node: NodeCapacity, now: float, *, even_full: bool
) -> Iterator[tuple[Gpu, str]]:
    """Yield each GPU on which a task gets no share, with the reason as a predicate about the GPU."""
    free = {gpu.id for gpu in (node.installed if even_full else node.gpus)}
    for gpu in request.gpu.suited(node.installed):
        holder = node.holders.get(gpu.id, "")
        if gpu.id not in free:
            state = "" if holder and gpu.health is Health.OK else _state(gpu, now)
            yield gpu, ", and ".join(filter(None, (state, f"is used by {holder}" if holder else "")))
            continue
        refusal = node.refusal(request, gpu, even_full=even_full)
        if refusal:
            yield gpu, f"{refusal} (it is shared by {holder})" if holder and not even_full else refusal


def _used(job: str, gpus: Sequence[Gpu], now: float) -> str:
    """Describe the holder of GPUs, and those among them that could not be used even without it."""
    words = f"{gpus[0].id} is used by {job}" if len(gpus) == 1 else f"{len(gpus)} are used by {job}"
    return ", and ".join([words, *(_unwell(gpu, now) for gpu in gpus if gpu.health is not Health.OK)])


def _unwell(gpu: Gpu, now: float) -> str:
    """Return a GPU with its health as text."""
    return f"{gpu.id} {_state(gpu, now)}"


def _state(gpu: Gpu, now: float) -> str:
    """Return the health of a GPU as text, with since when and why."""
    since = f" since {clock(gpu.since, now)}" if gpu.since else ""
    return f"is {gpu.health.value}{since}" + (f" ({gpu.reason})" if gpu.reason else "")
