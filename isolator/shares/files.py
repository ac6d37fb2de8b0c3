"""The two files of a task that has a share (`isolator.shares.shim.region`): what limits its memory and its turns is
written there for the libraries that it gets in place of the driver's."""

import os
from typing import Final

from isolator.gpus.ledger import CardTrace, Ledger, Trace
from isolator.shares.shim.region import MIB, CardLimits, Region, region_of
from isolator.shares.tenancy import Given, Tenancy
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.policy.gpus.image import VOLUME_PATH

KIND: Final = "share"  # of a trace: the directory of the files
WINDOWS: Final = "windows"  # kind of a row: how the tasks of a card take turns; its state is the last plan
SHARE: Final = "share"  # an empty directory in the variant of the driver volume that has those libraries
SEEN_AT: Final = f"{VOLUME_PATH}/{SHARE}"  # in the task


class Files:
    """`Measure` by the libraries of `isolator.shares.shim`: memory, windows of compute, or both."""

    def lacks(self, tenancy: Tenancy) -> str:
        """Say what is missing, as `Measure.lacks`."""
        return "" if tenancy.simulated else "this host has no driver volume with the libraries for shares"

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Name the directory."""
        return (Trace(KIND, str(_region(tenancy).path)),)

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Name the plan of windows of each card, if its tasks take turns by one."""
        if tenancy.share.method.compute_by != "windows":
            return ()
        return tuple(CardTrace(gpu.id, WINDOWS, "") for gpu in tenancy.gpus)

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Write the files, as `Measure.make`; windows are planned when all is made."""
        region = _region(tenancy)
        region.remove()  # of an attempt that was cut short
        region.create(limits_of(tenancy))
        if tenancy.volume is None or not (tenancy.volume / SHARE).is_dir():
            return Given()  # of simulated cards: there is nothing that would read them
        directory, usage = os.path.realpath(region.path), region.usage_path.name
        return Given(
            mounts=((directory, SEEN_AT, True), (f"{directory}/{usage}", f"{SEEN_AT}/{usage}", False))
        )

    def resize(self, tenancy: Tenancy, ledger: Ledger) -> None:
        """Write other limits, as `Measure.resize`."""
        region = _region(tenancy)
        gpus = [gpu.id for gpu in tenancy.gpus]
        usage, wanted = region.usage(gpus), limits_of(tenancy)
        for card in wanted:
            used = usage.cards[card.gpu].memory_bytes if card.gpu in usage.cards else 0
            if used > card.memory_bytes:
                raise Conflict(
                    f"it has {-(-used // MIB)} MiB of {card.gpu} in use, and {card.memory_bytes // MIB} are asked for",
                    remedy="ask for more, or let it free memory first",
                )
        for card in wanted:
            region.change(card.gpu, memory_bytes=card.memory_bytes)


def limits_of(tenancy: Tenancy) -> list[CardLimits]:
    """What the task is limited to, before windows are planned."""
    share = tenancy.share
    memory_mib = share.memory_mib if share.method.memory_by == "shim" else share.memory_max_mib
    return [CardLimits(GpuId(gpu.id), memory_mib * MIB) for gpu in tenancy.gpus]


def _region(tenancy: Tenancy) -> Region:
    return region_of(tenancy.node, TaskId(tenancy.task))
