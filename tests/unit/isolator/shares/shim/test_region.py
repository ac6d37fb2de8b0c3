"""The host's side of the two files: limits change at once or not at all, usage is read whatever is in it."""

import fcntl
import os
import random
import stat
import struct
import threading
from pathlib import Path

import pytest

from isolator.shares.shim.region import (
    LIMITS_BYTES,
    MAX_CARDS,
    USAGE_BYTES,
    CardLimits,
    CardUsage,
    Region,
    region_of,
    uuid_bytes,
)
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.policy.sharing.windows import Window

A, B = GpuId("GPU-00112233-4455-6677-8899-aabbccddeeff"), GpuId("GPU-simulated-1")
LIMITS = (CardLimits(A, 1 << 30, 300 << 20, 5, Window(10, 20, 40_000)), CardLimits(B, 7))


@pytest.fixture
def region(tmp_path: Path) -> Region:
    made = region_of(tmp_path / "node", TaskId("job-1.1"))
    made.create(LIMITS)
    return made


def test_region_directory_is_closed_and_its_files_are_open_to_the_task(region: Region) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(region.path.parent) == 0o700, "nobody of the host gets at the files of others"
    assert (mode(region.path), mode(region.limits_path), mode(region.usage_path)) == (0o755, 0o644, 0o666)
    assert region.limits_path.stat().st_size == LIMITS_BYTES == 1088
    assert region.usage_path.stat().st_size == USAGE_BYTES == 101_440
    assert {each.name for each in region.path.iterdir()} == {"limits", "usage"}


