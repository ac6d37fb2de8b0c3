"""Tasks that Mesos knows and the state does not: held, adopted by their labels, or ended by an operator's word.

The state that the scheduler started with can be older than they are. What they hold is counted, their jobs are not
launched beside them, and none is ended because it is not known.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine.effects import Kill, ListTasks
from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.tasks.resizing import changes, question
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.arrays.array import whose
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState, OnGpuFailure, OnMemberFailure
from mesos_gpu.model.saves import ForgetTask, SaveTrust
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Action, Task, TaskState, actions_of
from mesos_gpu.model.tasks.unknown import Label, Listed, Unknown
from mesos_gpu.policy.apps.healthcheck import of_scheduler
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.policy.tasks.blame import next_state
from mesos_gpu.policy.tasks.gang import SHOWN
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.mesos.labels import share_fields

LIST_AGAIN_S: Final = 5.0
MONITOR: Final = "gpu-monitor."  # how the ids of node monitors begin; a job's has a dash behind its name
_HELD: Final = tuple(
    state for state in TaskState if Action.HOLD in (actions_of(TaskState.ABSENT, state) or ())
)
_LIST: Final = "see them with: mesos-gpu tasks unknown list"


def is_monitor(task_id: TaskId) -> bool:
    """Whether it is a node monitor's, which another one replaces."""
    return task_id.startswith(MONITOR)


def state_to_hold(status: Status) -> TaskState | None:
    """Return the state in which a task is held that the engine does not know; None for a task that does not run."""
    new = next_state(status, None, kill_requested=True, sick_gpu=False)
    return new if new in _HELD else None


def hold(
    turn: Turn, task_id: TaskId, agent_id: AgentId, state: TaskState, listed: Listed | None = None
) -> None:
    """Take up a task of which nothing is known yet but that it is there."""
    node = turn.state.cluster.nodes.get(agent_id)
    task = Task(
        id=task_id,
        agent_id=agent_id,
        executor_id=task_id,
        job_id=JobId(task_id),  # until its labels say more
        state=state,
        launched_at=turn.now,
        heard_at=turn.now,
        hostname=node.hostname if node else "",
        agent_url=node.agent_url if node else "",
        unknown=Unknown(turn.now),
    )
    turn.put_task(task if listed is None else _described(turn, task, listed))


def on_listed(turn: Turn, tasks: Sequence[Listed]) -> None:
    """What the master says of all: describe what is held, hold what is new, and take up what a job waits for."""
    state = turn.state
    for listed in tasks:
        if is_monitor(listed.task_id):
            continue
        if covers.card_of(listed.task_id) is not None:
            _take_up_cover(turn, listed)
            continue
        known = state.work.tasks.get(listed.task_id)
        if listed.label is not None:
            _bump(turn, listed.label)
        if known is not None:
            if known.unknown is not None and known.unknown.listed is None:
                _replace(turn, known, _described(turn, known, listed))
            continue
        if new := state_to_hold(Status(listed.task_id, listed.state)):
            hold(turn, listed.task_id, listed.agent_id, new, listed)
    for task in [state.work.tasks[task_id] for task_id in state.work.unknown]:
        if (
            task.unknown is not None and task.unknown.listed is None
        ):  # whoever spoke of it, the master has none
            state.set_task(replace(task, state=TaskState.LOST))
            state.work.forget_task(task)
            turn.effects.append(ForgetTask(task.id))
    if state.mesos.doubtful:
        state.mesos.doubtful = False
        _ask_for_shares(turn)
        turn.effects.append(SaveTrust())
    _adopt_awaited(turn)


def _take_up_cover(turn: Turn, listed: Listed) -> None:
    """Let a task go on that holds a card: the state may know as little of the shares that it is held for."""
    if listed.task_id in turn.state.work.tasks:
        return
    if new := state_to_hold(Status(listed.task_id, listed.state)):
        covers.adopt(turn, listed.task_id, listed.agent_id, new)


def _ask_for_shares(turn: Turn) -> None:
    """Ask what tasks have that the state knows from before: they may have been resized since."""
    for task in [turn.state.work.tasks[task_id] for task_id in turn.state.work.live]:
        asked = question(task, turn.now)
        if asked is not task:
            turn.put_task(asked)


