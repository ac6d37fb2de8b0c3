"""Lines of the log that others cause: the first few, and how many more there were."""

import logging

import pytest

from mesos_gpu.adapters.proofs.sparse import MAX, WITHIN_S, SparseLog


def test_sparse_log_counts_the_lines_it_holds_back(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = SparseLog(logging.getLogger("mesos_gpu.test"), "things", lambda: now)
    for i in range(MAX + 7):
        log.warn("thing %d", i)
    assert caplog.messages == [f"thing {i}" for i in range(MAX)]
    now = WITHIN_S
    log.warn("late")
    assert caplog.messages[MAX:] == ["7 more things were not written", "late"]
