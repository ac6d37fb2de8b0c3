"""The two files of a task that has a share (`isolator.shares.shim.region`): what limits its memory and its turns is
written there for the libraries that it gets in place of the driver's."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.share_claims import CardTrace
from isolator.shares.shim.region import MIB, CardLimits, Region, region_of
from isolator.shares.tenancy import Given, InUse, Tenancy
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH
from volumes.keys import REGION, default_path

KIND: Final = "share"  # of a trace: the directory of the files
WINDOWS: Final = "windows"  # kind of a row: how the tasks of a card take turns; its state is the last plan
SEEN_AT: Final = f"{VOLUME_PATH}/{REGION}"  # in the task


class Files:
    """`Measure` by the libraries of `isolator.shares.shim`: memory, windows of compute, or both."""

    def lacks(self, tenancy: Tenancy) -> str:
        """Say what is missing, as `Measure.lacks`."""
        if tenancy.simulated:
            return ""
        from isolator.shares.shim import (
            ability,  # with what builds them, which simulated cards need not pay for
        )
        from isolator.shares.shim.volume import for_tasks

        if for_tasks(tenancy.own, tenancy.inventory) is None:  # the monitor says why
            return "there is no driver volume with the libraries for shares"
        return ability.switched_off(tenancy.own, tenancy.node)

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
        if tenancy.volume is None or not (tenancy.volume / REGION).is_dir():
            if tenancy.simulated:  # there is nothing that would read them
                return Given()
            raise Unavailable(
                "the driver volume with the libraries for shares is gone", remedy="it is built again"
            )
        directory, usage = os.path.realpath(region.path), region.usage_path.name
        return Given(
            mounts=((directory, SEEN_AT, True), (f"{directory}/{usage}", f"{SEEN_AT}/{usage}", False)),
            over=_over(tenancy.own, tenancy.volume),
        )

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Write other limits, as `Measure.resize`. What is asked for less is compared with what is in use when nothing
        more can be had."""
        region, limits = _region(tenancy), limits_of(tenancy)
        old = {card.gpu: card.memory_bytes for card in region.limits([card.gpu for card in limits])}
        _write(region, {card.gpu: card.memory_bytes for card in limits})
        if all(card.memory_bytes >= old.get(card.gpu, 0) for card in limits):
            return
        usage = region.usage([card.gpu for card in limits])
        over = [
            (usage.cards[card.gpu].memory_bytes, card.memory_bytes)
            for card in limits
            if card.gpu in usage.cards and usage.cards[card.gpu].memory_bytes > card.memory_bytes
        ]
        if over or usage.problem:
            _write(region, old)
        if usage.problem:
            raise Conflict(f"what it uses is not known: {usage.problem}", remedy="let it start again")
        if over:
            used, wanted = max(over)
            raise InUse(-(-used // MIB), wanted // MIB)


def _write(region: Region, memory_bytes: Mapping[GpuId, int]) -> None:
    for gpu, amount in memory_bytes.items():
        region.change(gpu, memory_bytes=amount)


def _over(own: Mapping[str, str], build: Path) -> tuple[tuple[str, str], ...]:
    """Our libraries, and where the host has the driver's own: a task that loads those gets ours."""
    from isolator.shares.shim.volume import covers
    from volumes.store import Store

    volume = Store(default_path(own)).read(build)
    return tuple((str(ours), theirs) for ours, theirs in covers(volume)) if volume.variant else ()


def limits_of(tenancy: Tenancy) -> list[CardLimits]:
    """What the task is limited to, before windows are planned."""
    share = tenancy.share
    bursts = share.method.memory_by != "shim" and not tenancy.docker
    memory_mib = share.memory_max_mib if bursts else share.memory_mib
    return [CardLimits(GpuId(gpu.id), memory_mib * MIB) for gpu in tenancy.gpus]


def _region(tenancy: Tenancy) -> Region:
    return region_of(tenancy.node, TaskId(tenancy.task))
