"""Use of a share of one GPU by a task, as measured on its host."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId

MAX_USES: Final = 256  # of a report; hosts have fewer shares at once


@dataclass(frozen=True, slots=True)
class ShareUse:
    """Use of one share of one GPU. None stands for an unknown value.

    Attributes:
        task_id, gpu_id: Ids of the task and the GPU.
        memory_mib: Memory of the task's processes, from the driver, or from their CUDA library if the driver lacks it.
        most_mib: Highest observed `memory_mib`.
        compute_milli: Thousandths of the time since the previous reading in which it worked.
        refused: Number of allocations refused because they exceeded the share.
        missed: Number of time windows without work, to compensate for windows that it overran.
        looks: Number of successive readings in which it exceeded its share by more than the tolerance.
        problem: Problem with the share, for people; "" without one.
    """

    task_id: TaskId
    gpu_id: GpuId
    memory_mib: int | None = None
    most_mib: int | None = None
    compute_milli: int | None = None
    refused: int | None = None
    missed: int | None = None
    looks: int = 0
    problem: str = ""
