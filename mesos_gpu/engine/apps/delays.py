"""How long apps wait before their next launch, because instances failed."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.memory import NO_FAILURES
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import Ends, LaunchDelay
from mesos_gpu.policy.apps.rollout.history import made_after
from mesos_gpu.policy.queueing.backoff import delay_s

_STEADY_S: Final = 60.0  # an instance that ran so long was none of a row of failures


def was_steady(job: Job, now: float) -> bool:
    """Whether an instance ran for long before its end, at `now`."""
    return job.started_at is not None and now - job.started_at >= _STEADY_S


def ends_of(state: State, app_id: str, now: float) -> Ends | None:
    """How instances of an app's present configuration ended by themselves, the latest in a row; None: none did."""
    info = state.apps.catalog.versions.get(app_id)
    version = info.last_config_change_at if info else 0.0
    row: list[Job] = []
    for job in map(state.work.jobs.__getitem__, reversed(state.work.ended)):
        if job.spec.app != app_id or job.app_version != version or not _by_itself(state, job):
            continue
        if row and was_steady(job, job.ended_at or now):
            break
        row.append(job)
    if not row:
        return None
    until = state.apps.backoffs.get((app_id, version), NO_FAILURES)[1]
    return Ends(len(row), row[0], until if until > now else None)


def _by_itself(state: State, job: Job) -> bool:
    return job.state is not JobState.KILLED or _was_unhealthy(state, job)


def last_failures(state: State, app_ids: Collection[str]) -> dict[str, Job]:
    """The latest instance of each app that failed, or was not healthy, since the app was made; only apps with one."""
    last: dict[str, Job] = {}
    wanted = set(app_ids)
    for job in map(state.work.jobs.__getitem__, reversed(state.work.ended)):
        if not wanted:
            break
        if job.spec.app in wanted and _failed(state, job):
            wanted.remove(job.spec.app)
            if (job.app_version or 0.0) > made_after(state.apps.roots, job.spec.app):
                last[job.spec.app] = job
    return last


def _failed(state: State, job: Job) -> bool:
    return job.state is JobState.FAILED or _was_unhealthy(state, job)


def _was_unhealthy(state: State, job: Job) -> bool:
    task = state.work.tasks.get(job.task_id) if job.task_id else None
    return task is not None and bool(task.unhealthy)


def launch_delays(state: State, now: float) -> dict[str, LaunchDelay]:
    """Launch delays in force, of apps that want more instances than they have."""
    if not state.apps.backoffs:
        return {}
    delays = {}
    for app in state.apps.catalog.root.all_apps():
        version = state.apps.catalog.versions[app.id].last_config_change_at
        failures, until = state.apps.backoffs.get((app.id, version), NO_FAILURES)
        missing = app.instances - len(state.apps.instances.get(app.id, ()))
        if until > now and missing > 0:
            delays[app.id] = LaunchDelay(missing, until - launch_delay_s(app, failures), until)
    return delays


def forget_delays(state: State, app_id: str) -> None:
    """Let an app's next launch be at once, whatever its configuration."""
    for key in [key for key in state.apps.backoffs if key[0] == app_id]:
        del state.apps.backoffs[key]


def launch_delay_s(app: App, failures: int) -> float:
    """How long an app waits before its next launch, after so many failures in a row."""
    return delay_s(failures, first_s=app.backoff_s, factor=app.backoff_factor, most_s=app.max_launch_delay_s)


def on_delay_reset(turn: Turn, event: ev.DelayReset) -> None:
    """Forget an app's failures in a row, and let what waits for its next attempt start.

    Raises:
        NotFound: Nothing of it waits to be launched.
    """
    state = turn.state
    jobs = [state.work.jobs[id] for id in state.apps.instances.get(event.app, ())]
    waiting = [job for job in jobs if job.state is JobState.PENDING]
    if not waiting and event.app not in launch_delays(state, turn.now):
        raise NotFound(f"app {event.app} is not in the queue", remedy="see GET /v2/queue")
    forget_delays(state, event.app)
    state.apps.changed_apps.add(event.app)
    for job in waiting:
        if job.not_before > turn.now:
            turn.put_job(replace(job, not_before=turn.now))
