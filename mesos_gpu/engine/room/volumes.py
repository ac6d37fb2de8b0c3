"""Nodes that may serve a job with persistent volumes."""

from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.jobs.mount import persistent_of
from mesos_gpu.model.nodes.node import Node


def has_volumes(spec: JobSpec) -> bool:
    """Return whether a job uses persistent volumes."""
    return bool(persistent_of(spec.mounts))


def not_at_home(state: State, spec: JobSpec, node: Node) -> str:
    """Return why a node lacks the persistent volumes of a job; "" if it has them, or if no node has them yet."""
    for mount in persistent_of(spec.mounts):
        volume = state.work.volumes.get(mount.source)
        if volume is not None and volume.hostname not in ("", node.hostname):
            return f"its persistent volume {mount.volume or mount.target} is on {volume.hostname}"
    return ""


def homes_of(state: State, spec: JobSpec) -> tuple[tuple[str, str], ...]:
    """Return the ids of a job's persistent volumes, each with the host name of the node that has it now."""
    volumes = state.work.volumes
    ids = [mount.source for mount in persistent_of(spec.mounts)]
    return tuple([(id, volumes[id].hostname if id in volumes else "") for id in ids])


def without_volumes(state: State, job: Job, node: Node) -> str:
    """Return why a job gets no persistent volumes on a node now; "" if it does."""
    if why := not_at_home(state, job.spec, node) or _rootless(node):
        return why
    # Named volumes may be shared.
    sources = {mount.source for mount in persistent_of(job.spec.mounts) if not mount.volume}
    for task_id in state.work.restless.on.get(node.id, ()):
        other = state.work.job_of(state.work.tasks[task_id])
        is_own = other is not None and other.id == job.id and job.state is not JobState.PENDING
        if (
            other is not None
            and not is_own
            and sources.intersection(mount.source for mount in other.spec.mounts)
        ):
            return f"the task {task_id}, whose end is not known, has its persistent volume"
    return ""


def _rootless(node: Node) -> str:
    """Return why a node keeps no persistent volumes; "" if it keeps some."""
    if node.inventory is None:
        return "has not reported yet whether it keeps persistent volumes"
    root = node.inventory.volumes
    if root is None:
        return "keeps no persistent volumes: its agent has no MESOS_GPU_PERSISTENT_ROOT"
    return f"keeps no persistent volumes: {root.problem}" if root.problem else ""
