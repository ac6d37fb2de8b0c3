"""What is asked for of a node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.request import ShareRequest


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that one task needs."""

    count: int = 0
    models: tuple[str, ...] = ()  # ordered fallbacks; empty: any
    memory_mib: int | None = None  # that each has at least; None: any
    compute_capability: str | None = None  # the oldest that will do, "8.0"; None: any
    share: ShareRequest | None = None  # of each; None: all of it

    @property
    def choosy(self) -> bool:
        """Whether GPUs of one model may differ in whether they will do."""
        return self.memory_mib is not None or self.compute_capability is not None

    def of_any_size(self) -> "GpuRequest":
        """Leave out what is demanded of each GPU but its model."""
        return replace(self, memory_mib=None, compute_capability=None) if self.choosy else self

    def of_any_capability(self) -> "GpuRequest":
        """Leave out the compute capability that is demanded."""
        return self if self.compute_capability is None else replace(self, compute_capability=None)

    def takes(self, gpu: Gpu) -> bool:
        """Whether a GPU will do, whatever its model; one whose capability is not known will not where it counts."""
        enough_memory = self.memory_mib is None or gpu.memory_mib >= self.memory_mib
        return enough_memory and as_new_as(gpu.compute_capability, self.compute_capability)

    def suited(self, gpus: Iterable[Gpu], model: str | None = None) -> list[Gpu]:
        """GPUs that will do, of one model; None: of whatever model the request accepts."""
        if model is not None:
            gpus = [gpu for gpu in gpus if gpu.model == model]
        elif self.models:
            gpus = [gpu for gpu in gpus if gpu.model in self.models]
        return [gpu for gpu in gpus if self.takes(gpu)] if self.choosy else list(gpus)

    def by_model(self, gpus: Iterable[Gpu], model: str | None = None) -> list[list[Gpu]]:
        """GPUs that will do, by model: a task never gets a mix."""
        suited = self.suited(gpus, model)
        models = {gpu.model: None for gpu in suited}
        if len(models) == 1:  # nearly all nodes
            return [suited]
        return [[gpu for gpu in suited if gpu.model == each] for each in models]


@dataclass(frozen=True, slots=True)
class Request:
    """What one task of a job needs of a node, its executor included."""

    resources: Resources  # with the count of GPUs
    gpu: GpuRequest = GpuRequest()
    min_driver: str | None = None  # the oldest driver that will do; None: any, or none at all
    tasks: int = 1  # that start together; each of several takes a port
    user: str | None = None  # as whom it runs; None: the executor's own user
    ports: tuple[PortWish, ...] = ()  # of its host, of a job of one task

    def of_model(self, model: str | None) -> "Request":
        """The request for GPUs of one model; None: as it is."""
        if model is None or self.gpu.models == (model,):
            return self
        return replace(self, gpu=replace(self.gpu, models=(model,)))

    def each_model(self) -> Sequence["Request"]:
        """A request for each model that is named, the first choice first: the tasks of a gang get GPUs of one model."""
        return [self.of_model(model) for model in self.gpu.models] or [self]
