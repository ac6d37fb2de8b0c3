"""Whether nodes keep persistent volumes, and whether jobs need some. Pure."""

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.node import Node


def has_volumes(spec: JobSpec) -> bool:
    """Return whether a job uses persistent volumes."""
    return bool(spec.mounts) and any([mount.volume_mib for mount in spec.mounts])


def rootless(node: Node) -> str:
    """Return why a node keeps no persistent volumes; "" if it keeps some."""
    if node.inventory is None:
        return "has not reported yet whether it keeps persistent volumes"
    root = node.inventory.volumes
    if root is None:
        return "keeps no persistent volumes: its agent has no MESOS_GPU_PERSISTENT_ROOT"
    return f"keeps no persistent volumes: {root.problem}" if root.problem else ""
