"""Why a job waits: what each node lacks now, and what it could never give. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mesos_gpu.model.driver import as_new_as, version_of
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.job import Job, JobState
from mesos_gpu.model.queue import Estimate
from mesos_gpu.model.why import Nearest, NodeReasons, Why
from mesos_gpu.policy.placement import Ask


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the explanation sees it."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[Gpu, ...]
    holders: dict[GpuId, str] = field(default_factory=dict)  # GPU to the name of what holds it
    unusable: str = ""  # why none of its GPUs can be used: lost, no report …
    drained: str = ""  # why nothing at all may start there
    cpus: float | None = None  # what its held offers leave; None: no offer of it is held
    mem_mib: float | None = None
    driver: str | None = None  # as its monitor reported it
    kept: str = ""  # for whom it keeps what this job may not take
    barred: str = ""  # which constraint keeps the job off it now
    ruled_out: str = ""  # which one does so whatever runs where


@dataclass(frozen=True, slots=True)
class QueueView:
    """The job's place and its queue as the explanation sees them."""

    position: int | None = None  # from 0
    limit: str = ""  # why its queue's limit keeps it waiting
    never: str = ""  # why that limit would keep it waiting for ever
    estimate: Estimate | None = None


def explain(job: Job, ask: Ask, nodes: Sequence[NodeView], *, queue: QueueView, now: float) -> Why:
    """The answer for one job.

    Args:
        job: The job.
        ask: What one launch of it needs.
        nodes: Every node that is known.
        queue: Its place in the queue.
        now: Seconds since the epoch.
    """
    if job.state is not JobState.PENDING:
        return Why(job.id, job.state, _not_pending(job), None, can_ever_run=True)
    found = [NodeReasons(n.hostname, n.agent_id, tuple(_reasons(ask, n))) for n in nodes]
    open_nodes = [node for node in nodes if not node.ruled_out]
    # A report may come yet.
    unknown = not nodes or any(node.unusable and not node.gpus for node in open_nodes)
    able = not queue.never and _is_able(ask, open_nodes, unknown) and (bool(open_nodes) or not nodes)
    nearest = _nearest(ask, open_nodes or nodes)
    if job.not_before > now:
        summary = f"waits {job.not_before - now:.1f} s before its next launch: {job.message}"
    elif queue.never or queue.limit:
        summary = queue.never or f"waits for its queue: {queue.limit}"
    elif not nodes:
        summary = "no agent has offered anything yet"
    elif not open_nodes:
        first = min(nodes, key=lambda node: node.hostname)
        summary = f"no node meets its constraints; {first.hostname} {first.ruled_out}"
    elif not able:
        summary = _never(job, ask, open_nodes)
    elif any(not reasons.reasons for reasons in found):
        summary = "it fits now, and is about to be launched"
    else:
        summary = f"waits for {_need(job, ask)}"
        summary += _fragmented(ask, open_nodes)
        if nearest is not None:
            summary += f"; nearest is {nearest.hostname}, which {nearest.missing}"
    return Why(
        job.id,
        job.state,
        summary,
        queue.position,
        can_ever_run=able,
        nodes=tuple(found),
        nearest=nearest,
        estimate=queue.estimate,
    )


def _fragmented(ask: Ask, nodes: Sequence[NodeView]) -> str:
    """If there are as many free GPUs as it needs, and on no node together."""
    usable = [node for node in nodes if not node.unusable and not node.drained]
    free = [len([gpu for gpu in _of_model(ask, node.gpus) if _free(gpu, node)]) for node in usable]
    if not ask.gpus or sum(free) < ask.gpus or max(free) >= ask.gpus:
        return ""
    holding = [count for count in free if count]
    return f"; {sum(free)} are free, on {len(holding)} nodes with at most {max(free)} each: fragmentation"


def _is_able(ask: Ask, nodes: Sequence[NodeView], unknown: bool) -> bool:
    # Without a need of GPUs or a driver, nothing is known of a node that could keep it off for ever.
    return (not ask.gpus and ask.min_driver is None) or unknown or any(_could(ask, n) for n in nodes)


def _not_pending(job: Job) -> str:
    said = job.message and job.message != job.state.value
    return f"it is {job.state.value}" + (f": {job.message}" if said else "")


def _need(job: Job, ask: Ask) -> str:
    parts = [f"{ask.cpus:g} cpus", f"{ask.mem_mib:g} MiB"]
    if ask.gpus:
        kind = f" of model {' or '.join(ask.models)}" if ask.models else ""
        parts.append(f"{ask.gpus} GPU{'s' if ask.gpus > 1 else ''}{kind}")
    if ask.min_driver:
        parts.append(f"driver {ask.min_driver} or newer{_of_image(job, ask)}")
    return ", ".join(parts)


def _of_image(job: Job, ask: Ask) -> str:
    return f" (the image needs {job.image_needs})" if _is_of_image(job, ask) else ""


def _is_of_image(job: Job, ask: Ask) -> bool:
    return bool(job.image_needs) and ask.min_driver == job.learnt_min_driver


def _enough(ask: Ask, node: NodeView) -> bool:
    return len(_of_model(ask, node.gpus)) >= ask.gpus


