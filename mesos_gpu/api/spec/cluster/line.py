"""What /v1 answers about jobs that wait, as types."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.job_fields import Count, GpuNumber, Mib
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Estimate, Moment


class Reservation(TypedDict):
    """What no later job may take."""

    hostname: Annotated[str, says(description="null: only a share of its queue's limit")] | None
    gpu_ids: list[str]
    at: Moment | None


class Waiting(TypedDict):
    """A pending job at its place; `gpus`, `cpus` and `mem_mib` are of all its tasks."""

    position: Count
    id: str
    name: str
    owner: str | None
    queue: str
    app: Annotated[str | None, says(description="the app whose instance it is")]
    array_id: Annotated[str, says(description="that it is a task of")] | None
    priority: int
    effective_priority: int
    gpus: GpuNumber
    cpus: float
    mem_mib: Mib
    submitted_at: Moment
    reservation: Reservation | None
    estimate: Estimate


class QueueUse(TypedDict):
    """A queue, its limit and what it holds."""

    name: str
    limit_gpus: Annotated[int, says(minimum=0, description="null: no limit")] | None
    used_gpus: GpuNumber
    waiting: Count
    waiting_since: (
        Annotated[float, says(description="when the first of them was submitted; null: none waits")] | None
    )


class Queue(TypedDict):
    """Pending jobs in the order in which they are tried, and the queues."""

    jobs: list[Waiting]
    queues: list[QueueUse]
