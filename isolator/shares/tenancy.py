"""What is known of a task that gets a share of each of its cards, and what it is given for that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from isolator.gpus.ledger import CardTrace, Ledger, Trace
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.share import Share


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A task with its share.

    Attributes:
        task: Mesos' task id.
        container: Mesos' id of the executor's container; no other task of this host ever has it.
        gpus: Its cards, as the node's monitor says of them.
        share: What it has of each.
        node: The node directory.
        own: The executor's environment.
        simulated: Whether the cards are: then nothing is done to a driver.
        cgroups: Directories of the cgroups that its processes join; empty before they are known.
        volume: The build of the driver volume that is leased for it; None: there is none.
    """

    task: str
    container: str
    gpus: tuple[Gpu, ...]
    share: Share
    node: Path
    own: Mapping[str, str]
    simulated: bool = False
    cgroups: tuple[str, ...] = ()
    volume: Path | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What a task gets for the sake of its share, beside its devices.

    Attributes:
        env: Set in its environment, whatever the job says.
        mounts: Of each path of the host: itself, where the task sees it, whether it may only read. In this order, and
            after the driver volume.
        volume: In place of the driver volume; None: that one.
        notes: What its log is to say of the share.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    volume: Path | None = None
    notes: tuple[str, ...] = ()

    def __add__(self, other: "Given") -> "Given":
        """Give both."""
        return Given(
            {**self.env, **other.env},
            (*self.mounts, *other.mounts),
            other.volume or self.volume,
            (*self.notes, *other.notes),
        )


class Measure(Protocol):
    """A way to keep tasks to their memory or their compute (`Method.memory_by`, `Method.compute_by`).

    `make` and `resize` are called in the card's turn (`Ledger.turn`), when the ledger has the claim, `traces` and
    `cards`. What they leave is undone by trace: `isolator.shares.enforcing.undo`, `isolator.shares.card.undo`.
    """

    def lacks(self, tenancy: Tenancy) -> str:
        """Why this host cannot do it now; "": it can."""

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """What `make` leaves of the task."""

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """What `make` leaves of its cards, for all their shares; made by the first of them, adopted by the others."""

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Make it, or find that it is there and right.

        Raises:
            MesosGpuError, OSError: It cannot be: the task must not start.
        """

    def resize(self, tenancy: Tenancy, ledger: Ledger) -> None:
        """Keep a running task to another share, that of `tenancy`.

        Raises:
            Conflict: It has more in use than that, or cannot be changed while it runs; nothing was changed.
            MesosGpuError, OSError: It cannot be.
        """
