"""Types of answers about waiting jobs."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.job_fields import Count, GpuNumber, Mib
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Estimate, Moment


class Reservation(TypedDict):
    """Capacity reserved for a waiting job, which no later job may take."""

    hostname: Annotated[str, says(description="null: only a part of the queue's limit is reserved")] | None
    gpu_ids: list[str]
    at: Moment | None


class Waiting(TypedDict):
    """A pending job at its position in the queue order; `gpus`, `cpus` and `mem_mib` are for all its tasks."""

    position: Count
    id: str
    name: str
    owner: str | None
    queue: str
    app: Annotated[str | None, says(description="app whose instance it is")]
    array_id: Annotated[str, says(description="id of its job array")] | None
    priority: int
    effective_priority: int
    gpus: GpuNumber
    cpus: float
    mem_mib: Mib
    submitted_at: Moment
    reservation: Reservation | None
    estimate: Estimate


class QueueUse(TypedDict):
    """A queue with its limit and its usage."""

    name: str
    limit_gpus: Annotated[int, says(minimum=0, description="null: no limit")] | None
    used_gpus: GpuNumber
    waiting: Count
    waiting_since: (
        Annotated[float, says(description="submission of the first waiting job; null: none waits")] | None
    )


class Queue(TypedDict):
    """Pending jobs in queue order, and the queues."""

    jobs: list[Waiting]
    queues: list[QueueUse]
