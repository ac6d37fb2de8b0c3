"""MIG instances that this host makes for shares, where its operator allows it (MESOS_GPU_MIG=dynamic).

An instance is a row of its card in the ledger, written with the claim of the share, and is removed when no
share has it. It is made in the card's turn, before the task's device nodes, as its two capabilities are among
them.
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

_SIMULATED: Final = "simulated"  # state of a row whose instance no driver made


class Instance:
    """`Measure` of a share that is a MIG instance: the hardware enforces it.

    Args:
        calls: Client of the driver. By default that of this host's driver, by the executor's environment.
    """

    def __init__(self, calls: NvmlCalls | None = None) -> None:
        self._calls = calls
        self._uuid = ""  # UUID of the instance that was made

    def lacks(self, tenancy: Tenancy) -> str:
        """Return why the instance cannot be made on this host; "" if it can, or exists."""
        dynamic = tenancy.simulated or MIG.of(tenancy.own) == "dynamic"
        if dynamic or place_of(tenancy.share.instance) is None:
            return ""
        return f"{MIG.name} is not dynamic here: no instances are made"

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Return no traces: an instance belongs to its card."""
        return ()

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Return the row of an instance to be made; none if the share is one that exists."""
        if place_of(tenancy.share.instance) is None:
            return ()
        state = _SIMULATED if tenancy.simulated else ""
        return tuple(CardTrace(gpu.id, KIND, tenancy.share.instance, state) for gpu in tenancy.gpus)

    def divide(self, tenancy: Tenancy) -> MigInstance:
        """Make the instance, in the card's turn, after its row was written.

        Raises:
            Conflict: Another instance is in its place.
            Unavailable: It cannot be made.
        """
        place = place_of(tenancy.share.instance)
        assert place is not None
        (gpu,) = tenancy.gpus
        if tenancy.simulated:
            instance = _imagined(gpu, *place)
        else:
            calls = self._calls or calls_of(tenancy.own)
            instance = MigInstance(
                **calls.ask("make instance", uuid=gpu.id, profile=place[0], start=place[1])
            )
        self._uuid = instance.uuid
        return instance

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Make CUDA see only the instance, which `divide` has made."""
        uuid = self._uuid
        return Given({"CUDA_VISIBLE_DEVICES": uuid, "NVIDIA_VISIBLE_DEVICES": uuid} if uuid else {})

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Refuse to resize: the size of an instance is fixed.

        Raises:
            Conflict: In every case.
        """
        raise Conflict(
            "a MIG instance cannot be changed while it is used",
            remedy="submit the job again with the other amount",
        )


def _imagined(gpu: Gpu, profile: str, start: int) -> MigInstance:
    """Return the instance of a simulated card, which no driver makes."""
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
    """Return the inventory with an instance that the monitor has not reported yet.

    Args:
        gpu_id: Card of the instance.
        made: Instance to add.
    """
    return replace(
        inventory, gpus=tuple(_added(gpu, made) if gpu.id == gpu_id else gpu for gpu in inventory.gpus)
    )


def _added(gpu: Gpu, made: MigInstance) -> Gpu:
    if gpu.sharing is None:
        return gpu
    others = tuple(instance for instance in gpu.sharing.instances if instance.uuid != made.uuid)
    return replace(gpu, sharing=replace(gpu.sharing, instances=(*others, made)))


def sweep(ledger: Ledger, gpu: GpuId, held: Collection[str], calls: NvmlCalls | None = None) -> None:
    """Remove the instances that were made for shares of a card and that no share has, in the card's turn.

    Args:
        ledger: The ledger of this host.
        gpu: Card whose instances are removed.
        held: Instances that shares of the card have, as in `Share.instance`.
        calls: Client of the driver. By default the one for this process' environment.

    Raises:
        MesosGpuError: An instance cannot be removed; it stays in the ledger.
    """
    for row in ledger.cards(gpu):
        if row.kind == KIND and row.what not in held:
            undo(row, calls)
            ledger.forget(row)


def undo(row: CardTrace, calls: NvmlCalls | None = None) -> None:
    """Remove the instance that a row names; harmless if it was never made, or is gone.

    Raises:
        MesosGpuError: It cannot be removed: the driver does not answer, or a process uses it.
        BadConfiguration: The row does not name an instance.
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
