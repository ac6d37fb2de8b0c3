"""Ends of tasks for lack of memory, from files of cgroups: whose lack it was, and what is said."""

from pathlib import Path

import pytest

from isolator.devices.cgroups import Cgroup, Version
from isolator.runs.memory import explained, most_used
from isolator.runs.run import Ended

KILLED = Ended(signal=9)
V1 = {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "memory.failcnt": "7\n"}
V2 = {"memory.events": "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n"}


def cgroup(directory: Path, version: Version, files: dict[str, str]) -> Cgroup:
    """Make a cgroup of files."""
    for name, text in files.items():
        (directory / name).write_text(text)
    return Cgroup(version, directory, own=True)


@pytest.mark.parametrize(
    ("version", "files"),
    [
        ("cgroup1", {**V1, "memory.max_usage_in_bytes": f"{64 << 20}\n"}),
        ("cgroup1", {**V1, "memory.failcnt": "0\n", "memory.limit_in_bytes": f"{64 << 20}\n",
                     "memory.max_usage_in_bytes": f"{(63 << 20) + 1}\n"}),
        ("cgroup2", {**V2, "memory.peak": f"{64 << 20}\n"}),
    ],
    ids=["v1", "v1-with-swap", "v2"],
)  # fmt: skip
def test_task_that_met_its_own_limit_is_out_of_memory(
    tmp_path: Path, version: Version, files: dict[str, str]
) -> None:
    ended = explained(KILLED, cgroup(tmp_path, version, files), 64)
    assert ended.limit == "out of memory: 64 MiB asked, 64 used; ask for more with --mem"
    assert not ended.infrastructure


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (
            "cgroup1",
            {
                **V1,
                "memory.failcnt": "0\n",
                "memory.limit_in_bytes": f"{64 << 20}\n",
                "memory.max_usage_in_bytes": "1\n",
            },
        ),
        ("cgroup2", {"memory.events": "max 0\noom 0\noom_kill 2\n", "memory.peak": "1\n"}),
    ],
    ids=["v1", "v2"],
)
def test_task_that_is_killed_for_others_is_not_to_blame(
    tmp_path: Path, version: Version, files: dict[str, str]
) -> None:
    ended = explained(KILLED, cgroup(tmp_path, version, files), 64)
    assert (ended.limit, ended.infrastructure) == ("", True)
    assert (
        ended.why
        == "the host ran out of memory, and the kernel ended processes of the task, with 1 of 64 MiB"
    )


@pytest.mark.parametrize(
    "files", [{"memory.events": "max 4\noom 2\noom_kill 0\n"}, {}], ids=["nothing", "gone"]
)
def test_other_ends_have_nothing_to_do_with_memory(tmp_path: Path, files: dict[str, str]) -> None:
    assert explained(KILLED, cgroup(tmp_path, "cgroup2", files), 64) == KILLED
    assert explained(KILLED, None, 64) == KILLED


def test_kernel_without_a_peak_has_the_asked_memory_alone(tmp_path: Path) -> None:
    memory = cgroup(tmp_path, "cgroup2", V2)
    assert most_used(memory) is None
    assert explained(KILLED, memory, 64).limit == "out of memory: 64 MiB asked; ask for more with --mem"
