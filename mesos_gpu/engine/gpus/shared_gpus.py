"""Shares granted of each shared GPU, for readers."""

from mesos_gpu.engine.gpus.covers import compute_milli
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.tasks.shared_gpu import SharedGpu


def shared_gpu(state: State, settings: Settings, gpu: Gpu) -> SharedGpu | None:
    """Return the shares of a GPU, with what is left of it; None if it is not shared."""
    shares, cover = state.gpus.sharers.get(gpu.id, {}), state.gpus.covers.get(gpu.id)
    if not shares and cover is None:
        return None
    capacity_mib = gpu.sharing.memory_mib if gpu.sharing else None
    granted_mib = sum(share.memory_mib for share in shares.values())
    granted_milli = sum(share.compute_milli for share in shares.values())
    return SharedGpu(
        gpu.id,
        state.work.tasks.get(cover) if cover else None,
        tuple(state.work.tasks[task_id] for task_id in shares),
        capacity_mib,
        max(compute_milli(settings) - granted_milli, 0),
        None if capacity_mib is None else max(capacity_mib - granted_mib, 0),
    )
