"""MIG instances that this host makes for shares, where its operator lets it (MESOS_GPU_MIG=dynamic).

An instance is a row of its card, written with the claim of the share; whoever sees that no share has it removes it.
It is made in the card's turn, before the nodes of the task: its two capabilities are among them.
"""

import os
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.nvml_child import NvmlCalls
from isolator.gpus.share_claims import CardTrace
from isolator.shares.driver.limits import calls_of
from isolator.shares.tenancy import INSTANCE as KIND
from isolator.shares.tenancy import Given, Tenancy
from mesos_gpu.errors import BadConfiguration, Conflict, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.card import MigInstance
from mesos_gpu.model.shares.host_settings import MIG
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.sharing.mig import place_of

_SIMULATED: Final = "simulated"  # state of a row: no driver made it


class Instance:
    """`Measure` of a share that is a MIG instance: the hardware keeps it, and this makes it if need be."""

    def __init__(self, calls: NvmlCalls | None = None) -> None:
        """`calls`: None: this host's driver, as the executor's environment says."""
        self._calls = calls
        self._uuid = ""  # of the instance that was made

    def lacks(self, tenancy: Tenancy) -> str:
        """Say what is missing, as `Measure.lacks`."""
        dynamic = tenancy.simulated or MIG.of(tenancy.own) == "dynamic"
        if dynamic or place_of(tenancy.share.instance) is None:
            return ""
        return f"{MIG.name} is not dynamic here: no instances are made"

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Leave nothing of the task."""
        return ()

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Name the instance, unless it was there."""
        if place_of(tenancy.share.instance) is None:
            return ()
        state = _SIMULATED if tenancy.simulated else ""
        return tuple(CardTrace(gpu.id, KIND, tenancy.share.instance, state) for gpu in tenancy.gpus)

    def divide(self, tenancy: Tenancy) -> MigInstance:
        """Make the instance in the card's turn, when its row is written.

        Raises:
            Conflict: Something else is in its place.
            Unavailable: It cannot be made.
        """
        place = place_of(tenancy.share.instance)
        assert place is not None
        (gpu,) = tenancy.gpus
        if tenancy.simulated:
            made = _imagined(gpu, *place)
        else:
            calls = self._calls or calls_of(tenancy.own)
            made = MigInstance(**calls.ask("make instance", uuid=gpu.id, profile=place[0], start=place[1]))
        self._uuid = made.uuid
        return made

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Have CUDA see the instance, which was made before, and nothing else."""
        uuid = self._uuid
        return Given({"CUDA_VISIBLE_DEVICES": uuid, "NVIDIA_VISIBLE_DEVICES": uuid} if uuid else {})

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Refuse, as `Measure.resize`: an instance has its size."""
        raise Conflict(
            "a MIG instance cannot be changed while it is used",
            remedy="submit the job anew with the other amount; it is placed again",
        )


def _imagined(gpu: Gpu, profile: str, start: int) -> MigInstance:
    """The instance of a simulated card, which no driver makes."""
    kinds = gpu.sharing.profiles if gpu.sharing is not None else ()
    for kind in kinds:
        if kind.name == profile and start in kind.starts:
            uuid = f"MIG-{gpu.id.removeprefix('GPU-')}-{start}"
            return MigInstance(
                uuid,
                profile,
                kind.memory_mib,
                0,
                start,
                0,
                kind.compute_milli,
                kind.memory_milli,
                start,
                kind.width,
            )
    raise Unavailable(
        f"{gpu.id} has no place {profile}@{start} for a MIG instance", remedy="it is placed again"
    )


def with_instance(inventory: Inventory, gpu_id: GpuId, made: MigInstance) -> Inventory:
    """The inventory with an instance that the monitor has not seen yet."""
    return replace(
        inventory, gpus=tuple(_added(gpu, made) if gpu.id == gpu_id else gpu for gpu in inventory.gpus)
    )


def _added(gpu: Gpu, made: MigInstance) -> Gpu:
    if gpu.sharing is None:
        return gpu
    others = tuple(each for each in gpu.sharing.instances if each.uuid != made.uuid)
    return replace(gpu, sharing=replace(gpu.sharing, instances=(*others, made)))


def sweep(ledger: Ledger, gpu: GpuId, held: Collection[str], calls: NvmlCalls | None = None) -> None:
    """Remove the instances that were made for shares of a card and that no share has, in the card's turn.

    Args:
        ledger: Of this host.
        gpu: The card.
        held: Instances that its shares have, as of `Share`.
        calls: What asks the driver; None: as this process' environment says.

    Raises:
        MesosGpuError: One cannot be removed; it stays on record.
    """
    for row in ledger.cards(gpu):
        if row.kind == KIND and row.what not in held:
            undo(row, calls)
            ledger.forget(row)


def undo(row: CardTrace, calls: NvmlCalls | None = None) -> None:
    """Remove what a row names; harmless if it was never made, or is gone.

    Raises:
        MesosGpuError: It cannot be removed: the driver does not answer, or a process uses it.
        BadConfiguration: It names no instance.
    """
    place = place_of(row.what)
    if place is None:
        raise BadConfiguration(
            f"the ledger has a MIG instance {row.what!r} of {row.gpu}",
            remedy="run the mesos_gpu that wrote it",
        )
    if row.state != _SIMULATED:
        calls = calls or calls_of(os.environ)
        calls.ask("remove instance", uuid=row.gpu, profile=place[0], start=place[1])
