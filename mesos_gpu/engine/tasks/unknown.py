"""Tasks that Mesos knows and the state does not: held, adopted by their labels, or ended by an operator.

The state at the start of the scheduler can be older than these tasks. What they hold is counted, their jobs are not
launched again beside them, and no task is ended only because it is unknown.
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
MONITOR: Final = "gpu-monitor."  # prefix of ids of node monitors; ids of jobs have a dash after the name
_HELD: Final = tuple(
    state for state in TaskState if Action.HOLD in (actions_of(TaskState.ABSENT, state) or ())
)
_LIST: Final = "list them with: mesos-gpu tasks unknown list"


def is_monitor(task_id: TaskId) -> bool:
    """Return whether a task id is that of a node monitor, which another one can replace."""
    return task_id.startswith(MONITOR)


def state_to_hold(status: Status) -> TaskState | None:
    """Return the state in which a task is held that the engine does not know; None for a task that does not run."""
    new = next_state(status, None, kill_requested=True, sick_gpu=False)
    return new if new in _HELD else None


def hold(
    turn: Turn, task_id: TaskId, agent_id: AgentId, state: TaskState, listed: Listed | None = None
) -> None:
    """Add a task to the state of which only its id, agent and state are known, and its labels if `listed` has them."""
    node = turn.state.cluster.nodes.get(agent_id)
    task = Task(
        id=task_id,
        agent_id=agent_id,
        executor_id=task_id,
        job_id=JobId(task_id),  # until its labels are known
        state=state,
        launched_at=turn.now,
        heard_at=turn.now,
        hostname=node.hostname if node else "",
        agent_url=node.agent_url if node else "",
        unknown=Unknown(turn.now),
    )
    turn.put_task(task if listed is None else _described(turn, task, listed))


def on_listed(turn: Turn, tasks: Sequence[Listed]) -> None:
    """Apply the master's list of all tasks: describe held tasks, hold new ones, and adopt those that jobs wait for."""
    state = turn.state
    for listed in tasks:
        if is_monitor(listed.task_id):
            continue
        if covers.card_of(listed.task_id) is not None:
            _take_up_cover(turn, listed)
            continue
        known_task = state.work.tasks.get(listed.task_id)
        if listed.label is not None:
            _bump(turn, listed.label)
        if known_task is not None:
            if known_task.unknown is not None and known_task.unknown.listed is None:
                _replace(turn, known_task, _described(turn, known_task, listed))
            continue
        if new := state_to_hold(Status(listed.task_id, listed.state)):
            hold(turn, listed.task_id, listed.agent_id, new, listed)
    for task in [state.work.tasks[task_id] for task_id in state.work.unknown]:
        if task.unknown is not None and task.unknown.listed is None:  # the master does not know the task
            state.set_task(replace(task, state=TaskState.LOST))
            state.work.forget_task(task)
            turn.effects.append(ForgetTask(task.id))
    if state.mesos.doubtful:
        state.mesos.doubtful = False
        _ask_for_shares(turn)
        turn.effects.append(SaveTrust())
    _adopt_awaited(turn)


def _take_up_cover(turn: Turn, listed: Listed) -> None:
    """Adopt a cover task, as the state may also lack the shares that it covers."""
    if listed.task_id in turn.state.work.tasks:
        return
    if new := state_to_hold(Status(listed.task_id, listed.state)):
        covers.adopt(turn, listed.task_id, listed.agent_id, new)


def _ask_for_shares(turn: Turn) -> None:
    """Ask the executors of known tasks for their shares, which may have been resized since the state was saved."""
    for task in [turn.state.work.tasks[task_id] for task_id in turn.state.work.live]:
        task_with_question = question(task, turn.now)
        if task_with_question is not task:
            turn.put_task(task_with_question)


