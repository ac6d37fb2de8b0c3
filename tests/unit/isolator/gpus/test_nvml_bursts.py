"""What the counts make of what happens between looks, on cards whose driver keeps samples as drivers do."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from isolator.gpus.ledger import Ledger, Owner
from isolator.gpus.share_claims import Room, ShareClaim
from isolator.node.use import Counts
from mesos_gpu.adapters.nvml.session import Nvml
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from mesos_gpu.model.shares.share import Method, Share
from tests.doubles.nvml.fake import FakeNvml
from tests.doubles.nvml.samples import Kernels, samples_at

GPUS = simulated_gpus(1, "Tesla T4", seed="bursts")
(GPU,) = GPUS
HALF = ShareClaim(Share(400, 4096, 4096, Method.TURNS), {GPU.id: Room(GPU.memory_mib)})
S: Final = 1_000_000  # microseconds
NOON_S: Final = 1_700_000_000
LOOK_S: Final = 10


class Bench:
    """A node with one card, looked at as its monitor does."""

    def __init__(self, directory: Path) -> None:
        self.now_s = float(NOON_S)
        self.ledger = Ledger(directory / "ledger.sqlite", lambda: self.now_s)
        self._cards: dict[str, Any] = {}
        self.restart()

    def restart(self) -> None:
        """Let another monitor go on."""
        self._nvml = Nvml(FakeNvml(GPUS, {"cards": self._cards}))
        self._nvml.open()
        self._counts = Counts(self.ledger, lambda: self.now_s)

    def look(self, processes: Mapping[int, Kernels], after_s: float = LOOK_S) -> tuple[TaskUse, ...]:
        self.now_s += after_s
        self._cards["0"] = samples_at(int(self.now_s * S), processes)
        return self._look()

    def refused(self) -> tuple[TaskUse, ...]:
        """Look at a card whose driver refuses what is asked of use, as of one that is cut by MIG."""
        self._cards["0"] = {"pids": []}
        return self._look()

    def _look(self) -> tuple[TaskUse, ...]:
        return self._counts.look(self._nvml.survey().readings)[1]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def bursts(burst_ms: int, every_s: float, of_s: int = 1000) -> list[tuple[int, int]]:
    """Kernels of so many milliseconds, the first soon after the beginning, at no round times."""
    first = NOON_S * S + 1_234_567
    return [(at, at + burst_ms * 1000) for at in range(first, first + of_s * S, int(every_s * S))]


def work(uses: tuple[TaskUse, ...]) -> Work:
    (use,) = uses
    assert use.work is not None
    return use.work


@pytest.mark.parametrize("look_s", [pytest.param(1, marks=pytest.mark.long), 3, 10])
def test_a_kernel_of_50_ms_every_20_s_is_busy_time_to_within_a_fifth(
    bench: Bench, pids: list[int], look_s: float
) -> None:
    bench.ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    kernels = {pids[0]: bursts(50, 20)}
    bench.look(kernels, look_s)
    for _ in range(int(400 / look_s)):
        counted = work(bench.look(kernels, look_s))
    assert counted.seen_ms == pytest.approx(400_000, rel=0.03)
    assert counted.busy_ms == pytest.approx(20 * 50, rel=0.2)


def test_a_buffer_that_has_wrapped_leaves_unknown_what_it_forgot(bench: Bench, pids: list[int]) -> None:
    """A look each minute sees the last 100 samples, which is a quarter of it."""
    bench.ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    busy = {pids[0]: [(NOON_S * S, (NOON_S + 1000) * S)]}
    bench.look(busy, 60)
    for _ in range(5):
        counted = work(bench.look(busy, 60))
    assert counted.busy_ms == counted.seen_ms == pytest.approx(5 * 100 * 1000 / 6, rel=0.01)


def test_a_card_that_is_cut_by_mig_is_unknown_from_then_on(bench: Bench, pids: list[int]) -> None:
    bench.ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    idle: dict[int, Kernels] = {pids[0]: []}
    for _ in range(3):
        before = bench.look(idle)
    assert work(before).busy_ms == 0
    (after,) = bench.refused()
    assert (after.work, after.idle_since) == (work(before), None), "no time was added to either"


def test_a_monitor_that_restarts_counts_anew_and_says_so(bench: Bench, pids: list[int]) -> None:
    bench.ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    kernels = {pids[0]: bursts(500, 5)}
    bench.look(kernels)
    for _ in range(5):
        before = work(bench.look(kernels))
    bench.restart()
    uses = bench.look(kernels)
    assert uses[0].work is None, "what was before its first look it cannot know"
    after = work(bench.look(kernels))
    assert after.since > before.since
    assert after.seen_ms < before.seen_ms


def test_two_tasks_on_a_card_each_have_their_own_time(bench: Bench, pids: list[int]) -> None:
    """Let one compute half of the time; the other keeps itself alive with a short kernel: it is not taken for busy."""
    for task, pid in zip(("a.1", "b.1"), pids, strict=True):
        bench.ledger.claim(task, [GPU.id], Owner.of(pid), share=HALF)
    kernels: dict[int, Kernels] = {pids[0]: bursts(1000, 2), pids[1]: bursts(50, 20)}
    bench.look(kernels)
    for _ in range(40):
        uses = bench.look(kernels)
    (busy, idle) = [use.work for use in uses]
    assert busy is not None
    assert idle is not None
    assert busy.busy_ms == pytest.approx(busy.seen_ms / 2, rel=0.05)
    assert 0 < idle.busy_ms < idle.seen_ms * 0.01


def test_task_that_only_holds_memory_beside_another_is_idle(bench: Bench, pids: list[int]) -> None:
    for task, pid in zip(("a.1", "b.1"), pids, strict=True):
        bench.ledger.claim(task, [GPU.id], Owner.of(pid), share=HALF)
    kernels: dict[int, Kernels] = {pids[0]: bursts(1000, 2), pids[1]: []}
    for _ in range(5):
        uses = bench.look(kernels)
    assert [use.idle_since is not None for use in uses] == [False, True]
    assert uses[1].processes == 1


def test_a_stranger_on_the_card_makes_nobody_busy(bench: Bench, pids: list[int]) -> None:
    bench.ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    kernels: dict[int, Kernels] = {pids[0]: [], os.getpid(): bursts(1000, 2)}
    for _ in range(5):
        uses = bench.look(kernels)
    assert work(uses).busy_ms == 0