def _could(ask: Ask, node: NodeView) -> bool:
    """Whether the node would do if it were empty and well."""
    return _enough(ask, node) and as_new_as(node.driver, ask.min_driver)


def _of_model(ask: Ask, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The largest set of one acceptable model: a job never gets a mix of listed models."""
    if not ask.models:
        return list(gpus)
    groups = [[gpu for gpu in gpus if gpu.model == model] for model in ask.models]
    return max(groups, key=len)


def _never(job: Job, ask: Ask, nodes: Sequence[NodeView]) -> str:
    if any(_enough(ask, node) for node in nodes):
        return _never_by_driver(job, ask, nodes)
    models = sorted({gpu.model for node in nodes for gpu in node.gpus})
    if not models:
        return f"asks for {ask.gpus} GPUs, and no node reports any"
    if ask.models and not set(ask.models) & set(models):
        return f"no node has a GPU of model {' or '.join(ask.models)}; there are {', '.join(models)}"
    best = min(nodes, key=lambda node: (-len(_of_model(ask, node.gpus)), node.hostname))
    kind = f" of model {' or '.join(ask.models)}" if ask.models else ""
    return (
        f"asks for {ask.gpus} GPUs{kind} on one node, more than any node has; "
        f"the largest is {best.hostname} with {len(_of_model(ask, best.gpus))}"
    )


def _never_by_driver(job: Job, ask: Ask, nodes: Sequence[NodeView]) -> str:
    best = _newest(ask, nodes)
    has = f"{best.hostname} has {best.driver}" if best.driver else "no node reports a driver"
    if _is_of_image(job, ask):
        return f"the image needs {job.image_needs}, driver {ask.min_driver}; {has}"
    kind = " with the GPUs that it asks for" if ask.gpus else ""
    newest = f"the newest is {best.driver} on {best.hostname}" if best.driver else has
    return f"no node{kind} has driver {ask.min_driver} or newer; {newest}"


def _newest(ask: Ask, nodes: Sequence[NodeView]) -> NodeView:
    """The nearest miss of those that fail for their driver alone."""
    enough = [node for node in nodes if _enough(ask, node)]
    return max(sorted(enough, key=lambda node: node.hostname), key=lambda node: version_of(node.driver) or ())


def _reasons(ask: Ask, node: NodeView) -> list[str]:
    if node.drained:
        return [node.drained]
    reasons = [node.ruled_out or node.barred] if node.ruled_out or node.barred else []
    if not as_new_as(node.driver, ask.min_driver):
        has = f"has driver {node.driver}" if node.driver else "reports no NVIDIA driver"
        reasons.append(f"{has}, and {ask.min_driver} is the oldest that will do")
    if ask.gpus:
        reasons += _gpu_reasons(ask, node)
    if node.cpus is not None and node.cpus < ask.cpus:
        reasons.append(f"lacks {ask.cpus - node.cpus:g} cpus")
    if node.mem_mib is not None and node.mem_mib < ask.mem_mib:
        reasons.append(f"lacks {ask.mem_mib - node.mem_mib:g} MiB of memory")
    if node.cpus is None and not reasons:
        reasons.append("has made no offer: it is full, or its offer is on the way")
    if node.kept and not reasons:
        reasons.append(node.kept)
    return reasons


def _gpu_reasons(ask: Ask, node: NodeView) -> list[str]:
    if node.unusable:
        return [node.unusable]
    fit = _of_model(ask, node.gpus)
    if len(fit) < ask.gpus:
        kind = f" of model {' or '.join(ask.models)}" if ask.models else ""
        return [f"has only {len(fit)} GPU{'' if len(fit) == 1 else 's'}{kind}"]
    missing = ask.gpus - len([gpu for gpu in fit if _free(gpu, node)])
    if missing <= 0:
        return []
    blocked = [_blocked(gpu, node) for gpu in fit if not _free(gpu, node)]
    return [f"lacks {missing} free GPU{'s' if missing > 1 else ''}: " + "; ".join(blocked)]


def _free(gpu: Gpu, node: NodeView) -> bool:
    return gpu.health is Health.OK and gpu.id not in node.holders


def _blocked(gpu: Gpu, node: NodeView) -> str:
    if gpu.id in node.holders:
        return f"{gpu.id} is used by {node.holders[gpu.id]}"
    return f"{gpu.id} is {gpu.health.value}" + (f" ({gpu.reason})" if gpu.reason else "")


def _nearest(ask: Ask, nodes: Sequence[NodeView]) -> Nearest | None:
    able = [node for node in nodes if _could(ask, node)]
    if not able and any(_enough(ask, node) for node in nodes):
        able = [_newest(ask, nodes)]
    ranked = sorted(able, key=lambda node: (_distance(ask, node), node.hostname))
    for node in ranked[:1]:
        return Nearest(node.hostname, "; ".join(_reasons(ask, node)) or "nothing")
    return None


def _distance(ask: Ask, node: NodeView) -> tuple[bool, bool, int, float]:
    free = (
        0
        if node.unusable or node.drained
        else len([gpu for gpu in _of_model(ask, node.gpus) if _free(gpu, node)])
    )
    return (
        bool(node.drained),
        bool(node.barred),
        max(ask.gpus - free, 0),
        max(ask.cpus - (node.cpus or 0.0), 0.0),
    )
