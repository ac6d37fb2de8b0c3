"""Launch delays of apps after failures of their instances."""

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

_STEADY_S: Final = 60.0  # an instance that ran this long is not counted in a row of failures


def was_steady(job: Job, now: float) -> bool:
    """Return whether an instance ran for at least a minute before its end at `now`."""
    return job.started_at is not None and now - job.started_at >= _STEADY_S


def ends_of(state: State, app_ids: Collection[str], now: float) -> dict[str, Ends]:
    """Return how instances of the present configuration of each app ended by themselves, the latest in a row.

    Apps of which no instance ended by itself are left out. The ended jobs are read once, whatever the number of apps.
    """
    catalog = state.apps.catalog.versions
    versions = {id: catalog[id].last_config_change_at if id in catalog else 0.0 for id in app_ids}
    rows: dict[str, list[Job]] = {}
    open_rows = set(versions)
    for job in map(state.work.jobs.__getitem__, reversed(state.work.ended)):
        id = job.spec.app
        if id not in open_rows or job.app_version != versions[id] or not _by_itself(state, job):
            continue
        if id in rows and was_steady(job, job.ended_at or now):
            open_rows.remove(id)
        else:
            rows.setdefault(id, []).append(job)
    delays = {id: state.apps.backoffs.get((id, versions[id]), NO_FAILURES)[1] for id in rows}
    return {id: Ends(len(row), row[0], delays[id] if delays[id] > now else None) for id, row in rows.items()}


def is_crashing(state: State, app: App, ends: Ends, now: float) -> bool:
    """Return whether the ends of an app's instances are not over.

    After several in a row, all instances must run for as long as a steady one. After a single end it is over as soon
    as all of them run, or when the end is a minute ago and delays nothing.
    """
    jobs = [state.work.jobs[id] for id in state.apps.instances.get(app.id, ())]
    running = [job for job in jobs if job.state is JobState.RUNNING and not job.kill_requested]
    missing = len(running) < app.instances
    if ends.in_a_row > 1:
        return missing or not all(was_steady(job, now) for job in running)
    return missing and (ends.next_at is not None or now - (ends.last.ended_at or now) < _STEADY_S)


def _by_itself(state: State, job: Job) -> bool:
    """Return whether an ended instance ended by itself or was unhealthy, rather than being killed."""
    return job.state is not JobState.KILLED or _was_unhealthy(state, job)


def last_failures(state: State, app_ids: Collection[str]) -> dict[str, Job]:
    """Return the latest instance of each app that failed or was unhealthy since the app was created.

    Apps without one are missing.
    """
    last: dict[str, Job] = {}
    missing = set(app_ids)
    for job in map(state.work.jobs.__getitem__, reversed(state.work.ended)):
        if not missing:
            break
        if job.spec.app in missing and _failed(state, job):
            missing.remove(job.spec.app)
            if (job.app_version or 0.0) > made_after(state.apps.roots, job.spec.app):
                last[job.spec.app] = job
    return last


def _failed(state: State, job: Job) -> bool:
    """Return whether an ended instance failed or was unhealthy."""
    return job.state is JobState.FAILED or _was_unhealthy(state, job)


def _was_unhealthy(state: State, job: Job) -> bool:
    """Return whether an ended instance was killed because it was unhealthy."""
    task = state.work.tasks.get(job.task_id) if job.task_id else None
    return task is not None and bool(task.unhealthy)


def launch_delays(state: State, now: float) -> dict[str, LaunchDelay]:
    """Return the current launch delays of apps that want more instances than they have."""
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
    """Remove the launch delays of an app, whatever its configuration."""
    for key in [key for key in state.apps.backoffs if key[0] == app_id]:
        del state.apps.backoffs[key]


def launch_delay_s(app: App, failures: int) -> float:
    """Return the seconds that an app waits before its next launch after a number of failures in a row."""
    return delay_s(failures, first_s=app.backoff_s, factor=app.backoff_factor, most_s=app.max_launch_delay_s)


def on_delay_reset(turn: Turn, event: ev.DelayReset) -> None:
    """Forget an app's failures in a row, and let its waiting instances start now.

    Raises:
        NotFound: No instance of the app waits for a launch.
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
