"""App events for listeners, derived from the engine's effects by comparison with the last reported state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model import saves
from mesos_gpu.model.apps import app_event
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.catalog import AppCatalog, Deployment
from mesos_gpu.model.apps.rollout import ActionKind
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.apps.healthcheck import of_scheduler
from mesos_gpu.policy.apps.task_ids import instance_id, instance_of_job, name_of

_CONDITIONS: Final = {
    JobState.PENDING: "Scheduled",
    JobState.STARTING: "Starting",
    JobState.RUNNING: "Running",
    JobState.UNREACHABLE: "Unreachable",
    JobState.KILLING: "Killing",
    JobState.FINISHED: "Finished",
    JobState.FAILED: "Failed",
    JobState.KILLED: "Killed",
}
_ENDS: Final = {  # Mesos' states of a task that has ended
    "TASK_FINISHED": "Finished",
    "TASK_FAILED": "Failed",
    "TASK_KILLED": "Killed",
    "TASK_ERROR": "Error",
    "TASK_LOST": "Dropped",
    "TASK_DROPPED": "Dropped",
    "TASK_GONE": "Gone",
    "TASK_GONE_BY_OPERATOR": "Gone",
}
_UNTOLD: Final = (TaskState.LAUNCHED, TaskState.ABANDONED)  # Mesos sends no status update for these


@dataclass(frozen=True, slots=True)
class _Known:
    """Last reported state of a task.

    Attributes:
        by_executor: Health by the executor's checks; None if not known.
        healthy: Health by all checks together; None if not known.
        failures: Consecutive failures of each of the scheduler's checks.
    """

    state: TaskState | None = None
    by_executor: bool | None = None
    healthy: bool | None = None
    failures: tuple[int, ...] = ()


class Follower:
    """Source of app events that remembers what it reported last.

    For the engine's thread only; created when the first listener begins. The state at creation counts as reported.
    """

    def __init__(self, state: State) -> None:
        jobs = [state.work.jobs[id] for ids in state.apps.instances.values() for id in ids]
        self._conditions = {job.id: _condition(state, job) for job in jobs}
        self._tasks = {
            task.id: _Known(task.state, task.healthy, _healthy(state, job, task))
            for job in jobs
            for task in state.work.round_of(job)
        }
        self._catalog = state.apps.catalog
        self._deployments = dict(state.apps.deployments)

    def follow(
        self, event: ev.Event, effects: Sequence[fx.Effect], state: State, now: float
    ) -> list[app_event.AppEvent]:
        """Return the app events that follow from one engine event; `state` is the state after it."""
        immediate = [*self._of_event(event, effects, state)]
        saved = [
            what
            for effect in effects
            if isinstance(effect, saves.Save)
            for what in self._of_save(effect, state, now)
        ]
        return [app_event.AppEvent(now, what) for what in (*immediate, *sorted(saved, key=_place))]

    def refused(self, event: ev.Event, why: str, now: float) -> list[app_event.AppEvent]:
        """Return the app events for an engine event that was refused, with the reason `why`."""
        if not isinstance(event, ev.AppsChanged):
            return []
        ids = [*event.restarts, *_redefined(self._catalog.root, event.root)]
        return [app_event.AppEvent(now, app_event.GroupChanged(_common_group(ids), now, why))]

    # --- events

    def _of_event(
        self, event: ev.Event, effects: Sequence[fx.Effect], state: State
    ) -> Iterator[app_event.What]:
        """Yield app events that follow from the engine event itself."""
        match event:
            case ev.Registered(framework_id, master_url):
                new = any(isinstance(effect, saves.SaveFramework) for effect in effects)
                yield app_event.Registered(framework_id if new else None, master_url)
            case ev.Disconnected():
                yield app_event.Disconnected()
            case ev.StatusArrived(status) if status.task_id not in state.work.tasks and status.state in _ENDS:
                name = name_of(status.task_id)
                if name is not None:
                    yield app_event.StrangerEnded(
                        name.app, instance_id(name.app, name.uuid), _ENDS[status.state]
                    )
            case ev.HealthFound():
                yield from self._of_checks(event, effects, state)

    def _of_checks(
        self, event: ev.HealthFound, effects: Sequence[fx.Effect], state: State
    ) -> Iterator[app_event.What]:
        """Yield the results of the scheduler's own checks; results of the executor's checks come with its task
        updates."""
        task = state.work.tasks.get(event.task_id)
        job = _job_of(state, task)
        if task is None or job is None or task.ended:
            return
        known = self._tasks.get(task.id, _Known())
        failures = tuple(health.consecutive_failures for health in event.healths)
        self._tasks[task.id] = replace(known, failures=failures)
        checks, before = _checks_of(state, job), known.failures or (0,) * len(failures)
        for check, was, count in zip(checks, before, failures, strict=False):
            if count > was:
                yield app_event.CheckFailed(_subject(job), task.id, check)
        if event.kill and any(
            isinstance(effect, fx.Kill) and effect.task_id == task.id for effect in effects
        ):
            yield app_event.UnhealthyKilled(_subject(job), task, event.kill)
        yield from self._health_events(state, job, task)

    # --- saves

    def _of_save(self, save: saves.Save, state: State, now: float) -> Iterator[app_event.What]:
        """Yield app events that follow from a saved record."""
        match save:
            case saves.SaveJob(job) if job.app_version is not None:
                yield from self._job_events(state, job)
            case saves.ForgetJob(job_id):
                self._conditions.pop(job_id, None)
            case saves.SaveTask(task):
                yield from self._task_events(state, task)
            case saves.SaveServices(catalog):
                before, self._catalog = self._catalog, catalog
                yield from _catalog_events(before, catalog, now)
            case saves.SaveDeployment(deployment):
                old = self._deployments.get(deployment.id)
                self._deployments[deployment.id] = deployment
                yield from _deployment_events(old, deployment)
            case saves.ForgetDeployment(id, done):
                ended = self._deployments.pop(id, None)
                if ended is not None:
                    yield from _deployment_end_events(ended, done=done)

    def _job_events(self, state: State, job: Job) -> Iterator[app_event.What]:
        """Yield the change of an instance's condition, if it has changed since the last event."""
        condition = _condition(state, job)
        if self._conditions.get(job.id) == condition:
            return
        self._conditions[job.id] = condition
        launched = job.task_id if job.state is not JobState.PENDING else None
        task = state.work.tasks.get(launched) if launched else None
        agent_id, host = (task.agent_id, task.hostname) if task else (None, None)
        yield app_event.InstanceChanged(_subject(job), condition, agent_id, host)

    def _task_events(self, state: State, task: Task) -> Iterator[app_event.What]:
        job = _job_of(state, task)
        if job is None:
            return
        known = self._tasks.get(task.id, _Known())
        self._tasks[task.id] = replace(known, state=task.state)
        if task.state is not known.state and task.state not in _UNTOLD:
            yield app_event.TaskChanged(_subject(job), task)
        yield from self._health_events(state, job, task)
        if task.ended:
            del self._tasks[task.id]

    def _health_events(self, state: State, job: Job, task: Task) -> Iterator[app_event.What]:
        """Yield a change of health, unless the task has ended: its last known health then stays."""
        known, healthy = self._tasks.get(task.id, _Known()), _healthy(state, job, task)
        if task.ended:
            return
        self._tasks[task.id] = replace(known, by_executor=task.healthy, healthy=healthy)
        if job.spec.health_checks and task.healthy is False and known.by_executor is not False:
            # Which of several checks failed is not known; Marathon allows no more than one.
            yield app_event.CheckFailed(_subject(job), task.id, job.spec.health_checks[0])
        if healthy is not known.healthy:
            yield app_event.HealthChanged(_subject(job), task.id, healthy)


