"""What a task uses of its share of one GPU, as its host sees it."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId

MAX_USES: Final = 256  # that a report has: a host has no more shares than that at once


@dataclass(frozen=True, slots=True)
class ShareUse:
    """The use of one share of one GPU. None: nobody can say.

    Attributes:
        task_id, gpu_id: Whose, and of which.
        memory_mib: What its processes hold, by the driver; where the driver does not tell, by its own libraries.
        most_mib: The most of it that was seen.
        compute_milli: Of the time since the look before, the part in which it was at work, in thousandths.
        refused: Allocations that did not fit its share.
        missed: Windows in which it did not work, to pay for what ran over an earlier one.
        looks: How many looks in a row have found it beyond its share by more than the slack.
        problem: What is wrong with it, for people; "": nothing.
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
