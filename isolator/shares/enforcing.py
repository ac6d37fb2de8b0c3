"""How a share is enforced on this host: what is written down, made and undone, by the method that it was granted.

A share that cannot be enforced as it was granted is refused: a task never runs unlimited that counts as limited.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from isolator.gpus.ledger import TURN_S, Claimed, Ledger, Owner, Refused, Stale, Trace
from isolator.gpus.share_claims import Room, ShareClaim
from isolator.host.not_started import NotStarted
from isolator.shares import card, files
from isolator.shares.files import Files
from isolator.shares.shim.region import Region
from isolator.shares.tenancy import Given, Measure, Tenancy
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.assignment import Assignment, Outcome

if TYPE_CHECKING:  # each costs every share what only some need
    from mesos_gpu.model.shares.card import MigInstance
    from mesos_gpu.model.tasks.resize import Resized


class Enforcing:
    """Keeps one task to its share."""

    def __init__(self, tenancy: Tenancy, ledger: Ledger, compute_milli: int) -> None:
        """Nothing is made. `compute_milli`: what all shares of a card may have of its compute."""
        self._tenancy, self._ledger, self._compute_milli = tenancy, ledger, compute_milli
        self._measures = measures(tenancy)
        self.resized: Resized | None = None  # the last answer to the wish for another share

    @property
    def tenancy(self) -> Tenancy:
        """The task, and what it has."""
        return self._tenancy

    def volume(self) -> Path | None:
        """The build of the driver volume that has the libraries for shares; None: it needs none, or there is none."""
        if not any(isinstance(measure, Files) for measure in self._measures):
            return None
        from isolator.shares.shim.volume import for_tasks

        return for_tasks(self._tenancy.own, self._tenancy.inventory)

    def see(self) -> None:
        """See that this host can do what was granted.

        Raises:
            NotStarted: It cannot, now: the task is to be placed again.
        """
        for measure in self._measures:
            if why := measure.lacks(self._tenancy):
                raise refused(self._tenancy, why)

    def traces(self) -> tuple[Trace, ...]:
        """What `make` leaves of the task, in its order."""
        return tuple(trace for measure in self._measures for trace in measure.traces(self._tenancy))

    def claim(self) -> ShareClaim:
        """What the ledger is asked for."""
        rooms = {gpu.id: _room(self._tenancy, gpu, self._compute_milli) for gpu in self._tenancy.gpus}
        cards = tuple(each for measure in self._measures for each in measure.cards(self._tenancy))
        return ShareClaim(self._tenancy.share, rooms, cards)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Have the cards to oneself, from the claim until all is made.

        Raises:
            Unavailable: Another is at work on them.
        """
        with self._ledger.turn(gpu.id for gpu in self._tenancy.gpus):
            yield

    def divide(self) -> "MigInstance":
        """Make the MIG instance that the share is to be, in the card's turn.

        Raises:
            NotStarted: It cannot be made there: the task is to be placed again.
        """
        from isolator.shares.driver.instances import Instance

        (measure,) = self._measures
        assert isinstance(measure, Instance)
        try:
            return measure.divide(self._tenancy)
        except MesosGpuError as error:
            raise refused(self._tenancy, error.what) from error

    def make(self, cgroups: tuple[str, ...], volume: Path | None) -> Given:
        """Make what keeps the task to its share, and what all shares of its cards need, in the cards' turn.

        Args:
            cgroups: That its processes join; they are there.
            volume: The build of the driver volume that is leased for it.

        Raises:
            NotStarted: It cannot be: the task must not start.
        """
        self._tenancy = replace(self._tenancy, cgroups=cgroups, volume=volume)
        given = Given()
        try:
            for measure in self._measures:
                given += measure.make(self._tenancy, self._ledger)
            self.plan()
        except (MesosGpuError, OSError) as error:
            what = error.what if isinstance(error, MesosGpuError) else str(error)
            raise refused(self._tenancy, what) from error
        return given

    def plan(self) -> None:
        """Plan anew the turns that the tasks of its cards take, in the cards' turn."""
        card.plan(self._ledger, [gpu.id for gpu in self._tenancy.gpus])

    def hold(self, owner: Owner, share: Share) -> Claimed | Refused | Stale:
        """Have the ledger hold another share of its cards, if it fits there."""
        claim = replace(self.claim(), share=share)
        return self._ledger.resize(self._tenancy.task, owner, claim)

    def limit(self, share: Share, before: Share) -> None:
        """Keep the running task to another share, in the cards' turn.

        Raises:
            Conflict, MesosGpuError, OSError: As `Measure.resize`; then it is kept to the one before, where it can be.
        """
        wanted, old = replace(self._tenancy, share=share), replace(self._tenancy, share=before)
        changed: list[Measure] = []
        try:
            for measure in self._measures:
                measure.resize(wanted, self._ledger, before)
                changed.append(measure)
        except (MesosGpuError, OSError):
            with contextlib.suppress(
                MesosGpuError, OSError
            ):  # of several cards some may be changed; it fails again
                measure.resize(old, self._ledger, share)
            for measure in reversed(changed):
                measure.resize(old, self._ledger, share)
            raise
        self._tenancy = wanted

    def let_go(self, owner: Owner) -> None:
        """Release the claim, as the function of that name."""
        gpus = [gpu.id for gpu in self._tenancy.gpus]
        let_go(self._ledger, self._tenancy.task, owner, self._tenancy.container, gpus)


