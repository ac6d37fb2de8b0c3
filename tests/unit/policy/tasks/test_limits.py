"""A task that had more memory than it asked for: what is said, and with which exit code."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.policy.tasks.blame import exit_code
from mesos_gpu.policy.tasks.limits import in_words, out_of_memory, used_in

MESOS = "Memory limit exceeded: Requested: 112MB Maximum Used: 112MB\n\nMEMORY STATISTICS: \ncache 8192\nrss 117\n"


def test_mesos_counters_become_one_line_and_137() -> None:
    status = Status(
        TaskId("t"), "TASK_FAILED", None, "REASON_CONTAINER_LIMITATION_MEMORY", "SOURCE_AGENT", MESOS
    )
    told, outcome = in_words(status, None, 64)
    assert told.message == "out of memory: 64 MiB asked, 112 used; ask for more with --mem"
    assert exit_code(outcome) == 137


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("TASK_FAILED", "REASON_COMMAND_EXECUTOR_FAILED"),
        ("TASK_RUNNING", "REASON_CONTAINER_LIMITATION_MEMORY"),
    ],
)
def test_message_of_other_ends_is_left_as_it_is(state: str, reason: str) -> None:
    status, outcome = Status(TaskId("t"), state, None, reason, "", MESOS), Outcome(exit_status=3)
    assert in_words(status, outcome, 64) == (status, outcome)


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("114684KB", 114684 << 10),
        ("7B", 7),
        ("2GB", 2 << 30),
        ("3TB 5", 3 << 40),
        ("3 TB", None),
        ("MB", None),
        ("", None),
        ("much", None),
        ("-1MB", None),
        ("²MB", None),
        (f"{'9' * 5000}MB", None),
    ],
)
def test_sizes_in_messages_of_mesos_are_read(said: str, used: int | None) -> None:
    assert used_in(f"Memory limit exceeded: Requested: 1MB Maximum Used: {said}\n\nrss 1\n") == used


def test_out_of_memory_message_leaves_out_what_is_unknown() -> None:
    assert out_of_memory(64, None) == "out of memory: 64 MiB asked; ask for more with --mem"
    assert (
        out_of_memory(0.5, (64 << 20) + 1) == "out of memory: 0.5 MiB asked, 65 used; ask for more with --mem"
    )


def test_outcome_of_an_executor_stays_beside_the_words_on_memory() -> None:
    status, outcome = (
        Status(TaskId("t"), "TASK_FAILED", None, "REASON_CONTAINER_LIMITATION_MEMORY", "", "over"),
        Outcome(exit_status=3),
    )
    told = replace(status, message=out_of_memory(64, None))
    assert in_words(status, outcome, 64) == (told, outcome)
    assert in_words(status, None, 64) == (told, Outcome(signal=9))


def test_message_without_the_words_of_mesos_says_nothing_of_memory() -> None:
    assert used_in("Memory limit exceeded: Requested: 1MB") is None
