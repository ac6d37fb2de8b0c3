"""Explanation of why a job waits: what each node and all nodes together lack, now or in any case. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import GuaranteeShare, Nearest, NodeReasons, Stage, Why
from mesos_gpu.model.resources import AMOUNTS, NOTHING
from mesos_gpu.model.words import clock, counted
from mesos_gpu.policy.capacity.fit import largest
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.estimate import span
from mesos_gpu.policy.explain.funnel import Apart, Funnel, Passage, funnel
from mesos_gpu.policy.explain.hurdles import asked_for, free_here, of_model
from mesos_gpu.policy.explain.levels import NeededLevel, most_room, never_at
from mesos_gpu.policy.explain.never import could, has_enough, is_able, is_of_image, never, newest_driver
from mesos_gpu.policy.explain.owed import owed_words, room_words

_ENDS: Final = {
    JobState.FINISHED: "it has finished",
    JobState.FAILED: "it has failed",
    JobState.KILLED: "it was killed",
    JobState.KILLING: "it is being killed",
}
_OF_QUEUE: Final = (Stage.QUEUE_LIMIT, Stage.HOLD)


@dataclass(frozen=True, slots=True)
class QueueView:
    """Place of the job, and the state of its queue, for an explanation."""

    position: int | None = None  # from 0
    limit: str = ""  # limit or rule of its queue, user or class that keeps it waiting; "" without one
    stage: Stage = Stage.QUEUE_LIMIT  # stage of `limit`
    never: str = ""  # why that limit would keep it waiting for ever; "" if it would not
    estimate: Estimate | None = None
    ending: tuple[str, ...] = ()  # jobs that are being ended for it
    ended_by: float | None = None  # latest end of `ending`, seconds since the epoch; None if unknown
    owed: GuaranteeShare | None = None  # guarantee that applies to it; None if none does


def explain(
    job: Job,
    request: Request,
    nodes: Sequence[NodeCapacity],
    *,
    queue: QueueView,
    now: float,
    apart: Apart | None = None,
    level: NeededLevel | None = None,
) -> Why:
    """Return the explanation for one job.

    Args:
        job: Job to explain.
        request: Requirements of one task.
        nodes: Nodes that are known.
        queue: Place of the job, and the state of its queue.
        now: Seconds since the epoch.
        apart: Function that restricts the room for tasks by the job's constraints between its own tasks; None without
            any.
        level: Level of the fabric that the job requires; None if it requires none.
    """
    if job.state is not JobState.PENDING:
        return Why(job.id, job.state, _not_pending(job), None, can_ever_run=True)
    tasks = job.spec.tasks
    limit = queue.never or queue.limit
    request = replace(request, tasks=tasks, ports=job.spec.ports)
    passed = funnel(request, nodes, now=now, limit=limit, stage=queue.stage, apart=apart, owed=queue.owed)
    open_nodes = [node for node in nodes if not node.ruled_out]
    able = not queue.never and is_able(request, open_nodes) and (bool(open_nodes) or not nodes)
    too_small = never_at(level, request, open_nodes) if able and level is not None else ""
    able = able and not too_small
    nearest = _nearest(request, passed, open_nodes or nodes)
    at_level = most_room(level, request, passed.passages) if level is not None and not passed.left else ""
    return Why(
        job.id,
        job.state,
        _summary(
            job,
            request,
            passed,
            queue,
            now,
            open_nodes=open_nodes,
            able=able,
            too_small=too_small,
            nearest=nearest,
            at_level=at_level,
        ),
        queue.position,
        can_ever_run=able,
        nodes=tuple(
            NodeReasons(p.node.hostname, p.node.agent_id, _words(p), p.stage) for p in passed.passages
        ),
        nearest=nearest,
        estimate=_estimate(queue.estimate, passed, now),
        funnel=passed.stages,
        tasks_fit=passed.tasks_fit if tasks > 1 else None,
    )


def _estimate(estimate: Estimate | None, passed: Funnel, now: float) -> Estimate | None:
    """Return the estimate of a start, without its time if only ports, which estimates ignore, keep the job waiting."""
    if estimate is None or estimate.at is None or estimate.at > now or passed.left:
        return estimate
    lacking = [
        p for p in passed.passages if p.hurdles and {hurdle.stage for hurdle in p.hurdles} == {Stage.PORTS}
    ]
    if not lacking:
        return estimate
    first = lacking[0]
    return Estimate(
        None, f"ports of {first.node.hostname} have no known end of use: it {first.hurdles[0].words}"
    )


def _not_pending(job: Job) -> str:
    """Return the state of a job that does not wait, with its message."""
    has_message = job.message and job.message != job.state.value
    return state_words(job.state) + (f": {job.message}" if has_message else "")


def state_words(state: JobState) -> str:
    """Return the state of a job that does not wait, as text."""
    return _ENDS.get(state) or f"it is {state.value}"


def _words(passage: Passage) -> tuple[str, ...]:
    return tuple(hurdle.words for hurdle in passage.hurdles)


def _summary(
    job: Job,
    request: Request,
    passed: Funnel,
    queue: QueueView,
    now: float,
    *,
    open_nodes: Sequence[NodeCapacity],
    able: bool,
    too_small: str,
    nearest: Nearest | None,
    at_level: str,
) -> str:
    """Return the main reason in one sentence."""
    if job.not_before > now:
        return f"waits {job.not_before - now:.1f} s before its next launch: {job.message}"
    if queue.never or queue.limit:
        waits = "waits for its queue" if queue.stage in _OF_QUEUE else "waits"
        return queue.never or f"{waits}: {queue.limit}"
    if not passed.passages:
        return "no agent has made an offer yet"
    if not open_nodes:
        first = passed.passages[0].node
        return f"no node meets its constraints; {first.hostname} {first.ruled_out}"
    if not able:
        return too_small or never(job, request, open_nodes)
    if queue.ending:
        return f"preempts {', '.join(queue.ending)}{_ends_by(queue, now)}"
    if passed.left:
        return "it fits now, and is about to be launched"
    if turn := _turn(passed):
        return turn
    fit = f"; {passed.tasks_fit} of {job.spec.tasks} tasks fit" if job.spec.tasks > 1 else ""
    fit += f"; {at_level}" if at_level else ""
    owed = queue.owed
    if owed is not None and owed.seated:
        guarantee = owed_words(owed, passed.free, now)
        return f"waits for {_need(job, request)}, guaranteed by queue {owed.queue}{fit}: {guarantee}"
    near = f"; nearest is {nearest.hostname}, which {nearest.missing}" if nearest else ""
    scattered = f"; {passed.scattered}: fragmentation" if passed.scattered else ""
    borrows = "" if owed is None else f"; {_borrows(owed, now)}"
    return f"waits for {_need(job, request)}{fit}{scattered}{near}{borrows}"


def _ends_by(queue: QueueView, now: float) -> str:
    """Return by when the victims have ended, in words; "" if that is unknown."""
    if queue.ended_by is None:
        return ""
    verb = "ends" if len(queue.ending) == 1 else "end"
    left_s = queue.ended_by - now
    left = f" (in {span(left_s)})" if left_s >= 1 else ""
    return f", which {verb} by {clock(queue.ended_by, now)}{left}"


def _turn(passed: Funnel) -> str:
    """Return the text for a job that waits for its turn to be launched on a node; "" if it waits for something else."""
    paced = [passage.node for passage in passed.passages if passage.stage is Stage.PACE]
    if not paced:
        return ""
    more = f" (and on {counted(len(paced) - 1, 'more node')})" if len(paced) > 1 else ""
    return f"waits for its turn on {paced[0].hostname}{more}: {paced[0].paced}"


def _borrows(owed: GuaranteeShare, now: float) -> str:
    """Return that a job has no place in a guarantee, why, and what is freed for it all the same."""
    room = f"; {room_words(owed.room, now)}" if owed.room is not None else ""
    if owed.too_large:
        why = f"what queue {owed.queue} is guaranteed has no room for it even when it is all free"
        return f"it borrows, as {why}{room}"
    return f"it borrows, as nothing that queue {owed.queue} is guaranteed is free for it{room}"


def _need(job: Job, request: Request) -> str:
    """Return the requirements of a job as text."""
    executor_mib = request.resources.mem_mib - job.spec.mem_mib
    parts = [
        f"{value:g} {amount.of_request}"
        for amount, value in zip(AMOUNTS, job.spec.resources, strict=True)
        if amount.of_request and (value or amount.always)
    ]
    if executor_mib > 0:
        parts[1] += f" and {executor_mib:g} MiB for its executor"
    want = request.gpu
    if want.count:
        memory = f" with {want.memory_mib} MiB" if want.memory_mib else ""
        parts.append(f"{asked_for(want)}{of_model(want)}{memory}")
    if want.compute_capability:
        parts.append(f"compute capability {want.compute_capability} or newer")
    fixed = sorted({wish.host_port for wish in job.spec.ports if wish.host_port})
    if fixed:
        parts.append(f"port{'' if len(fixed) == 1 else 's'} {', '.join(map(str, fixed))}")
    if request.min_driver:
        image = f" (the image needs {job.image_needs})" if is_of_image(job, request) else ""
        parts.append(f"driver {request.min_driver} or newer{image}")
    needed = ", ".join(parts)
    return f"{job.spec.tasks} tasks of {needed} each" if job.spec.tasks > 1 else needed


def _nearest(request: Request, passed: Funnel, nodes: Sequence[NodeCapacity]) -> Nearest | None:
    """Return the node that lacks least, among those that could ever run the job.

    Nodes that already have room for some of its tasks come last.
    """
    able = {node.agent_id for node in nodes if could(request, node)}
    if not able and any(has_enough(request, node) for node in nodes):
        able = {newest_driver(request, nodes).agent_id}
    near = [passage for passage in passed.passages if passage.node.agent_id in able]
    if not near:
        return None

    def order(passage: Passage) -> tuple[bool, bool, bool, bool, int, float, float, str]:
        return passage.stage is Stage.TASKS, bool(passage.hurdles), *_distance(request, passage)

    first = min(near, key=order)
    return Nearest(first.node.hostname, "; ".join(_words(first)) or "has room for it")


def _distance(request: Request, passage: Passage) -> tuple[bool, bool, int, float, float, str]:
    """Return the key by which the nearest node is chosen: the lowest lacks least."""
    node = passage.node
    away = bool(node.drained or node.lost)
    free = 0 if away or node.silent else _free(request, passage)
    lacks = (node.free if node.offered else NOTHING).lacking(request.resources)
    return away, bool(node.barred), max(request.gpu.count - free, 0), lacks.cpus, lacks.mem_mib, node.hostname


def _free(request: Request, passage: Passage) -> int:
    """Return how many GPUs a task could have now, as a whole or in shares."""
    if request.gpu.share is None:
        return free_here(request.gpu, passage.node) if passage.free is None else passage.free
    return largest([card.gpu for card in group] for group in passage.node.cards(request))
