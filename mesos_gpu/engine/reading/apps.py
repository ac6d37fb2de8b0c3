"""Readers of apps and their instances."""

from collections.abc import Collection, Mapping, Sequence

from mesos_gpu.engine.apps import delays, history, splits
from mesos_gpu.engine.apps.deploying import check_change
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.tasks import volumes
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.rollout import Plan
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import Checked, CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.queue import Ends, LaunchDelay
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.volume import PersistentVolume


def check_apps(view: View, change: Plan) -> None:
    """Check a change of apps against limits and the tree of queues.

    Raises:
        BadConfiguration, NotAccepted, TooMuch: The change would be refused.
    """
    check_change(view.state, view.settings, view.now, change)


def past_versions(view: View, app_id: str) -> Sequence[tuple[float, App]]:
    """Return all versions of an app since it was made, oldest first."""
    return [(version.version, version.app) for version in history.versions_of(view.state, app_id)]


def known_versions(view: View, app_id: str) -> Sequence[tuple[float, App]]:
    """Return all known versions of apps of an id, also of one that was deleted before, oldest first."""
    return [(version.version, version.app) for version in view.state.apps.app_versions.get(app_id, ())]


def serving_tasks(view: View, app_id: str) -> Sequence[Task]:
    """Return the tasks of an app that may get requests."""
    return splits.serving(view.state, app_id)


def instances_of(view: View, app_id: str) -> Sequence[Job]:
    """Return the instances of an app that have not ended."""
    return [view.state.work.jobs[job_id] for job_id in view.state.apps.instances.get(app_id, ())]


def resting_volumes(view: View, app_id: str) -> Mapping[JobId, Sequence[PersistentVolume]]:
    """Return the persistent volumes of an app's instances that have no live task, by the job that used them last."""
    return volumes.resting_volumes(view.state, app_id)


def last_failures(view: View, app_ids: Collection[str]) -> Mapping[str, Job]:
    """Return the latest failed instance of each app that has one.

    It ended by itself with an error, or was ended because it was unhealthy.
    """
    return delays.last_failures(view.state, app_ids)


def ends_of(view: View, app_ids: Collection[str]) -> Mapping[str, Ends]:
    """Return how instances of each app ended by themselves lately; apps without such ends are missing."""
    return delays.ends_of(view.state, app_ids, view.now)


def is_crashing(view: View, app: App, ends: Ends) -> bool:
    """Return whether an app's instances still end one after the other.

    Args:
        view: View of the state.
        app: App that the catalog has.
        ends: Latest ends of its instances.
    """
    return delays.is_crashing(view.state, app, ends, view.now)


def launch_delays(view: View) -> Mapping[str, LaunchDelay]:
    """Return the current launch delays of apps that want more instances than they have."""
    return delays.launch_delays(view.state, view.now)


def check_results(view: View, task_id: TaskId) -> Sequence[CheckHealth]:
    """Return the result of each check that the scheduler makes of a task, in its app's order.

    Empty before the first result.
    """
    return view.state.apps.check_results.get(task_id, ())


def checked_of(view: View, task_id: TaskId) -> Checked | None:
    """Return the latest result of a task's check that is only shown; None before the first one since the start."""
    return view.state.apps.checked.get(task_id)


def readiness_of(view: View, task_id: TaskId) -> Readiness | None:
    """Return the latest result of a task's readiness check; None before the first one since the start."""
    return view.state.apps.readiness.get(task_id)
