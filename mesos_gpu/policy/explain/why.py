"""Why a job waits: what each node lacks now, what all lack together, and what they could never give. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import Nearest, NodeReasons, Stage, Why
from mesos_gpu.policy.cluster.placement import Ask
from mesos_gpu.policy.explain.estimate import gpus_of
from mesos_gpu.policy.explain.funnel import Apart, Funnel, Passage, funnel
from mesos_gpu.policy.explain.hurdles import NodeView, free_here, of_model
from mesos_gpu.policy.explain.never import could, has_enough, is_able, is_of_image, never, newest_driver


@dataclass(frozen=True, slots=True)
class QueueView:
    """The job's place and its queue as the explanation sees them."""

    position: int | None = None  # from 0
    limit: str = ""  # why its queue's limit keeps it waiting
    never: str = ""  # why that limit would keep it waiting for ever
    estimate: Estimate | None = None
    ending: tuple[str, ...] = ()  # jobs that are being ended for it


def explain(
    job: Job,
    ask: Ask,
    nodes: Sequence[NodeView],
    *,
    queue: QueueView,
    now: float,
    apart: Apart | None = None,
) -> Why:
    """The answer for one job.

    Args:
        job: The job.
        ask: What one task of it needs.
        nodes: Every node that is known.
        queue: Its place in the queue.
        now: Seconds since the epoch.
        apart: What the job's constraints between its own tasks leave of the room for them; None: it has none.
    """
    if job.state is not JobState.PENDING:
        return Why(job.id, job.state, _not_pending(job), None, can_ever_run=True)
    tasks = job.spec.tasks
    limit = queue.never or queue.limit
    found = funnel(ask, nodes, now=now, tasks=tasks, limit=limit, apart=apart, ports=job.spec.ports)
    open_nodes = [node for node in nodes if not node.ruled_out]
    able = not queue.never and is_able(ask, open_nodes, tasks) and (bool(open_nodes) or not nodes)
    nearest = _nearest(ask, found, open_nodes or nodes)
    return Why(
        job.id,
        job.state,
        _summary(job, ask, found, queue, now, open_nodes=open_nodes, able=able, nearest=nearest),
        queue.position,
        can_ever_run=able,
        nodes=tuple(
            NodeReasons(p.node.hostname, p.node.agent_id, _words(p), p.stage) for p in found.passages
        ),
        nearest=nearest,
        estimate=queue.estimate,
        funnel=found.stages,
        tasks_fit=found.tasks_fit if tasks > 1 else None,
    )


def _not_pending(job: Job) -> str:
    said = job.message and job.message != job.state.value
    return f"it is {job.state.value}" + (f": {job.message}" if said else "")


def _words(passage: Passage) -> tuple[str, ...]:
    return tuple(hurdle.words for hurdle in passage.hurdles)


def _summary(
    job: Job,
    ask: Ask,
    found: Funnel,
    queue: QueueView,
    now: float,
    *,
    open_nodes: Sequence[NodeView],
    able: bool,
    nearest: Nearest | None,
) -> str:
    """What matters most, in one sentence."""
    if job.not_before > now:
        return f"waits {job.not_before - now:.1f} s before its next launch: {job.message}"
    if queue.never or queue.limit:
        return queue.never or f"waits for its queue: {queue.limit}"
    if not found.passages:
        return "no agent has offered anything yet"
    if not open_nodes:
        first = found.passages[0].node
        return f"no node meets its constraints; {first.hostname} {first.ruled_out}"
    if not able:
        return never(job, ask, open_nodes)
    if queue.ending:
        return f"waits for the end of {', '.join(queue.ending)}, of lower priority, which was asked for to make room"
    if found.left:
        return "it fits now, and is about to be launched"
    fit = f"; {found.tasks_fit} of {job.spec.tasks} tasks fit" if job.spec.tasks > 1 else ""
    near = f"; nearest is {nearest.hostname}, which {nearest.missing}" if nearest else ""
    scattered = f"; {found.scattered}: fragmentation" if found.scattered else ""
    return f"waits for {_need(job, ask)}{fit}{scattered}{near}"


def _need(job: Job, ask: Ask) -> str:
    parts = [f"{ask.cpus:g} cpus", f"{ask.mem_mib:g} MiB"]
    if ask.disk_mib:
        parts.append(f"{ask.disk_mib:g} MiB of disk")
    if ask.gpus:
        memory = f" with {ask.gpu_memory_mib} MiB" if ask.gpu_memory_mib else ""
        parts.append(f"{gpus_of(ask.gpus)}{of_model(ask)}{memory}")
    if ask.compute_capability:
        parts.append(f"compute capability {ask.compute_capability} or newer")
    fixed = sorted({wish.host_port for wish in job.spec.ports if wish.host_port})
    if fixed:
        parts.append(f"port{'' if len(fixed) == 1 else 's'} {', '.join(map(str, fixed))}")
    if ask.min_driver:
        image = f" (the image needs {job.image_needs})" if is_of_image(job, ask) else ""
        parts.append(f"driver {ask.min_driver} or newer{image}")
    needed = ", ".join(parts)
    return f"{job.spec.tasks} tasks of {needed} each" if job.spec.tasks > 1 else needed


def _nearest(ask: Ask, found: Funnel, nodes: Sequence[NodeView]) -> Nearest | None:
    """Of the nodes that could do one day; those that have room for some of its tasks already come last."""
    able = {node.agent_id for node in nodes if could(ask, node)}
    if not able and any(has_enough(ask, node) for node in nodes):
        able = {newest_driver(ask, nodes).agent_id}
    near = [passage for passage in found.passages if passage.node.agent_id in able]
    if not near:
        return None

    def order(passage: Passage) -> tuple[bool, bool, bool, bool, int, float, float, str]:
        return passage.stage is Stage.TASKS, bool(passage.hurdles), *_distance(ask, passage.node)

    first = min(near, key=order)
    return Nearest(first.node.hostname, "; ".join(_words(first)) or "has room for it")


def _distance(ask: Ask, node: NodeView) -> tuple[bool, bool, int, float, float, str]:
    away = bool(node.drained or node.lost)
    free = 0 if away or node.silent else free_here(ask, node)
    lacks_cpus = max(ask.cpus - (node.cpus or 0.0), 0.0)
    lacks_mem = max(ask.mem_mib - (node.mem_mib or 0.0), 0.0)
    return away, bool(node.barred), max(ask.gpus - free, 0), lacks_cpus, lacks_mem, node.hostname