def _place(what: app_event.What) -> int:
    """Return the sort position of an app event among those of one engine event, in Marathon's order.

    A task's update comes before the change of its instance (InstanceChangedEventsGenerator); an ended deployment
    before its successor; a deployment's first step before its checks (DeploymentActor), and the change of the group
    last (GroupManagerImpl).
    """
    if isinstance(what, app_event.DeploymentMoved):
        return 3 if what.stage in (app_event.Stage.STEP_FAILED, app_event.Stage.FAILED) else 4
    return _PLACES.get(type(what), 2)


_PLACES: Final[dict[type, int]] = {
    app_event.TaskChanged: 0,
    app_event.InstanceChanged: 1,
    app_event.AppTerminated: 4,
    app_event.ChecksRemoved: 5,
    app_event.ChecksAdded: 5,
    app_event.GroupChanged: 6,
}


# --- instances


def _job_of(state: State, task: Task | None) -> Job | None:
    """Return the app instance that a task belongs to; None if the task belongs to no app."""
    job = state.work.jobs.get(task.job_id) if task and task.job_id else None
    return job if job and job.app_version is not None else None


def _subject(job: Job) -> app_event.Subject:
    return app_event.Subject(job.spec.app or "", instance_of_job(job.id), job.app_version or 0.0)


