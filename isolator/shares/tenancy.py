"""What is known of a task that gets a share of each of its cards, and what it is given for that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.share_claims import CardTrace
from mesos_gpu.errors import Conflict
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.share import Share

INSTANCE: Final = "mig"  # kind of a row of a card: an instance that was made for a share


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
        inventory: All that the node's monitor says.
        docker: Whether the Docker Engine makes its container, and the cgroup of that: it is known at the gate.
        user: As whom it runs; None: the executor's own.
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
    """What a task gets for the sake of its share, beside its devices.

    Attributes:
        env: Set in its environment, whatever the job says.
        mounts: Of each path of the host: itself, where the task sees it, whether it may only read. In this order, and
            after the driver volume.
        over: Of a task that sees the host's file system, likewise, to read: what stands in the place of host files.
        notes: What its user is told of the share, in its log.
        at_gate: Of a container of the Docker Engine: what is done at its gate with its cgroup of version 2. Each is
            given that, and what writes down a trace (`Launch.leave`); it raises as `Measure.make`.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    over: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    at_gate: tuple[Callable[[Path, Callable[[Trace], None]], None], ...] = ()

    def __add__(self, other: "Given") -> "Given":
        """Give both."""
        return Given(
            {**self.env, **other.env},
            (*self.mounts, *other.mounts),
            (*self.over, *other.over),
            (*self.notes, *other.notes),
            (*self.at_gate, *other.at_gate),
        )


class InUse(Conflict):
    """A task uses more memory than it is to have. `used_mib`: how much, of the card where it is most."""

    def __init__(self, used_mib: int, wanted_mib: int) -> None:
        """Say both."""
        super().__init__(
            f"it has {used_mib} MiB in use, and would have {wanted_mib}",
            remedy="ask for more, or let it free memory first",
        )
        self.used_mib = used_mib


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

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Keep a running task to another share, that of `tenancy`, in place of the one before. The ledger has the more
        of both meanwhile.

        Raises:
            InUse: It has more memory in use than that; nothing was changed.
            Conflict: It cannot be changed while it runs; nothing was changed.
            MesosGpuError, OSError: It cannot be.
        """
