"""The use of cards, counted by task: of living holders and their real processes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.gpus.share_claims import Room, ShareClaim
from isolator.node.use import Counts
from isolator.node.whose import TICKS_PER_S, ticks_now
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, Span, TaskUse, Work
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.model.shares.share import Method, Share

GPU, OTHER = simulated_gpus(2, "Tesla T4", seed="counts")
HALF = ShareClaim(Share(400, 4096, 4096, Method.TURNS), {GPU.id: Room(GPU.memory_mib)})
READING = Reading(GPU, meters=Meters(power_mw=70000), span=Span(1000, 500))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What is claimed of it is so since second 1000."""
    return Ledger(tmp_path / "ledger.sqlite", lambda: 1000.0)


class Clock:
    """A second later at each look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_card_is_counted_from_look_to_look(ledger: Ledger) -> None:
    counts = Counts(ledger, Clock())
    first = replace(READING, span=None, xids=(13, 79), pids=(1, 2))
    assert counts.look([first]) == ((GpuUse(GPU.id, 1001.0, READING.meters, None, 2, 79),), ())
    counts.look([READING])
    ((card,), _) = counts.look([READING])
    assert card == GpuUse(GPU.id, 1003.0, READING.meters, Work(1001.0, 2000, 1000), None, 79)


def test_a_card_that_cannot_be_read_is_not_told_of_and_counts_anew(ledger: Ledger) -> None:
    counts = Counts(ledger, Clock())
    counts.look([READING])
    assert counts.look([replace(READING, unreadable="it hangs")]) == ((), ())
    ((card,), _) = counts.look([READING])
    assert card.work == Work(1002.0, 1000, 500)


def test_use_of_a_whole_card_is_its_holders(ledger: Ledger, pids: list[int]) -> None:
    assert isinstance(ledger.claim("a.1", [GPU.id], Owner.of(pids[0])), Claimed)
    counts = Counts(ledger, Clock())
    reading = replace(READING, pids=(pids[0],), process_mib=((pids[0], 300),))
    (_, (task,)) = counts.look([reading, Reading(OTHER)])
    assert task == TaskUse(TaskId("a.1"), GPU.id, 1001.0, 1, 300), "the card may have done it for another"
    (_, (task,)) = counts.look([reading, Reading(OTHER)])
    assert task == TaskUse(TaskId("a.1"), GPU.id, 1002.0, 1, 300, Work(1001.0, 1000, 500))


@pytest.mark.parametrize("since", [1001.5, 9000.0], ids=["meanwhile", "before the clock was set back"])
def test_use_before_a_claim_is_not_the_new_holders(tmp_path: Path, pids: list[int], since: float) -> None:
    """The next reading is of the time since this one began: the task was not there in a part of it."""
    ledger = Ledger(tmp_path / "ledger.sqlite", lambda: since)
    counts = Counts(ledger, Clock())
    counts.look([READING])
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    (_, (task,)) = counts.look([READING], ticks_now() - TICKS_PER_S)
    assert (task.at, task.work) == (1002.0, None)
    assert counts.look([READING])[1][0].work is None
    (_, (task,)) = counts.look([READING])
    assert task.work == Work(1003.0, 1000, 500)


def test_use_of_a_card_with_a_stranger_is_split_by_the_driver(ledger: Ledger, pids: list[int]) -> None:
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    both = replace(READING, pids=(pids[0], os.getpid()), process_mib=((pids[0], 300),))
    counts = Counts(ledger, Clock())
    (_, (task,)) = counts.look([both])
    assert (task.work, task.memory_mib) == (None, 300)
    assert counts.look([both])[1][0].work is None
    (_, (task,)) = counts.look([replace(both, process_busy_ms=((pids[0], 100), (os.getpid(), 400)))])
    assert task.work == Work(1002.0, 1000, 100)


def test_use_of_a_shared_card_is_split_by_processes(ledger: Ledger, pids: list[int]) -> None:
    for task, pid in zip(("a.1", "b.1"), pids, strict=True):
        held = ledger.claim(task, [GPU.id], Owner.of(pid), share=HALF)
        assert isinstance(held, Claimed)
    busy = ((pids[0], 500),)
    reading = replace(READING, pids=tuple(pids), process_mib=((pids[0], 300),), process_busy_ms=busy)
    counts = Counts(ledger, Clock())
    counts.look([reading])
    _, tasks = counts.look([reading])
    assert [(use.task_id, use.work, use.memory_mib) for use in tasks] == [
        ("a.1", Work(1001.0, 1000, 500), 300),
        ("b.1", Work(1001.0, 1000, 0), None),  # what the driver does not say of each is unknown
    ]
    assert [use.idle_since for use in tasks] == [None, 1001.0]


def test_idle_is_only_who_was_seen_idle_all_the_time(ledger: Ledger, pids: list[int]) -> None:
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    counts = Counts(ledger, Clock())

    def since(span: Span | None) -> float | None:
        (_, (task,)) = counts.look([replace(READING, span=span)])
        return task.idle_since

    idle = Span(1000, 0)
    assert since(idle) is None, "it may have taken the card since"
    assert [since(idle), since(idle), since(None), since(idle), since(READING.span)] == [
        1001.0,
        1001.0,
        None,
        1004.0,
        None,
    ]


def test_use_of_an_ended_task_is_forgotten(ledger: Ledger, pids: list[int]) -> None:
    owner = Owner.of(pids[0])
    ledger.claim("a.1", [GPU.id], owner)
    counts = Counts(ledger, Clock())
    counts.look([READING])
    ledger.release("a.1", owner)
    assert counts.look([READING])[1] == ()
    ledger.claim("a.1", [GPU.id], owner)
    counts.look([READING])
    (_, (task,)) = counts.look([READING])
    assert task.work == Work(1003.0, 1000, 500)


def test_task_that_only_holds_memory_is_idle(ledger: Ledger, pids: list[int]) -> None:
    """Alone on a card that does nothing, and beside a task that works."""
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    counts, alone = Counts(ledger, Clock()), replace(READING, pids=(pids[0],), process_mib=((pids[0], 9000),))
    for _ in range(2):
        (_, (task,)) = counts.look([replace(alone, span=Span(1000, 0))])
    assert (task.work, task.memory_mib, task.idle_since) == (Work(1001.0, 1000, 0), 9000, 1001.0)


def test_a_card_that_no_driver_tells_of_is_unknown(ledger: Ledger, pids: list[int]) -> None:
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    (card,), (task,) = Counts(ledger, Clock()).look([Reading(GPU)])
    assert card == GpuUse(GpuId(GPU.id), 1001.0)
    assert task == TaskUse(TaskId("a.1"), GPU.id, 1001.0)