def test_region_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        made = region_of(tmp_path, TaskId("t"))
        made.create(LIMITS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o755
    assert stat.S_IMODE(made.usage_path.stat().st_mode) == 0o666


def test_tasks_have_directories_of_their_own_by_names_that_lead_nowhere(tmp_path: Path) -> None:
    paths = [region_of(tmp_path, TaskId(name)).path for name in ("../../etc", "a", "b")]
    assert len(set(paths)) == 3
    assert {path.parent for path in paths} == {tmp_path / "shares"}


def test_limits_are_read_as_they_were_written(region: Region) -> None:
    assert region.limits((A, B)) == LIMITS
    assert region.limits()[0].gpu == A, "a UUID needs no list of names"
    region.write(LIMITS[:1])
    assert region.limits((A,)) == LIMITS[:1]


def test_region_changes_one_limit_and_the_others_stay(region: Region) -> None:
    region.change(A, memory_bytes=5, window=None)
    one, _ = region.limits((A, B))
    assert one == CardLimits(A, 5, 300 << 20, 5)
    with pytest.raises(Damaged, match="does not name GPU-other"):
        region.change(GpuId("GPU-other"), memory_bytes=1)


def test_region_writers_of_different_fields_lose_nothing(region: Region) -> None:
    """The monitor corrects what is not accounted for, while an executor gives another quota."""

    def correct() -> None:
        for amount in range(1, 200):
            region.change(A, unaccounted_bytes=amount)

    corrector = threading.Thread(target=correct)
    corrector.start()
    for amount in range(1, 200):
        region.change(A, memory_bytes=amount)
        assert region.limits((A, B))[0].memory_bytes == amount
    corrector.join()
    assert (region.limits((A, B))[0].memory_bytes, region.limits((A, B))[0].unaccounted_bytes) == (199, 199)


def test_the_generation_is_even_after_each_write_and_grows(region: Region) -> None:
    def generation() -> int:
        return int(struct.unpack_from("<Q", region.limits_path.read_bytes(), 8)[0])

    seen = [generation()]
    for _ in range(3):
        region.write(LIMITS)
        seen.append(generation())
    assert seen == [0, 2, 4, 6]
    torn(region)
    region.write(LIMITS)
    assert generation() == 12


def torn(region: Region) -> None:
    """A writer was killed amid it."""
    with open(region.limits_path, "r+b") as file:
        file.seek(8)
        file.write(struct.pack("<Q", 9))


def test_region_of_a_killed_writer_is_repaired_and_a_whole_one_stays(region: Region) -> None:
    before = region.limits_path.read_bytes()
    region.mend()
    assert region.limits_path.read_bytes() == before
    torn(region)
    region.mend()
    assert struct.unpack_from("<Q", region.limits_path.read_bytes(), 8) == (12,)
    assert region.limits((A, B)) == LIMITS


def test_a_writer_that_was_stopped_does_not_stop_the_host(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor in a frozen cgroup may have the lock, and the monitor writes for all tasks of the host."""
    monkeypatch.setattr("isolator.shares.shim.region.ALONE_S", 0.05)
    fd = os.open(region.path.parent, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another process has been writing limits"):
            region.change(A, memory_bytes=1)
    finally:
        os.close(fd)
    region.change(A, memory_bytes=1)
    assert region.limits((A, B))[0].memory_bytes == 1


def test_a_task_that_locks_its_limits_does_not_stop_the_host(region: Region) -> None:
    fd = os.open(region.limits_path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        region.write(LIMITS)
    finally:
        os.close(fd)


def test_seventeen_cards_are_refused_and_nothing_is_written(region: Region, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 cards at most, got 17"):
        region.write([CardLimits(A, 1)] * (MAX_CARDS + 1))
    assert region.limits((A, B)) == LIMITS
    with pytest.raises(ValueError, match="16 cards"):
        region_of(tmp_path, TaskId("other")).create([CardLimits(A, 1)] * 17)
    assert not (tmp_path / "shares").exists()


@pytest.mark.parametrize("content", [b"", b"x" * LIMITS_BYTES, bytes(10)])
def test_a_damaged_file_of_limits_is_said_to_be_damaged(region: Region, content: bytes) -> None:
    region.limits_path.write_bytes(content)
    with pytest.raises(Damaged, match="not a valid file of limits"):
        region.limits()


def process(pid: int, held: int, context: int = 0, busy: int = 0) -> bytes:
    zeros = [0] * (MAX_CARDS - 1)
    return struct.pack("<iI48Q", pid, 0, held, *zeros, context, *zeros, busy, *zeros)


def write_usage(region: Region, at: int, content: bytes) -> None:
    with open(region.usage_path, "r+b") as file:
        file.seek(at)
        file.write(content)


def slot(number: int) -> int:
    return 64 + MAX_CARDS * 64 + number * 392


def test_only_processes_that_live_are_counted(region: Region) -> None:
    write_usage(region, slot(0), process(10, 100, 7, 3) + process(11, 1000))
    assert region.usage((A,)).cards == {A: CardUsage()}, "nobody holds a lock"
    fd = os.open(region.usage_path, os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0))
        write_usage(region, 64, struct.pack("<5Q", 4, 5, 6, 7, 8))
        (one, other) = region.usage((A, B)).cards.values()
    finally:
        os.close(fd)
    assert one == CardUsage(107, 7, processes=1, refused=4, busy_ns=3, missed=5, asked_ns=6)
    assert other == CardUsage()


def test_more_used_than_granted_is_shown_without_underflow(region: Region) -> None:
    """A free amount of 18 EB, as HAMi-core #200 shows."""
    assert CardUsage(memory_bytes=900).free_bytes(CardLimits(A, 500)) == 0
    assert CardUsage(memory_bytes=900).free_bytes(CardLimits(A, 1000, unaccounted_bytes=40)) == 60


def test_region_survives_any_bytes_of_a_task(region: Region) -> None:
    chance = random.Random(7)
    header = region.usage_path.read_bytes()[:64]
    for size in (0, 1, 63, USAGE_BYTES - 1, USAGE_BYTES, USAGE_BYTES * 3):
        for start in (b"", header):
            region.usage_path.write_bytes((start + chance.randbytes(size))[:size])
            usage = region.usage((A, B))
            assert bool(usage.problem) == (size < USAGE_BYTES or not start)
            assert all(0 <= card.memory_bytes <= 1 << 50 for card in usage.cards.values())
    region.usage_path.write_bytes(header + b"\xff" * (USAGE_BYTES - 64))
    assert region.usage((A,)).cards[A].refused == 1 << 50


def test_region_usage_survives_very_many_locks(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel looks through all of them for each process that a task claims to have; more take seconds."""
    monkeypatch.setattr("isolator.shares.shim.region.LIVING_S", 0.001)
    first, step = 64 + MAX_CARDS * 64, 8 + MAX_CARDS * 24
    with open(region.usage_path, "r+b") as file:
        for at in range(first, USAGE_BYTES, step):
            file.seek(at)
            file.write(struct.pack("<i", 1))
        file.flush()
        for at in range(6000, 0, -1):
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1000 + 2 * at, 1, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        assert "locked its file of usage too often" in region.usage((A,)).problem
    monkeypatch.undo()
    assert region.usage((A,)).problem == "", "they go with whoever made them"


def test_a_file_that_a_task_made_longer_is_cut(region: Region) -> None:
    os.truncate(region.usage_path, 1 << 40)
    assert region.usage((A,)).problem == ""
    assert region.usage_path.stat().st_size == USAGE_BYTES


def test_region_usage_that_is_no_file_is_a_problem_and_no_trap(region: Region) -> None:
    region.usage_path.unlink()
    assert "No such file" in region.usage((A,)).problem
    os.mkfifo(region.usage_path)
    assert region.usage((A,)).problem
    region.usage_path.unlink()
    region.usage_path.symlink_to("/etc/passwd")
    assert "symbolic links" in region.usage((A,)).problem


def test_a_region_is_removed_once_and_again(region: Region) -> None:
    region.remove()
    assert not region.path.exists()
    region.remove()


def test_ids_that_are_no_uuids_get_sixteen_bytes_too() -> None:
    assert uuid_bytes(A) == bytes.fromhex("00112233445566778899aabbccddeeff")
    assert uuid_bytes(GpuId("MIG-00112233-4455-6677-8899-AABBCCDDEEFF")) == uuid_bytes(A)
    assert len({uuid_bytes(GpuId(name)) for name in ("GPU-sim-0", "GPU-sim-1", "MIG-GPU-x/1/0", "")}) == 4
