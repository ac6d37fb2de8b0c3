"""Apps, their instances, and checks of these."""

import bisect
from dataclasses import dataclass, field

from mesos_gpu.engine.parts.metadata import in_journal
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, RootVersion
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.healthcheck import Checked, CheckHealth, Readiness
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.queueing.queue import in_line_since


@dataclass(slots=True)
class AppPart:
    """Apps of the state. Times are in seconds since the epoch.

    Attributes:
        catalog: Apps as users want them.
        app_versions: Versions of each app, oldest first.
        roots: Earlier trees of groups, oldest first.
        deployments: Deployments in progress, by id.
        splits: Named services, by name.
        instances: Jobs of each app that have not ended.
        places: Place of each app in the queue, which is that of its first instance.
        changed_apps: Apps that have changed or have lost an instance since they were looked at.
        ended_instances: Instances that have ended since their apps were looked at.
        vacant: Ended instances of each app that are to be started again.
        backoffs: Failures in a row and the end of the delay, by app and its `last_config_change_at`.
        healths: Health of tasks by the checks that the scheduler makes.
        check_results: Result of each of these checks.
        checked: Result of each task's check that is only shown.
        readiness: Latest result of readiness checks.
        looked_at_apps: Time at which all apps were looked at.
    """

    catalog: AppCatalog = field(default_factory=AppCatalog, metadata=in_journal("services"))
    app_versions: dict[str, list[AppVersion]] = field(default_factory=dict)
    roots: list[RootVersion] = field(default_factory=list)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    splits: dict[str, TrafficSplit] = field(default_factory=dict)
    instances: dict[str, dict[JobId, None]] = field(default_factory=dict)
    places: dict[str, tuple[int, float]] = field(default_factory=dict)
    changed_apps: set[str] = field(default_factory=set, metadata=in_journal("stirred"))
    ended_instances: list[JobId] = field(default_factory=list, metadata=in_journal("fallen"))
    vacant: dict[str, list[JobId]] = field(default_factory=dict)
    backoffs: dict[tuple[str, float], tuple[int, float]] = field(default_factory=dict)
    healths: dict[TaskId, bool | None] = field(default_factory=dict)
    check_results: dict[TaskId, tuple[CheckHealth, ...]] = field(default_factory=dict)
    checked: dict[TaskId, Checked] = field(default_factory=dict)
    readiness: dict[TaskId, Readiness] = field(default_factory=dict)
    looked_at_apps: float = 0.0

    def set_instance(self, job: Job) -> None:
        """Update the indexes after a change of an app's instance."""
        app_id = job.app_id
        place = job.sequence, in_line_since(job)
        self.places[app_id] = min(self.places.get(app_id, place), place)
        instances = self.instances.setdefault(app_id, {})
        self.changed_apps.add(app_id)
        if not job.state.ended:
            instances.setdefault(job.id)
        elif job.id in instances:
            del instances[job.id]
            self.ended_instances.append(job.id)
        if not instances:
            del self.instances[app_id]

    def forget_results(self, task_id: TaskId) -> None:
        """Remove results of checks of a task that has ended."""
        self.healths.pop(task_id, None)
        self.check_results.pop(task_id, None)
        self.checked.pop(task_id, None)
        self.readiness.pop(task_id, None)

    def set_app_version(self, version: AppVersion) -> None:
        """Add a version of an app, sorted by time, as an undone change brings an earlier one back."""
        versions = [v for v in self.app_versions.get(version.app.id, ()) if v.version != version.version]
        bisect.insort(versions, version, key=lambda each: each.version)
        self.app_versions[version.app.id] = versions

    def drop_app_version(self, app_id: str, version: float) -> None:
        """Remove a version of an app."""
        left = [saved for saved in self.app_versions[app_id] if saved.version != version]
        if left:
            self.app_versions[app_id] = left
        else:
            del self.app_versions[app_id]

    def set_root_version(self, root: RootVersion) -> None:
        """Add the present tree of groups to the earlier ones."""
        self.roots = [*self.roots, root]

    def drop_root_version(self, version: float) -> None:
        """Remove a tree of groups."""
        self.roots = [root for root in self.roots if root.version != version]
