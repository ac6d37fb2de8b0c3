"""Work of other processes on a card that a task holds whole: only what they are known to have done is taken off."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger, Owner
from isolator.node.use import Counts
from mesos_gpu.model.nodes.gpu_use import Work
from tests.unit.isolator.node.test_use import GPU, READING, Clock


@pytest.mark.parametrize(("other_ms", "own_ms"), [(0, 500), (1, 100), (400, 100)])
def test_use_of_a_card_is_the_holders_unless_another_process_worked(
    tmp_path: Path, pids: list[int], other_ms: int, own_ms: int
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", lambda: 1000.0)
    ledger.claim("a.1", [GPU.id], Owner.of(pids[0]))
    counts = Counts(ledger, Clock())
    reading = replace(READING, pids=(pids[0],), process_busy_ms=((pids[0], 100), (os.getpid(), other_ms)))
    counts.look([reading])
    (_, (task,)) = counts.look([reading])
    assert task.work == Work(1001.0, 1000, own_ms)
