"""Task with a share of its cards, the measures that enforce the share, and what they give to the task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.share_claims import CardTrace
from mesos_gpu.errors import Conflict
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.share import Share

INSTANCE: Final = "mig"  # kind of a card's row: a MIG instance that was made for a share


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A task with its share.

    Attributes:
        task: Task id in Mesos.
        container: Mesos' id of the executor's container, unique on this host for all time.
        gpus: Cards of the task, as the node's monitor reports them.
        share: Share that the task has of each card.
        node: The node directory.
        own: Environment of the executor.
        simulated: Whether the cards are simulated; no driver is touched then.
        cgroups: Cgroup directories that the task's processes join; empty before they are known.
        volume: Build of the driver volume that is leased for the task, or None.
        inventory: Full report of the node's monitor.
        docker: Whether the Docker Engine makes the container and its cgroup, which is known at the gate only.
        user: User that the task runs as; None for the executor's own.
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
    inventory: Inventory = field(default_factory=Inventory)
    docker: bool = False
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """Additions to a task for the sake of its share, besides its devices.

    Attributes:
        env: Environment variables that override the job's.
        mounts: Bind mounts (path on the host, path in the task, read-only), in this order, after the driver
            volume.
        over: Read-only bind mounts over host files (path of the new file, path on the host), for a task that
            sees the host's file system.
        notes: Remarks on the share for the task's log.
        at_gate: Functions called while a container of the Docker Engine waits at its gate, with its cgroup
            (version 2) and a function that records a trace (`Launch.leave`); they raise as `Measure.make`.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    over: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    at_gate: tuple[Callable[[Path, Callable[[Trace], None]], None], ...] = ()

    def __add__(self, other: "Given") -> "Given":
        """Combine the additions of two measures."""
        return Given(
            {**self.env, **other.env},
            (*self.mounts, *other.mounts),
            (*self.over, *other.over),
            (*self.notes, *other.notes),
            (*self.at_gate, *other.at_gate),
        )


class MemoryInUse(Conflict):
    """Error: a task uses more memory than its new limit.

    Attributes:
        used_mib: MiB in use on the card where it is most.
    """

    def __init__(self, used_mib: int, wanted_mib: int) -> None:
        super().__init__(
            f"{used_mib} MiB are in use, more than the {wanted_mib} MiB asked for",
            remedy="ask for more, or let it free memory first",
        )
        self.used_mib = used_mib


class Measure(Protocol):
    """A way to limit the memory or the compute of tasks (`Method.memory_by`, `Method.compute_by`).

    `make` and `resize` are called in the card's turn (`Ledger.turn`), when the ledger has the claim, `traces`
    and `cards`. What they leave is undone by trace: `isolator.shares.enforcing.undo`,
    `isolator.shares.card.undo`.
    """

    def lacks(self, tenancy: Tenancy) -> str:
        """Return why this host cannot enforce the share now; "" if it can."""

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Return the traces that `make` leaves for the task."""

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Return the rows that `make` leaves for the cards; all their shares use them, and the first one
        makes them.
        """

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Make what enforces the share, or adopt it if it is there and right.

        Raises:
            MesosGpuError, OSError: It cannot be made; the task must not start.
        """

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Limit a running task to the share of `tenancy` in place of `before`.

        The ledger holds the larger of both sizes meanwhile.

        Raises:
            MemoryInUse: The task has more memory in use; nothing was changed.
            Conflict: The share cannot be changed while the task runs; nothing was changed.
            MesosGpuError, OSError: The change failed.
        """
