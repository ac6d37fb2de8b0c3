"""Requests and nodes as the arrays of placement index them."""

from dataclasses import dataclass

from mesos_gpu.model.share import WHOLE


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task takes. Requests that are alike have equal shapes: they are scored once.

    Attributes:
        gpus: Whole ones, or 1 if `gpu_milli` is less.
        gpu_milli: Of each GPU, in thousandths.
        models: Any of these, the first ones preferred if `ordered`; empty: any model.
    """

    cpu_milli: int
    mem_mib: int
    gpus: int = 0
    gpu_milli: int = WHOLE
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus < 0 or not 0 < self.gpu_milli <= WHOLE:
            raise ValueError(f"{self}: no such GPUs")
        if self.gpus > 1 and self.gpu_milli != WHOLE:
            raise ValueError(f"{self}: a fraction is of one GPU")

    @property
    def milli(self) -> int:
        """Thousandths of a GPU, of all its GPUs together."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the arrays: what of a node's capacity they index.

    Attributes:
        gpu_free_milli: Thousandths of each of its GPUs; 0 for one that is taken or must not be used.
        model: Of its GPUs; "": it has none.
    """

    cpu_milli: int
    mem_mib: int
    gpu_free_milli: tuple[int, ...] = ()
    model: str = ""
