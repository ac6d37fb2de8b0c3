"""A task's logs keep within their limit and under their names; a sandbox that is too large ends its task."""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolator.executor.upkeep import Log, Upkeep, limit_of
from isolator.host.sandbox import Sandbox
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.wire.mesos.cuts import HEAD_BYTES, begin_of, head
from tests.conftest import wait_until

MIB = 1 << 20


@contextmanager
def log(directory: Path, limit_mib: int = 2) -> Iterator[Log]:
    (directory / "stdout").touch()
    with Sandbox(str(directory)) as sandbox:
        made = Log(sandbox, "stdout", limit_mib)
        yield made
        made.close()


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(first, first + count))


def test_a_log_is_cut_at_a_line_and_says_so_and_offsets_stay(tmp_path: Path) -> None:
    with log(tmp_path) as one, open(tmp_path / "stdout", "ab", buffering=0) as task:
        task.write(lines(0, 200_000))
        assert one.look() == ""
        assert (tmp_path / "stdout").stat().st_blocks * 512 >= 2_000_000, "within its limit"
        task.write(lines(200_000, 50_000))
        assert one.look() == ""
        task.write(lines(250_000, 10))
        cut = begin_of((tmp_path / "stdout").read_bytes()[:HEAD_BYTES])
        assert cut is not None
        begin, said = cut
        assert "keep 2 MiB" in said
        assert said.endswith("\n")
        text = (tmp_path / "stdout").read_bytes()
        assert text[begin:] == lines(begin // 10, 250_010 - begin // 10), "whole lines, where they were"
        assert set(text[HEAD_BYTES:begin]) == {0}
        assert begin % 10 == 0
        assert (tmp_path / "stdout").stat().st_blocks * 512 < 1.2 * MIB


def test_log_is_cut_again_and_again(tmp_path: Path) -> None:
    with log(tmp_path, 1) as one, open(tmp_path / "stdout", "ab", buffering=0) as task:
        for turn in range(20):
            task.write(lines(turn * 30_000, 30_000))
            one.look()
            assert (tmp_path / "stdout").stat().st_blocks * 512 <= MIB + 8192
        assert (tmp_path / "stdout").stat().st_size == 20 * 300_000
        assert (tmp_path / "stdout").read_bytes().endswith(lines(599_999, 1))


def test_without_a_limit_nothing_is_cut(tmp_path: Path) -> None:
    with log(tmp_path, 0) as one:
        (tmp_path / "stdout").write_bytes(bytes(5 * MIB))
        one.look()
        assert (tmp_path / "stdout").read_bytes() == bytes(5 * MIB)


def test_a_task_that_truncates_its_own_log_harms_nothing_else(tmp_path: Path) -> None:
    with log(tmp_path, 1) as one:
        (tmp_path / "stdout").write_bytes(b"x" * 3 * MIB)
        one.look()
        os.truncate(tmp_path / "stdout", 10)
        assert one.look() == ""
        os.truncate(tmp_path / "stdout", 1 << 40)
        assert one.look() == ""
        with open(tmp_path / "stdout", "ab") as task:
            task.write(b"y" * 2 * MIB)
        one.look()
        assert (tmp_path / "stdout").stat().st_blocks * 512 <= MIB + 8192


def test_log_without_holes_loses_all_but_the_note_and_the_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses:
        def fallocate64(self, *_: object) -> int:
            return -1

    monkeypatch.setattr("isolator.executor.upkeep._libc", Refuses())
    with log(tmp_path, 1) as one, open(tmp_path / "stdout", "ab", buffering=0) as task:
        task.write(b"x" * 3 * MIB)
        one.look()
        task.write(b"after")
        assert (tmp_path / "stdout").stat().st_blocks * 512 < 65536
        text = (tmp_path / "stdout").read_bytes()
        assert begin_of(text[:HEAD_BYTES]) is not None
        assert text.endswith(b"after")
        assert len(text) == 3 * MIB + 5


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("/etc/hostname")


def directory(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.mkdir()
    (path / "x").touch()


@pytest.mark.parametrize("replace", [fifo, link, directory])
def test_a_name_is_put_back(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """Root of a task can take a name, or the owner on a file system without access control lists."""
    with log(tmp_path) as one:
        (tmp_path / "stdout").write_text("said\n")
        replace(tmp_path / "stdout")
        assert one.look() == "stdout was replaced by another file: restored"
        assert stat.S_ISREG(os.lstat(tmp_path / "stdout").st_mode)
        lost = replace is fifo
        assert (tmp_path / "stdout").read_text() == (
            "[mesos-gpu] the task removed this file: what it writes to it is lost\n" if lost else "said\n"
        )
        assert one.look() == ""


def test_a_name_that_cannot_be_had_back_leaves_the_file_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its number is the next file's that the executor opens, and root would link and cut that."""
    with log(tmp_path) as one:
        (tmp_path / "stdout").unlink()
        put_back = one._sandbox.put_back

        def and_lose_it(name: str, fd: int) -> bool:
            done = put_back(name, fd)
            (tmp_path / name).unlink()
            os.mkfifo(tmp_path / name)
            return done

        monkeypatch.setattr(one._sandbox, "put_back", and_lose_it)
        with pytest.raises(OSError, match="not a regular file with one name"):
            one.look()
        with open(tmp_path / "another", "w") as another:
            assert not one.is_open_as(another.fileno())


def test_the_word_of_a_cut_is_read_by_whom_it_is_for() -> None:
    cut = begin_of(head(12345, 7))
    assert cut is not None
    assert cut[0] == 12345
    assert len(head(1 << 50, 1 << 30)) == HEAD_BYTES
    for other in (
        b"",
        b"[mesos-gpu] x bytes of this log were cut off here: ",
        b"x" + head(5, 7),
        b"[mesos-gpu] ",
    ):
        assert begin_of(other) is None


def test_this_hosts_limit_comes_before_the_schedulers() -> None:
    assert limit_of({}, 5) == 5
    assert limit_of({"MESOS_GPU_LOG_LIMIT": "0"}, 5) == 0
    assert limit_of({"MESOS_GPU_LOG_LIMIT": "70"}, 5) == 70
    for bad in ("1G", "-1", "1.5"):
        with pytest.raises(BadConfiguration, match="MESOS_GPU_LOG_LIMIT"):
            limit_of({"MESOS_GPU_LOG_LIMIT": bad}, 5)


def upkeep_of(directory: Path, disk_mib: int = 0, **more: object) -> Upkeep:
    quiet = {"say": lambda _: None, "end": lambda _: None, "more": lambda: None}
    given = {"limit_mib": 1, "streams": (None, None), **quiet, **more}
    return Upkeep(str(directory), disk_mib=disk_mib, **given)  # type: ignore[arg-type]


@contextmanager
def upkeep(directory: Path, disk_mib: int, **more: object) -> Iterator[list[str]]:
    ends: list[str] = []
    made = upkeep_of(directory, disk_mib, say=ends.append, end=ends.append, **more)
    made.start()
    try:
        yield ends
    finally:
        made.stop()


@pytest.mark.skipif(shutil.which("du") is None, reason="needs du")
def test_a_sandbox_above_its_limit_ends_the_task_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "data").write_bytes(b"x" * 3 * MIB)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "everything").symlink_to("/")
    with upkeep(tmp_path, 2) as ends:
        wait_until("it is told", lambda: ends)
    (said,) = ends
    assert said.startswith("out of disk: 2 MiB asked, 4 used in its sandbox; ")
    with upkeep(tmp_path, 40) as ends:
        threading.Event().wait(3)
    assert ends == []


@pytest.mark.skipif(shutil.which("du") is None, reason="needs du")
def test_persistent_volume_that_is_too_large_ends_its_task(tmp_path: Path) -> None:
    sandbox, volume = tmp_path / "sandbox", tmp_path / "volume"
    sandbox.mkdir()
    volume.mkdir()
    (volume / "data").write_bytes(b"x" * 3 * MIB)
    with upkeep(sandbox, 0, volumes=[("data", str(volume), 2)]) as ends:
        wait_until("the task is ended", lambda: ends)
    (said,) = ends
    assert said.startswith("out of disk: 4 MiB used in the persistent volume data of 2 MiB; ")


def test_a_task_that_replaces_its_output_before_the_first_look_gets_it_back(tmp_path: Path) -> None:
    (tmp_path / "stdout").touch()
    with open(tmp_path / "stdout", "a") as stdout:
        made = upkeep_of(tmp_path, streams=(stdout.fileno(), None))
        (tmp_path / "stdout").rename(tmp_path / "s")
        os.mkfifo(tmp_path / "stdout")
        made.start()
        made.stop()
        assert os.path.samestat((tmp_path / "stdout").lstat(), os.fstat(stdout.fileno()))


def test_upkeep_of_a_task_that_did_not_start_ends(tmp_path: Path) -> None:
    (tmp_path / "stdout").touch()
    before = len(os.listdir("/proc/self/fd"))
    with open(tmp_path / "stdout", "a") as stdout:
        upkeep_of(tmp_path, streams=(stdout.fileno(), None)).stop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_loggers_own_files_are_left_alone(tmp_path: Path) -> None:
    """A container logger that rotates has this process write to a pipe."""
    (tmp_path / "stdout").touch()
    reader, writer = os.pipe()
    try:
        with upkeep(tmp_path, 0, streams=(writer, writer)) as said:
            (tmp_path / "stdout").rename(tmp_path / "stdout.1")
            (tmp_path / "stdout").write_text("new\n")
        assert (said, (tmp_path / "stdout").read_text()) == ([], "new\n")
    finally:
        os.close(reader)
        os.close(writer)
