"""Enforcement of a share on this host: what is recorded, made and undone, by the method that was granted.

A share that cannot be enforced as granted is refused: a task that counts as limited never runs unlimited.
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

if TYPE_CHECKING:  # deferred: few shares need them, and each import slows the start
    from mesos_gpu.model.shares.card import MigInstance
    from mesos_gpu.model.tasks.resize import ResizeAnswer


class Enforcing:
    """Enforcement of one task's share.

    Args:
        tenancy: The task and its share.
        ledger: The ledger of this host.
        compute_milli: Thousandths of a card's compute that all its shares together may have.
    """

    def __init__(self, tenancy: Tenancy, ledger: Ledger, compute_milli: int) -> None:
        self._tenancy, self._ledger, self._compute_milli = tenancy, ledger, compute_milli
        self._measures = measures(tenancy)
        self.resized: ResizeAnswer | None = None  # answer to the last resize request

    @property
    def tenancy(self) -> Tenancy:
        """The task and its share."""
        return self._tenancy

    def volume(self) -> Path | None:
        """Return the build of the driver volume with our CUDA libraries; None if the share needs none, or
        none is built.
        """
        if not any(isinstance(measure, Files) for measure in self._measures):
            return None
        from isolator.shares.shim.volume import for_tasks

        return for_tasks(self._tenancy.own, self._tenancy.inventory)

    def see(self) -> None:
        """Check that this host can enforce the share as granted.

        Raises:
            NotStarted: It cannot now; the task is to be placed again.
        """
        for measure in self._measures:
            if why := measure.lacks(self._tenancy):
                raise refused(self._tenancy, why)

    def traces(self) -> tuple[Trace, ...]:
        """Return the traces that `make` leaves for the task, in the order in which they are made."""
        return tuple(trace for measure in self._measures for trace in measure.traces(self._tenancy))

    def claim(self) -> ShareClaim:
        """Return the claim to make in the ledger for this share."""
        rooms = {gpu.id: _room(self._tenancy, gpu, self._compute_milli) for gpu in self._tenancy.gpus}
        cards = tuple(row for measure in self._measures for row in measure.cards(self._tenancy))
        return ShareClaim(self._tenancy.share, rooms, cards)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the turn of all cards of the task, from the claim until everything is made.

        Raises:
            Unavailable: Another process works on one of the cards.
        """
        with self._ledger.turn(gpu.id for gpu in self._tenancy.gpus):
            yield

    def divide(self) -> "MigInstance":
        """Make the MIG instance that the share is to be, in the card's turn.

        Raises:
            NotStarted: It cannot be made there; the task is to be placed again.
        """
        from isolator.shares.driver.instances import Instance

        (measure,) = self._measures
        assert isinstance(measure, Instance)
        try:
            return measure.divide(self._tenancy)
        except MesosGpuError as error:
            raise refused(self._tenancy, error.what) from error

    def make(self, cgroups: tuple[str, ...], volume: Path | None) -> Given:
        """Make what limits the task, and what all shares of its cards need, in the cards' turn.

        Args:
            cgroups: Existing cgroups that the task's processes join.
            volume: Build of the driver volume that is leased for the task; None if it needs none.

        Raises:
            NotStarted: It cannot be made; the task must not start.
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
        """Plan again when each task of these cards may compute, in the cards' turn."""
        card.plan(self._ledger, [gpu.id for gpu in self._tenancy.gpus])

    def hold(self, owner: Owner, share: Share) -> Claimed | Refused | Stale:
        """Claim another size of the share in the ledger; return its answer."""
        claim = replace(self.claim(), share=share)
        return self._ledger.resize(self._tenancy.task, owner, claim)

    def limit(self, share: Share, before: Share) -> None:
        """Set other limits for the running task, in the cards' turn.

        Raises:
            Conflict, MesosGpuError, OSError: As for `Measure.resize`; the limits before are restored as far
                as possible.
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
            ):  # some of its cards may be changed already; restoring may fail as well
                measure.resize(old, self._ledger, share)
            for measure in reversed(changed):
                measure.resize(old, self._ledger, share)
            raise
        self._tenancy = wanted

    def let_go(self, owner: Owner) -> None:
        """Release the claim of this task, as the function `let_go`."""
        gpus = [gpu.id for gpu in self._tenancy.gpus]
        let_go(self._ledger, self._tenancy.task, owner, self._tenancy.container, gpus)


def enforcing_of(
    plan: Assignment, task: str, container: str, ledger: Ledger, inventory: Inventory, own: Mapping[str, str]
) -> Enforcing:
    """Return the checked enforcement of an assignment's share.

    Raises:
        NotStarted: This host cannot enforce it now.
    """
    assert plan.share is not None
    cards = {gpu.id: gpu for gpu in inventory.gpus}
    if absent := [gpu for gpu in plan.gpus if gpu not in cards]:
        raise NotStarted(
            f"{absent[0]} is not on this host now", Outcome(infrastructure=True, refused_gpus=plan.gpus)
        )
    tenancy = Tenancy(
        task=task,
        container=container,
        gpus=tuple(cards[gpu] for gpu in plan.gpus),
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
    """Return the error for a share that this host cannot enforce now."""
    method, gpus = tenancy.share.method, tuple(gpu.id for gpu in tenancy.gpus)
    text = f"a share of {', '.join(gpus)} by {method.value} cannot be enforced on this host: {why}"
    return NotStarted(text, Outcome(infrastructure=True, refused_gpus=gpus))


def _room(tenancy: Tenancy, gpu: Gpu, compute_milli: int) -> Room:
    if gpu.sharing is None:
        raise refused(tenancy, f"the node monitor reports no shareable memory of {gpu.id}")
    return Room(gpu.sharing.memory_mib, compute_milli, gpu.sharing.mps_clients)


def measures(tenancy: Tenancy) -> tuple[Measure, ...]:
    """Return the measures that enforce a share by its method, memory first, in the order in which they are
    made.

    Simulated cards have no driver: a task there has the files of its share, which limit nothing.

    Raises:
        NotStarted: This program does not know the method.
    """
    method = tenancy.share.method
    if method is Method.TURNS:  # the card itself lets its processes take turns
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
        Pids of processes that use it and could not be killed.

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
    """Release a share whose task has ended and whose traces are undone, then settle its cards.

    Args:
        timeout_s: Seconds to wait for the cards' turn.

    Raises:
        MesosGpuError, OSError: That cannot be done now; the monitor tries again.
    """
    with ledger.turn(gpus, timeout_s):
        ledger.release(task, owner, container)
        card.settle(ledger, gpus)
