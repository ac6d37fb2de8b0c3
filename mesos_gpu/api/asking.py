"""Changes that users request, with the new ids that they need."""

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec


def new_job(spec: JobSpec, owner: str = "") -> ev.JobSubmitted:
    """Return the change that submits a job or an array under a new id, for the user of that name."""
    return ev.JobSubmitted(JobId(f"{spec.name}-{uuid.uuid4().hex[:8]}"), spec, owner)


def job_kill(
    job_id: JobId, *, wipe: bool = False, indexes: str | None = None
) -> Callable[[View], ev.Change[Job]]:
    """Return the function that makes the change that ends a job, or tasks of an array.

    Args:
        job_id: Id of a job or an array.
        wipe: Whether the successor of an app's instance gets another name.
        indexes: Indexes of the array's tasks; None for all.
    """

    def change(view: View) -> ev.Change[Job]:
        is_array = job_id in view.arrays
        return ev.ArrayKillRequested(job_id, indexes) if is_array else ev.KillRequested(job_id, wipe)

    return change


def new_reset(gpu_id: GpuId, reason: str, *, by: str = "") -> ev.ResetRequested:
    """Return the change that lets a GPU's node reset it, under a new id."""
    return ev.ResetRequested(gpu_id, uuid.uuid4().hex[:12], reason, by)


def apps_change(
    target: Callable[[Group], Group],
    *,
    force: bool = False,
    restarts: frozenset[str] = frozenset(),
    kill: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Callable[[View], ev.Change[Deployment | None]]:
    """Return the function that makes the change of the tree of apps, by a new deployment.

    Args:
        target: Function that returns the new tree for the present one; it runs on the engine's thread and must be
            quick, and what it raises is raised by the request.
        force: Whether deployments in progress are overridden.
        restarts: Apps whose instances are all replaced.
        kill: Instances by app that are killed.
    """
    new_id = str(uuid.uuid4())
    return lambda view: ev.AppsChanged(new_id, target(view.catalog.root), force, restarts, dict(kill))


def deployment_undo(deployment_id: str, *, force: bool = False) -> ev.DeploymentDeleted:
    """Return the change that undoes a deployment by a new one, or ends it if `force` is set."""
    return ev.DeploymentDeleted(deployment_id, str(uuid.uuid4()), force)