def on_tick(turn: Turn) -> None:
    """Request descriptions that are missing, adopt tasks that jobs wait for, and repeat kills."""
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
    """Adopt a task on an operator's request: for its job, or for a job made from its labels.

    Raises:
        NotFound: The task is not an unknown task.
        Conflict: Its labels are incomplete, or its job has another launch.
    """
    task = _held(turn, task_id)
    label = _label(task)
    if label is None:
        raise Conflict(
            f"{task_id} cannot be adopted: the master has no labels that describe its job",
            remedy=f"let it run to its end, or end it: mesos-gpu tasks unknown kill {task_id}",
        )
    round_ = _round(turn, label)
    if len(round_) < label.tasks:
        raise Conflict(
            f"{task_id} is one of {label.tasks} tasks that run together, and only {len(round_)} of them are known",
            remedy=f"end it: mesos-gpu tasks unknown kill {task_id}",
        )
    job = turn.state.work.jobs.get(label.job_id)
    if job is not None and job.state is not JobState.PENDING:
        raise Conflict(
            f"{task_id} cannot be adopted: its job {job.id} is {job.state.value} already, without this task",
            remedy=f"end it: mesos-gpu tasks unknown kill {task_id}",
        )
    _adopt(turn, job or _job_of(turn, task, label), label, round_)


def on_killed(turn: Turn, task_id: TaskId) -> None:
    """Kill an unknown task on an operator's request; `on_tick` repeats the kill until the task has ended.

    Raises:
        NotFound: The task is not an unknown task.
    """
    _kill(turn, _held(turn, task_id))


def _kill(turn: Turn, task: Task) -> None:
    """Kill an unknown task, and record when."""
    turn.effects.append(Kill(task.id, task.agent_id))
    turn.put_task(replace(task, kill_sent_at=turn.now))


def _held(turn: Turn, task_id: TaskId) -> Task:
    """Return an unknown task.

    Raises:
        NotFound: The task is not an unknown task.
    """
    if task_id not in turn.state.work.unknown:
        raise NotFound(f"there is no unknown task {task_id}", remedy=_LIST)
    return turn.state.work.tasks[task_id]


def _label(task: Task) -> Label | None:
    """Return the labels of a held task; None if the master has none."""
    return task.unknown.listed.label if task.unknown and task.unknown.listed else None


def _described(turn: Turn, task: Task, listed: Listed) -> Task:
    """Return a held task with its description by the master: host, and job by its labels."""
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
    labelled = replace(
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
    return question(labelled, turn.now)


def _replace(turn: Turn, old: Task, new: Task) -> None:
    """Replace a task; the new one may belong to another job."""
    if new.job_id != old.job_id:
        turn.state.work.forget_task(old)
    turn.put_task(new)


def _bump(turn: Turn, label: Label) -> None:
    """Raise the launch count of a pending job above all launches that ran, as Mesos must never see a task id twice."""
    job = turn.state.work.jobs.get(label.job_id)
    if job is not None and job.launches < label.launch and job.state is JobState.PENDING:
        turn.put_job(replace(job, launches=label.launch))


def _round(turn: Turn, label: Label) -> list[Task]:
    """Return the unknown tasks of one launch, by rank."""
    held = (
        (turn.state.work.tasks[task_id], _label(turn.state.work.tasks[task_id]))
        for task_id in turn.state.work.unknown
    )
    tasks = [task for task, its in held if its and (its.job_id, its.launch) == (label.job_id, label.launch)]
    return sorted(tasks, key=lambda task: task.rank)


def _adopt_awaited(turn: Turn) -> None:
    """Adopt tasks whose jobs wait for a launch: an operator need not request it."""
    for task_id in list(turn.state.work.unknown):
        task = turn.state.work.tasks[task_id]
        label = _label(task)  # None after its launch was adopted
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
    """Give a job the tasks that run for it."""
    first = tasks[0]
    for task in tasks:
        begun_at = task.launched_at if task.state is TaskState.RUNNING else None
        launch = label.launch if label.tasks > 1 else 0
        turn.put_task(replace(task, unknown=None, launch=launch, started_at=task.started_at or begun_at))
    # The executor may have reported its present share already.
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
    """Return the fields by which a job is a member of a known array, so that no other member is made for its index."""
    of = whose(job_id)
    array = turn.state.work.arrays.get(of[0]) if of is not None else None
    if of is None or array is None or array.indexes.position(of[1]) is None:
        return {}
    return {"array": array.id, "index": of[1]}


def _job_of(turn: Turn, task: Task, label: Label) -> Job:
    """Return a job of which only the labels are left.

    It cannot start again, as labels on purpose lack its command. An instance of an app that has not changed is
    complete.
    """
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
