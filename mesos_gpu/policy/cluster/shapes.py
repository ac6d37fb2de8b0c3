"""Requests and nodes as the arrays of placement index them."""

from dataclasses import dataclass

from mesos_gpu.model.shares.units import WHOLE


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task takes. Requests that are alike have equal shapes: they are scored once.

    Attributes:
        gpus: Whole ones, or 1 if `gpu_milli` is less.
        gpu_milli: Of each GPU, in thousandths; where its memory is said apart, only of its compute.
        models: Any of these, the first ones preferred if `ordered`; empty: any model.
        gpu_memory_milli: Of each GPU's memory, in thousandths; None: as much as `gpu_milli`.
    """

    cpu_milli: int
    mem_mib: int
    gpus: int = 0
    gpu_milli: int = WHOLE
    models: tuple[str, ...] = ()
    gpu_memory_milli: int | None = None

    def __post_init__(self) -> None:
        if self.gpus < 0 or not 0 < self.gpu_milli <= WHOLE or not 0 < self.memory_milli <= WHOLE:
            raise ValueError(f"{self}: no such GPUs")
        if self.gpus > 1 and self.gpu_milli != WHOLE and self.gpu_memory_milli is None:
            raise ValueError(f"{self}: a fraction is of one GPU")

    @property
    def memory_milli(self) -> int:
        """Thousandths of each GPU's memory."""
        return self.gpu_milli if self.gpu_memory_milli is None else self.gpu_memory_milli

    @property
    def each_milli(self) -> int:
        """Thousandths of each GPU: of its compute or of its memory, whichever is more."""
        return max(self.gpu_milli, self.memory_milli)

    @property
    def milli(self) -> int:
        """Thousandths of a GPU, of all its GPUs together."""
        return self.gpus * self.each_milli

    @property
    def is_part(self) -> bool:
        """Whether it takes less than whole GPUs."""
        return self.gpus > 0 and min(self.gpu_milli, self.memory_milli) < WHOLE


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the arrays: what of a node's capacity they index.

    Attributes:
        gpu_free_milli: Thousandths of each of its GPUs; 0 for one that is taken or must not be used. WHOLE: it can
            be taken wholly.
        model: Of its GPUs; "": it has none.
        gpu_parts: Of each GPU the compute and the memory that shares may have, in thousandths; empty: as much of
            both as `gpu_free_milli` says.
    """

    cpu_milli: int
    mem_mib: int
    gpu_free_milli: tuple[int, ...] = ()
    model: str = ""
    gpu_parts: tuple[tuple[int, int], ...] = ()
