"""Limits of a share in two shared files (`isolator.shares.shim.region`), for tasks that use our CUDA
libraries.

The host writes the limits of memory and compute there. The libraries, mounted in place of the driver's, read
them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.share_claims import CardTrace
from isolator.shares.shim.region import MIB, CardLimits, Region, region_of
from isolator.shares.tenancy import Given, MemoryInUse, Tenancy
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH
from volumes.keys import REGION, default_path

KIND: Final = "share"  # kind of a trace; it names the directory of the files
WINDOWS: Final = "windows"  # kind of a card's row; its state is the last plan of the tasks' windows
SEEN_AT: Final = f"{VOLUME_PATH}/{REGION}"  # path in the task


class Files:
    """`Measure` that limits memory, compute windows, or both, by our CUDA libraries (`isolator.shares.shim`)."""

    def lacks(self, tenancy: Tenancy) -> str:
        """Return why this host cannot use the libraries for this task; "" if it can."""
        if tenancy.simulated:
            return ""
        from isolator.shares.shim import (
            ability,  # deferred: they import what builds the libraries, which simulated cards do not need
        )
        from isolator.shares.shim.volume import for_tasks

        if for_tasks(tenancy.own, tenancy.inventory) is None:  # the reason is in the monitor's report
            return "there is no driver volume with the libraries for shares"
        return ability.switched_off(tenancy.own, tenancy.node)

    def traces(self, tenancy: Tenancy) -> tuple[Trace, ...]:
        """Return the trace of the files' directory."""
        return (Trace(KIND, str(_region(tenancy).path)),)

    def cards(self, tenancy: Tenancy) -> tuple[CardTrace, ...]:
        """Return a row for the plan of windows of each card; none if the method has no windows."""
        if tenancy.share.method.compute_by != "windows":
            return ()
        return tuple(CardTrace(gpu.id, WINDOWS, "") for gpu in tenancy.gpus)

    def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
        """Write the files, and return what to mount; windows are planned after all measures are made."""
        region = _region(tenancy)
        region.remove()  # left by a start that was cut short
        region.create(limits_of(tenancy))
        if tenancy.volume is None or not (tenancy.volume / REGION).is_dir():
            if tenancy.simulated:  # no library would read them
                return Given()
            raise Unavailable(
                "the driver volume with the libraries for shares is gone",
                remedy="none needed: the node monitor builds it again",
            )
        directory, usage = os.path.realpath(region.path), region.usage_path.name
        return Given(
            mounts=((directory, SEEN_AT, True), (f"{directory}/{usage}", f"{SEEN_AT}/{usage}", False)),
            over=_over(tenancy.own, tenancy.volume),
        )

    def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
        """Write other limits, as `Measure.resize`.

        A smaller limit is written first, so that the task cannot take more, and then compared with the memory
        in use; it is withdrawn if the task uses more.
        """
        region, limits = _region(tenancy), limits_of(tenancy)
        before_bytes = {card.gpu: card.memory_bytes for card in region.limits([card.gpu for card in limits])}
        _write(region, {card.gpu: card.memory_bytes for card in limits})
        if all(card.memory_bytes >= before_bytes.get(card.gpu, 0) for card in limits):
            return
        usage = region.usage([card.gpu for card in limits])
        over = [
            (usage.cards[card.gpu].memory_bytes, card.memory_bytes)
            for card in limits
            if card.gpu in usage.cards and usage.cards[card.gpu].memory_bytes > card.memory_bytes
        ]
        if over or usage.problem:
            _write(region, before_bytes)
        if usage.problem:
            raise Conflict(f"what it uses is not known: {usage.problem}", remedy="let it start again")
        if over:
            used, wanted = max(over)
            raise MemoryInUse(-(-used // MIB), wanted // MIB)


def _write(region: Region, memory_bytes: Mapping[GpuId, int]) -> None:
    for gpu, amount in memory_bytes.items():
        region.change(gpu, memory_bytes=amount)


def _over(own: Mapping[str, str], build: Path) -> tuple[tuple[str, str], ...]:
    """Return the files to mount over the host's own libraries: each of ours, and the path where the host has the
    driver's.
    """
    from isolator.shares.shim.volume import covers
    from volumes.store import Store

    volume = Store(default_path(own)).read(build)
    return tuple((str(ours), theirs) for ours, theirs in covers(volume)) if volume.variant else ()


def limits_of(tenancy: Tenancy) -> list[CardLimits]:
    """Return the task's limits, before windows are planned."""
    share = tenancy.share
    bursts = share.method.memory_by != "shim" and not tenancy.docker
    memory_mib = share.memory_max_mib if bursts else share.memory_mib
    return [CardLimits(GpuId(gpu.id), memory_mib * MIB) for gpu in tenancy.gpus]


def _region(tenancy: Tenancy) -> Region:
    return region_of(tenancy.node, TaskId(tenancy.task))
