"""Requirements of a task on a node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.request import ShareRequest


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs that one task needs."""

    count: int = 0
    models: tuple[str, ...] = ()  # accepted models, the preferred one first; empty for any
    memory_mib: int | None = None  # least memory of each GPU; None for any
    compute_capability: str | None = None  # oldest accepted, as "8.0"; None for any
    share: ShareRequest | None = None  # share of each GPU; None for whole GPUs

    @property
    def choosy(self) -> bool:
        """Whether the request may accept one GPU and refuse another of the same model."""
        return self.memory_mib is not None or self.compute_capability is not None

    def of_any_size(self) -> "GpuRequest":
        """Return the request without requirements on memory and compute capability."""
        return replace(self, memory_mib=None, compute_capability=None) if self.choosy else self

    def of_any_capability(self) -> "GpuRequest":
        """Return the request without the requirement on compute capability."""
        return self if self.compute_capability is None else replace(self, compute_capability=None)

    def takes(self, gpu: Gpu) -> bool:
        """Return whether a GPU meets all requirements on memory and capability; an unknown capability meets none."""
        enough_memory = self.memory_mib is None or gpu.memory_mib >= self.memory_mib
        return enough_memory and as_new_as(gpu.compute_capability, self.compute_capability)

    def suited(self, gpus: Iterable[Gpu], model: str | None = None) -> list[Gpu]:
        """Return the GPUs that meet the request; `model` restricts them to one model, None allows all accepted ones."""
        if model is not None:
            gpus = [gpu for gpu in gpus if gpu.model == model]
        elif self.models:
            gpus = [gpu for gpu in gpus if gpu.model in self.models]
        return [gpu for gpu in gpus if self.takes(gpu)] if self.choosy else list(gpus)

    def by_model(self, gpus: Iterable[Gpu], model: str | None = None) -> list[list[Gpu]]:
        """Return the GPUs that meet the request, grouped by model, as a task never gets a mix."""
        suited = self.suited(gpus, model)
        models = {gpu.model: None for gpu in suited}
        if len(models) == 1:  # fast path for nearly all nodes
            return [suited]
        return [[gpu for gpu in suited if gpu.model == name] for name in models]


@dataclass(frozen=True, slots=True)
class Request:
    """Requirements of one task of a job on a node, its executor included."""

    resources: Resources  # amounts, with the number of GPUs
    gpu: GpuRequest = GpuRequest()
    min_driver: str | None = None  # oldest accepted driver; None for any, or none at all
    tasks: int = 1  # tasks that start together; each takes a port if there are several
    user: str | None = None  # user as which the task runs; None for the executor's own user
    ports: tuple[PortWish, ...] = ()  # ports of the host; only for a job of one task

    def of_model(self, model: str | None) -> "Request":
        """Return the request restricted to one GPU model; unchanged for None."""
        if model is None or self.gpu.models == (model,):
            return self
        return replace(self, gpu=replace(self.gpu, models=(model,)))

    def each_model(self) -> Sequence["Request"]:
        """Return a request for each accepted model, the preferred one first, as a gang gets GPUs of one model."""
        return [self.of_model(model) for model in self.gpu.models] or [self]