def enforcing_of(
    plan: Assignment, task: str, container: str, ledger: Ledger, inventory: Inventory, own: Mapping[str, str]
) -> Enforcing:
    """What keeps a task to the share of its assignment.

    Raises:
        NotStarted: This host cannot, now.
    """
    assert plan.share is not None
    known = {gpu.id: gpu for gpu in inventory.gpus}
    if absent := [gpu for gpu in plan.gpus if gpu not in known]:
        raise NotStarted(
            f"{absent[0]} is not on this host now", Outcome(infrastructure=True, refused_gpus=plan.gpus)
        )
    tenancy = Tenancy(
        task=task,
        container=container,
        gpus=tuple(known[gpu] for gpu in plan.gpus),
        share=plan.share,
        node=ledger.directory,
        own=own,
        simulated=inventory.source == "simulated",
        inventory=inventory,
        user=plan.user,
        docker=plan.image is not None and plan.container_engine == "docker",
    )
    enforcing = Enforcing(tenancy, ledger, plan.shared_compute_milli)
    enforcing.see()
    return enforcing


def refused(tenancy: Tenancy, why: str) -> NotStarted:
    """A share that this host cannot give now."""
    method, gpus = tenancy.share.method, tuple(gpu.id for gpu in tenancy.gpus)
    text = f"a share of {', '.join(gpus)} by {method.value} is not to be had here: {why}"
    return NotStarted(text, Outcome(infrastructure=True, refused_gpus=gpus))


def _room(tenancy: Tenancy, gpu: Gpu, compute_milli: int) -> Room:
    if gpu.sharing is None:
        raise refused(tenancy, f"nothing is known of what {gpu.id} has for shares")
    return Room(gpu.sharing.memory_mib, compute_milli, gpu.sharing.mps_clients)


def measures(tenancy: Tenancy) -> tuple[Measure, ...]:
    """What keeps to a share by its method, in the order in which it is made: memory first. Simulated cards have no
    driver: there a task has its files, as on others, and what they say limits nothing.

    Raises:
        NotStarted: This program does not know how.
    """
    method = tenancy.share.method
    if method is Method.TURNS:  # the card's own
        return ()
    if method is Method.MIG:
        from isolator.shares.driver.instances import Instance

        return (Instance(),)
    if tenancy.simulated or method is Method.SHIM_WINDOWS:
        return (Files(),)
    memory: Measure = Files()
    if method.memory_by != "shim":
        from isolator.shares.driver.limits import CgroupLimits

        memory = CgroupLimits()
    if method.has_domain:
        from isolator.shares.by_mps import ByMps

        return (memory, ByMps())
    if method.compute_by == "windows":
        return (memory, Files())
    raise refused(tenancy, f"this program does not enforce {method.value}")


def undo(trace: Trace) -> list[int]:
    """Remove what a trace of a share names; harmless if it was never made, or is gone.

    Returns:
        Processes that would not die and keep it.

    Raises:
        MesosGpuError, OSError: It cannot be removed.
    """
    if trace.kind == files.KIND:
        Region(Path(trace.what)).remove()
        return []
    from isolator.shares.driver import limits

    if trace.kind == limits.KIND:
        limits.undo(trace)
        return []
    raise BadConfiguration(
        f"the ledger has a trace of an unknown kind, {trace.kind}", remedy="run the mesos_gpu that wrote it"
    )


def let_go(
    ledger: Ledger, task: str, owner: Owner, container: str, gpus: Sequence[GpuId], timeout_s: float = TURN_S
) -> None:
    """Release a share whose task has ended and whose traces are undone; what nobody on its cards needs any more is
    undone, and the others have their windows planned anew. `timeout_s`: for the cards' turn.

    Raises:
        MesosGpuError, OSError: That cannot be done now; the monitor tries again.
    """
    with ledger.turn(gpus, timeout_s):
        ledger.release(task, owner, container)
        card.settle(ledger, gpus)
