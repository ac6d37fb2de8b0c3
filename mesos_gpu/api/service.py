"""What the REST interface asks of the scheduler."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.job import Job, JobSpec
from mesos_gpu.model.node import Node
from mesos_gpu.model.task import Task
from mesos_gpu.model.why import Why

T = TypeVar("T")


class View(Protocol):
    """The scheduler's state at one moment; only valid inside `Service.read`."""

    @property
    def jobs(self) -> Mapping[JobId, Job]: ...
    @property
    def tasks(self) -> Mapping[TaskId, Task]: ...
    @property
    def nodes(self) -> Mapping[AgentId, Node]: ...
    @property
    def framework_id(self) -> str | None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def master_url(self) -> str: ...
    @property
    def started_at(self) -> float: ...
    def tasks_of(self, job_id: JobId) -> Sequence[Task]: ...
    def holder(self, gpu_id: GpuId) -> Task | None: ...
    def explain(self, job_id: JobId) -> Why: ...


class Service(Protocol):
    """The scheduler; every future is resolved after what it did is saved."""

    def submit(self, spec: JobSpec) -> Future[Job]:
        """Queue a job."""

    def kill(self, job_id: JobId) -> Future[Job]:
        """Ask for a job's end; the future may raise `NotFound`."""

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` on the engine's thread: it must be quick, and only read."""

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call back with (id, version) at each change; returns the way out."""