def _condition(state: State, job: Job) -> str:
    task = state.work.tasks.get(job.task_id) if job.task_id else None
    if job.state is JobState.STARTING and task and task.state is TaskState.LAUNCHED:
        return "Provisioned"
    return _CONDITIONS[job.state]


def _healthy(state: State, job: Job, task: Task) -> bool | None:
    verdicts = [task.healthy] if job.spec.health_checks else []
    verdicts += [state.apps.healths.get(task.id)] if job.checked else []
    if False in verdicts:
        return False
    return True if verdicts and None not in verdicts else None


def _checks_of(state: State, job: Job) -> tuple[HealthCheck, ...]:
    """Return the checks that the scheduler makes, by the version of the app that the job was started from."""
    versions = state.apps.app_versions.get(job.spec.app or "", ())
    app = next((version.app for version in versions if version.version == job.app_version), None)
    return of_scheduler(app.health_checks) if app else ()


# --- apps and deployments


def _catalog_events(old: AppCatalog, new: AppCatalog, now: float) -> Iterator[app_event.What]:
    """Yield the change of the apps' common group, and removed and added health checks of each changed app."""
    ids = [id for id in {**old.versions, **new.versions} if old.versions.get(id) != new.versions.get(id)]
    yield app_event.GroupChanged(_common_group(ids), now)
    was, now_are = ({app.id: app for app in root.all_apps()} for root in (old.root, new.root))
    for id in ids:
        before, after = was.get(id), now_are.get(id)
        checks = after.health_checks if after else ()
        if before and before.health_checks == checks:
            continue
        if before and before.health_checks:
            yield app_event.ChecksRemoved(id)
        for check in checks:
            yield app_event.ChecksAdded(id, new.versions[id].version, check)


def _redefined(old: Group, new: Group) -> list[str]:
    was, now_are = ({app.id: app for app in root.all_apps()} for root in (old, new))
    return [id for id in {**was, **now_are} if was.get(id) != now_are.get(id)]


def _common_group(ids: Sequence[str]) -> str:
    """Return the innermost group that contains all these apps."""
    parents = [id.split("/")[1:-1] for id in ids]
    shared = takewhile(lambda steps: len(set(steps)) == 1, zip(*parents, strict=False))
    return "/" + "/".join(steps[0] for steps in shared)


def _deployment_events(old: Deployment | None, new: Deployment) -> Iterator[app_event.What]:
    if old is not None and old.step == new.step:
        return  # only its waiting reason has changed
    if old is not None:
        yield from _step_done(old)
    yield app_event.DeploymentMoved(app_event.Stage.STEP_BEGUN, new)


def _deployment_end_events(ended: Deployment, *, done: bool) -> Iterator[app_event.What]:
    if done:
        yield from _step_done(ended)
        yield app_event.DeploymentMoved(app_event.Stage.DONE, ended)
    else:
        yield app_event.DeploymentMoved(app_event.Stage.STEP_FAILED, ended)
        yield app_event.DeploymentMoved(app_event.Stage.FAILED, ended)


def _step_done(deployment: Deployment) -> Iterator[app_event.What]:
    for action in deployment.plan.steps[deployment.step]:
        if action.kind is ActionKind.STOP:
            yield app_event.AppTerminated(action.app.id)
    yield app_event.DeploymentMoved(app_event.Stage.STEP_DONE, deployment)