def on_tick(turn: Turn) -> None:
    """Ask for what is not described yet, and take up what has become possible."""
    state = turn.state
    bare = any(
        u is not None and u.listed is None for u in (state.work.tasks[i].unknown for i in state.work.unknown)
    )
    if (bare or state.mesos.doubtful) and turn.now - state.mesos.listing_at >= LIST_AGAIN_S:
        state.mesos.listing_at = turn.now
        turn.effects.append(ListTasks())
    if not state.mesos.doubtful:
        _adopt_awaited(turn)
    for task_id in state.work.unknown:
        task = state.work.tasks[task_id]
        if (
            task.kill_sent_at is not None
            and turn.now - task.kill_sent_at >= turn.settings.tasks.kill_resend_s
        ):
            _kill(turn, task)


def on_adopted(turn: Turn, task_id: TaskId) -> None:
    """An operator's word: its job has it, or one is made of its labels.

    Raises:
        NotFound: It is no unknown task.
        Conflict: Its labels say too little, or its job is served by another launch.
    """
    task = _held(turn, task_id)
    label = _label(task)
    if label is None:
        raise Conflict(
            f"{task_id} cannot be adopted: the master has no labels of it that say what it is",
            remedy=f"let it run to its end, or end it: mesos-gpu tasks unknown kill {task_id}",
        )
    round_ = _round(turn, label)
    if len(round_) < label.tasks:
        raise Conflict(
            f"{task_id} is one of {label.tasks} tasks that run together, and {len(round_)} of them are there",
            remedy=f"end it: mesos-gpu tasks unknown kill {task_id}",
        )
    job = turn.state.work.jobs.get(label.job_id)
    if job is not None and job.state is not JobState.PENDING:
        raise Conflict(
            f"{task_id} is of job {job.id}, which is {job.state.value} without it",
            remedy=f"end it: mesos-gpu tasks unknown kill {task_id}",
        )
    _adopt(turn, job or _job_of(turn, task, label), label, round_)


def on_killed(turn: Turn, task_id: TaskId) -> None:
    """An operator's word; repeated until it has ended.

    Raises:
        NotFound: It is no unknown task.
    """
    _kill(turn, _held(turn, task_id))


def _kill(turn: Turn, task: Task) -> None:
    turn.effects.append(Kill(task.id, task.agent_id))
    turn.put_task(replace(task, kill_sent_at=turn.now))


def _held(turn: Turn, task_id: TaskId) -> Task:
    if task_id not in turn.state.work.unknown:
        raise NotFound(f"there is no unknown task {task_id}", remedy=_LIST)
    return turn.state.work.tasks[task_id]


def _label(task: Task) -> Label | None:
    return task.unknown.listed.label if task.unknown and task.unknown.listed else None


def _described(turn: Turn, task: Task, listed: Listed) -> Task:
    assert task.unknown is not None
    label = listed.label
    task = replace(
        task,
        unknown=replace(task.unknown, listed=listed),
        hostname=task.hostname or listed.hostname,
        agent_url=task.agent_url or listed.agent_url,
    )
    if label is None:
        return task
    told = replace(
        task,
        job_id=label.job_id,
        gpus=label.gpus,
        share=label.share,
        ports=label.ports,
        attempt=label.attempt,
        rank=label.rank,
        launched_at=label.launched_at or task.launched_at,
        sealed=label.sealed,
    )
    return question(told, turn.now)


def _replace(turn: Turn, old: Task, new: Task) -> None:
    """Put a task in another's place; it may be of another job now."""
    if new.job_id != old.job_id:
        turn.state.work.forget_task(old)
    turn.put_task(new)


def _bump(turn: Turn, label: Label) -> None:
    """Mesos must never see a task id twice: the job's next launch comes after all that ran."""
    job = turn.state.work.jobs.get(label.job_id)
    if job is not None and job.launches < label.launch and job.state is JobState.PENDING:
        turn.put_job(replace(job, launches=label.launch))


