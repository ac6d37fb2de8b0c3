"""Holders of directories of an ended task's sandbox: they are found wherever they hold one, and killed."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest

from isolator.confinement import enclosure
from isolator.devices import holders
from isolator.devices.holders import end_below
from isolator.gpus.ledger import Ledger
from isolator.host import unsealed
from isolator.host.sealing import is_sealed
from isolator.host.unsealed import place_of
from tests.kernel.confinement.other_tasks import OtherTask, other_task

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups and mounts: needs root"),
]
FILES = 600  # a walk looks at the clock before it has seen so many


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """A sandbox where agents have them, with directories of its task."""
    path = tmp_path / "work/slaves/S0/frameworks/F/executors/e/runs/ended"
    (path / "d/below").mkdir(parents=True)
    for number in range(FILES):
        (path / f"d/{number}").touch()
    os.chown(path / "d", 61999, 61999)
    return path


@pytest.fixture
def place(sandbox: Path) -> Path:
    """The place of the sandbox's directories when they have been moved."""
    place = Path(place_of(str(sandbox)))
    place.mkdir(parents=True)
    return place


def opened_in_a_mount(sandbox: Path, name: str) -> int:
    """Open a directory by a mount of the sandbox, which is gone afterwards, as that of a task is."""
    mount = sandbox.parents[8] / "mount"
    mount.mkdir()
    subprocess.run(["mount", "--bind", str(sandbox), str(mount)], check=True)
    fd = os.open(mount / name, os.O_RDONLY)
    subprocess.run(["umount", "--lazy", str(mount)], check=True)
    return fd


def end_now(place: Path, ledger: Ledger) -> list[str]:
    """Kill the holders, and return what was logged."""
    logged: list[str] = []
    end_below(str(place), ledger, time.monotonic() + 60, logged.append)
    return logged


def said_by(other: OtherTask) -> str:
    return (other.sandbox / "stderr").read_text()


@pytest.mark.parametrize("how", ["", "cwd", "thread"])
@pytest.mark.parametrize("name", ["d", "d/below"])
def test_holder_of_a_directory_is_killed_and_its_task_reads_why(
    ledger: Ledger, tmp_path: Path, sandbox: Path, place: Path, name: str, how: str
) -> None:
    fd = opened_in_a_mount(sandbox, name)
    with other_task(ledger, tmp_path, fd, *([how] if how else [])) as other:
        (sandbox / "d").rename(place / "d")
        (logged,) = end_now(place, ledger)
        assert other.process.wait(60) == -9
        assert other.executor.poll() is None
        who = f"process {other.process.pid} (python"
        assert said_by(other).startswith(f"[mesos-gpu] {who}")
        assert "of task other.1 was killed: it held a directory of the sandbox of a task that" in said_by(
            other
        )
        assert logged.startswith(who)


def test_path_of_such_a_descriptor_does_not_show_where_the_directory_is(sandbox: Path, place: Path) -> None:
    fd = opened_in_a_mount(sandbox, "d")
    (sandbox / "d").rename(place / "d")
    assert os.readlink(f"/proc/self/fd/{fd}") == "/"
    os.close(fd)


def test_processes_that_hold_no_directory_are_not_killed(
    ledger: Ledger, tmp_path: Path, sandbox: Path, place: Path
) -> None:
    """A task that holds another directory, a process outside of tasks, and a task whose directory is removed."""
    (sandbox / "d").rename(place / "d")
    (place.parent / "endedtoo").mkdir()
    removed = tmp_path / "removed"
    removed.mkdir()
    fds = [os.open(path, os.O_RDONLY) for path in (place.parent / "endedtoo", removed)]
    removed.rmdir()
    own = os.open(place / "d", os.O_RDONLY)
    with other_task(ledger, tmp_path, fds[0]) as first, other_task(ledger, tmp_path, fds[1]) as second:
        assert end_now(place, ledger) == []
        assert [each.poll() for each in (first.process, second.process)] == [None, None]
    os.close(own)


def test_seal_that_takes_long_ends_the_holders(
    ledger: Ledger, tmp_path: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsealed, "SOON_S", 0.0)
    logged: list[str] = []
    with other_task(ledger, tmp_path, opened_in_a_mount(sandbox, "d")) as other:
        enclosure.seal(str(sandbox), 60, ledger, logged.append)
        assert other.process.wait(60) == -9
    assert len(logged) == 1
    assert is_sealed((sandbox / "d").stat())
    assert (sandbox / "d/below").is_dir()


def test_seal_goes_on_where_holders_cannot_be_looked_for(
    ledger: Ledger, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoHandles:
        def name_to_handle_at(self, *_: object) -> int:
            ctypes.set_errno(95)
            return -1

    monkeypatch.setattr(unsealed, "SOON_S", 0.0)
    monkeypatch.setattr(holders, "_libc", NoHandles())
    logged: list[str] = []
    enclosure.seal(str(sandbox), 60, ledger, logged.append)
    (text,) = logged
    assert text.endswith("cannot be searched: [Errno 95] name_to_handle_at: Operation not supported")
    assert is_sealed((sandbox / "d").stat())
