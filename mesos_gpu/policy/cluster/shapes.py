"""Requests and nodes in the form in which the placement arrays index them."""

from dataclasses import dataclass

from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class Shape:
    """Amounts that a task takes; equal requests have equal shapes and are scored once.

    Attributes:
        cpu_milli: Thousandths of CPUs.
        mem_mib: Memory of the node in MiB.
        gpus: Number of GPUs.
        gpu_milli: Thousandths of each GPU, or of its compute only if `gpu_memory_milli` is given.
        models: Accepted models; empty for any.
        gpu_memory_milli: Thousandths of each GPU's memory; None if equal to `gpu_milli`.
    """

    cpu_milli: int
    mem_mib: int
    gpus: int = 0
    gpu_milli: int = WHOLE
    models: tuple[str, ...] = ()
    gpu_memory_milli: int | None = None

    def __post_init__(self) -> None:
        if self.gpus < 0 or not 0 < self.gpu_milli <= WHOLE or not 0 < self.memory_milli <= WHOLE:
            raise ValueError(f"{self}: number or parts of GPUs out of range")
        if self.gpus > 1 and self.gpu_milli != WHOLE and self.gpu_memory_milli is None:
            raise ValueError(f"{self}: a fraction must be of a single GPU")

    @property
    def memory_milli(self) -> int:
        """Thousandths of each GPU's memory."""
        return self.gpu_milli if self.gpu_memory_milli is None else self.gpu_memory_milli

    @property
    def each_milli(self) -> int:
        """Thousandths of each GPU: of its compute or its memory, whichever is more."""
        return max(self.gpu_milli, self.memory_milli)

    @property
    def milli(self) -> int:
        """Thousandths of a GPU that all GPUs of the shape make up together."""
        return self.gpus * self.each_milli

    @property
    def is_part(self) -> bool:
        """Whether the shape takes only parts of GPUs."""
        return self.gpus > 0 and min(self.gpu_milli, self.memory_milli) < WHOLE


@dataclass(frozen=True, slots=True)
class Row:
    """Capacity of a node as a row of the placement arrays.

    Attributes:
        cpu_milli: Free thousandths of CPUs.
        mem_mib: Free memory of the node in MiB.
        gpu_free_milli: Free thousandths of each GPU; 0 for one that is taken or must not be used, WHOLE if it is wholly
            free.
        model: Model of its GPUs; "" for a node without GPUs.
        gpu_parts: Free thousandths of compute and memory of each GPU; empty if both equal `gpu_free_milli`.
    """

    cpu_milli: int
    mem_mib: int
    gpu_free_milli: tuple[int, ...] = ()
    model: str = ""
    gpu_parts: tuple[tuple[int, int], ...] = ()
