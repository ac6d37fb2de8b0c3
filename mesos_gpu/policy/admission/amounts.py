"""Default CPUs and memory of jobs with GPUs: a part of the node for each GPU. Pure.

The defaults fit each empty node that would accept the job with `PLAIN_CPUS` and `PLAIN_MEM_MIB`, for as many tasks at
once as the node has GPUs for: no job waits for ever for amounts that its request did not name.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.jobs.job import PLAIN_CPUS, PLAIN_MEM_MIB, JobSpec
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.gpu_names import models_of
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.shares.units import WHOLE

#: Thousandths of a node that are left for work without GPUs.
RESERVE_PERMILLE: Final = 100


@dataclass(frozen=True, slots=True)
class CardKind:
    """Properties of a GPU that a job can require: its model, memory and compute capability."""

    model: str
    memory_mib: int
    compute_capability: str | None


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Resources of an empty node, and its GPUs.

    Attributes:
        resources: CPUs and memory without those of the node monitor; None if the node has offered nothing yet.
        gpus: Number of GPUs.
        cards: Properties of the GPUs, sorted; empty if the node has not reported them yet.
    """

    resources: Resources | None
    gpus: int
    cards: tuple[CardKind, ...] = ()


def size_of(resources: Resources | None, gpus: Iterable[Gpu], offered: int = 0) -> NodeSize:
    """Return the size of a node from its resources, its GPUs in any health, and the number of GPUs that it offers."""
    cards = [CardKind(gpu.model, gpu.memory_mib, gpu.compute_capability) for gpu in gpus]
    return NodeSize(resources, len(cards) or offered, tuple(sorted(cards, key=str)))


@dataclass(frozen=True, slots=True)
class GpuDefaults:
    """Default CPUs and memory of jobs with GPUs.

    Attributes:
        cpus_per_gpu: Operator's setting of CPUs for each GPU; with 0 jobs with GPUs get as many as others.
        mem_mib_per_gpu: Operator's setting of MiB for each GPU; with 0 jobs with GPUs get as much as others.
        executor: Resources of an executor, whose memory is added to that of its task.
        keeper: Resources of a node's executor of shared GPUs.
        cover: Resources of its task for each shared GPU.
        sizes: Sizes of all known nodes with GPUs that are not lost.
    """

    cpus_per_gpu: float
    mem_mib_per_gpu: int
    executor: Resources = NOTHING
    keeper: Resources = NOTHING
    cover: Resources = NOTHING
    sizes: frozenset[NodeSize] = frozenset()

    def amounts(self, spec: JobSpec) -> tuple[float, int]:
        """Return the default CPUs and memory in MiB of each task of a job.

        Each GPU counts with the operator's setting, or with the node's part for one GPU where that is less: the
        smallest part among the nodes that have the GPUs. A share of a GPU counts with its fraction. No job gets less
        than a job without GPUs, and a job gets exactly that while no known node has the GPUs.

        Args:
            spec: Request of the job, with `PLAIN_CPUS` and `PLAIN_MEM_MIB` where it left these open.
        """
        models_known = frozenset(card.model for size in self.sizes for card in size.cards)
        models = models_of(spec.gpu_model, models_known)
        sizes = (
            [size for size in self.sizes if _serves(size, spec, models, self.executor)] if spec.gpus else []
        )
        if not sizes:
            return PLAIN_CPUS, PLAIN_MEM_MIB
        part = spec.gpus * min(_part(size, spec) for size in sizes)
        cpu_milli = [round(self.cpus_per_gpu * 1000 * part)]
        mem_mib = [int(self.mem_mib_per_gpu * part)]
        for size in sizes:
            if size.resources is None:
                continue
            left = size.resources - self.keeper - self.cover.scaled(size.gpus)
            of_node = (1000 - RESERVE_PERMILLE) / 1000 * spec.gpus * _part(size, spec) / size.gpus
            cpu_milli.append(int(left.cpu_milli * of_node))
            mem_mib.append(int(left.mem_mib * of_node - self.executor.mem_mib))
        cpus = min(cpu_milli) // 100 / 10  # rounded down to tenths, to be readable
        return max(cpus, PLAIN_CPUS), max(min(mem_mib), PLAIN_MEM_MIB)

    def given_to(self, spec: JobSpec, left_open: Collection[str]) -> JobSpec:
        """Return a job with default values for those of `cpus` and `mem_mib` that its request left open.

        Args:
            spec: Request of the job, as in `amounts`.
            left_open: Names of these fields.
        """
        cpus, mem_mib = self.amounts(spec)
        if spec.cpu_limit is not None:
            cpus = min(cpus, spec.cpu_limit)
        return replace(
            spec,
            cpus=cpus if "cpus" in left_open else spec.cpus,
            mem_mib=mem_mib if "mem_mib" in left_open else spec.mem_mib,
        )


def _serves(size: NodeSize, spec: JobSpec, models: tuple[str, ...], executor: Resources) -> bool:
    """Return whether an empty node has the GPUs, as far as they are known, and room for the job as it is."""
    room = size.resources
    if room is not None and (
        room.cpu_milli < spec.cpus * 1000 or room.mem_mib < spec.mem_mib + executor.mem_mib
    ):
        return False
    if not size.cards:
        return size.gpus >= spec.gpus
    able = Counter(card.model for card in size.cards if _fits(card, spec, models))
    return max(able.values(), default=0) >= spec.gpus


def _part(size: NodeSize, spec: JobSpec) -> float:
    """Return the fraction of each GPU that a job requests; for a share in MiB, relative to the node's largest GPU."""
    if spec.is_share and spec.gpu_memory_mib is not None and size.cards:
        return min(1.0, spec.gpu_memory_mib / max(card.memory_mib for card in size.cards))
    return spec.counted_milli / spec.gpus / WHOLE


def _fits(card: CardKind, spec: JobSpec, models: tuple[str, ...]) -> bool:
    """Return whether a job may have a GPU; the memory of a share does not count."""
    if models and card.model not in models:
        return False
    enough = spec.is_share or spec.gpu_memory_mib is None or card.memory_mib >= spec.gpu_memory_mib
    return enough and as_new_as(card.compute_capability, spec.compute_capability)