def _round(turn: Turn, label: Label) -> list[Task]:
    """The unknown tasks of one launch, by rank."""
    held = (
        (turn.state.work.tasks[task_id], _label(turn.state.work.tasks[task_id]))
        for task_id in turn.state.work.unknown
    )
    tasks = [task for task, its in held if its and (its.job_id, its.launch) == (label.job_id, label.launch)]
    return sorted(tasks, key=lambda task: task.rank)


def _adopt_awaited(turn: Turn) -> None:
    """A job that waits to be launched, and is: it has what runs, and nobody need say so."""
    for task_id in list(turn.state.work.unknown):
        task = turn.state.work.tasks[task_id]
        label = _label(task)  # none after its launch was taken up
        job = turn.state.work.jobs.get(label.job_id) if label else None
        if label is None or job is None or task.kill_sent_at is not None:
            continue
        round_ = _round(turn, label)
        if (
            job.state is JobState.PENDING
            and not job.kill_requested
            and job.spec.tasks == label.tasks == len(round_)
            and job.launches <= label.launch
        ):
            _adopt(turn, job, label, round_)


def _adopt(turn: Turn, job: Job, label: Label, tasks: Sequence[Task]) -> None:
    first = tasks[0]
    for task in tasks:
        begun_at = task.launched_at if task.state is TaskState.RUNNING else None
        launch = label.launch if label.tasks > 1 else 0
        turn.put_task(replace(task, unknown=None, launch=launch, started_at=task.started_at or begun_at))
    # Its executor may have said already what it has by now.
    resized = changes(label.share, first.share) if label.share and first.share else {}
    turn.put_job(
        replace(
            job,
            spec=replace(job.spec, **resized) if resized else job.spec,
            state=SHOWN[first.state],
            task_id=first.id,
            launches=label.launch,
            attempts=max(job.attempts, label.attempt - 1),
            started_at=first.started_at or first.launched_at,
            message=f"adopted: it runs on {', '.join(dict.fromkeys(task.hostname for task in tasks))}",
        )
    )


def _of_array(turn: Turn, job_id: JobId) -> dict[str, Any]:
    """What says that a job is a task of an array that is known: no other one is made for its index."""
    of = whose(job_id)
    array = turn.state.work.arrays.get(of[0]) if of is not None else None
    if of is None or array is None or array.indexes.position(of[1]) is None:
        return {}
    return {"array": array.id, "index": of[1]}


def _job_of(turn: Turn, task: Task, label: Label) -> Job:
    """A job of which only the labels are left. It cannot start again: its command is not in them, by intent. An
    instance of an app that is as it was is whole."""
    listed = (
        task.unknown.listed if task.unknown and task.unknown.listed else Listed(task.id, task.agent_id, "")
    )
    spec = JobSpec(
        name=listed.name or label.job_id,
        cpus=listed.cpus,
        mem_mib=listed.mem_mib,
        gpus=len(label.gpus),
        user=label.user,
        labels=listed.labels,
        queue=label.queue,
        app=label.app,
        tasks=label.tasks,
        kill_grace_s=label.kill_grace_s,
        on_gpu_failure=OnGpuFailure.NOTIFY,
        on_member_failure=OnMemberFailure.FAIL,
        **share_fields(label),
    )
    job = Job(
        id=label.job_id,
        spec=spec,
        submitted_at=label.launched_at or turn.now,
        sequence=turn.state.work.next_sequence,
        owner=label.owner,
        adopted=True,
        **_of_array(turn, label.job_id),
    )
    catalog = turn.state.apps.catalog
    info = catalog.versions.get(label.app or "") if label.app_version is not None else None
    if info is None:
        return job
    job = replace(job, app_version=label.app_version)
    app = next(app for app in catalog.root.all_apps() if app.id == label.app)
    whole = job_of(app, gpu_options(app), version=stamp(info.last_config_change_at))
    if info.last_config_change_at != label.app_version or isinstance(whole, str):
        return job
    checked = bool(of_scheduler(app.health_checks))
    return replace(job, spec=whole, adopted=False, checked=checked, proves_ready=bool(app.readiness_checks))
