"""Old programs of a host: what is held, young or not ours stays."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger
from isolator.node import programs
from isolator.node.reaper import Reaping
from mesos_gpu.install import start
from tests.conftest import wait_until

NOW = 2e9
OLD, YOUNG = NOW - programs.KEPT_S - 1, NOW - programs.KEPT_S + 60
A, B = "a" * 32 + "-cpython-311", "b" * 32 + "-cpython-311"
ARCHIVE = "c" * 64 + ".pyz"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / programs.DIRECTORY
    top.mkdir(mode=0o755)
    return top


def tree(top: Path, name: str, used: float, *, holds: bool = True) -> Path:
    path = top / name
    (path / "isolator/node").mkdir(parents=True)
    if holds:
        (path / "isolator/node/programs.py").touch()
    os.utime(path, (used, used))
    return path


def file(top: Path, name: str, used: float) -> Path:
    path = top / name
    path.touch()
    os.utime(path, (used, used))
    return path


@contextmanager
def held(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    yield
    os.close(handle)


def test_programs_without_users_are_removed_and_young_ones_stay(top: Path) -> None:
    for path in (tree(top, A, OLD), file(top, ARCHIVE, OLD), file(top, ".fetched-x1_y", OLD)):
        assert path.exists()
    stays = tree(top, B, YOUNG), file(top, "d" * 64 + ".pyz", YOUNG)
    assert programs.tidy(top.parent, NOW) == [".fetched-x1_y", A, ARCHIVE]
    assert sorted(path.name for path in top.iterdir()) == sorted([".lock", *(path.name for path in stays)])
    assert programs.tidy(top.parent, NOW) == []


def test_program_held_by_a_process_stays_however_old(top: Path) -> None:
    with held(tree(top, A, OLD)), held(file(top, ARCHIVE, OLD)):
        assert programs.tidy(top.parent, NOW) == []
    assert programs.tidy(top.parent, NOW) == [A, ARCHIVE]


def test_tidy_leaves_files_of_others(top: Path, tmp_path: Path) -> None:
    elsewhere = tree(tmp_path, "elsewhere", OLD)
    (top / ("e" * 32 + "-cpython-311")).symlink_to(elsewhere)
    (top / ("f" * 64 + ".pyz")).symlink_to(file(tmp_path, "file", OLD))
    tree(top, A, OLD, holds=False)  # of a release whose programs hold nothing
    tree(top, "notes", OLD)
    file(top, "notes.pyz", OLD)
    assert programs.tidy(top.parent, NOW) == []
    assert (elsewhere / "isolator").is_dir()


def test_a_directory_that_others_can_write_is_left_alone(top: Path) -> None:
    tree(top, A, OLD)
    top.chmod(0o777)
    assert programs.tidy(top.parent, NOW) == []
    assert programs.tidy(top.parent / "absent", NOW) == []


def test_tidy_does_not_wait_for_an_unpacking_process(top: Path) -> None:
    tree(top, A, OLD)
    (top / ".lock").touch()
    handle = os.open(top / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert programs.tidy(top.parent, NOW) == []
    os.close(handle)
    assert programs.tidy(top.parent, NOW) == [A]


def test_a_program_that_has_started_holds_its_directory_until_it_ends_whoever_it_starts(top: Path) -> None:
    path, archive = tree(top, A, OLD), file(top, ARCHIVE, OLD)
    code = (
        "import runpy, subprocess, sys; name, path, archive = sys.argv[1:]; begin = runpy.run_path(name); "
        "sys.path[0] = archive; assert begin['hold'](path); subprocess.Popen(['sleep', '600.1']); "
        "print('held', flush=True); input()"
    )
    command = [sys.executable, "-ISc", code, start.__file__, str(path), str(archive)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as running:  # type: ignore[call-overload]
        try:
            assert running.stdout.readline() == "held\n"
            assert time.time() - path.stat().st_mtime < 60, "it was used now"
            assert time.time() - archive.stat().st_mtime < 60
            assert programs.tidy(top.parent, time.time() + programs.KEPT_S + 120) == []
            running.stdin.close()
            wait_until("it ends", lambda: running.poll() is not None)
            assert programs.tidy(top.parent, time.time() + programs.KEPT_S + 120) == [A, ARCHIVE]
        finally:
            os.killpg(running.pid, 9)


def test_program_removed_before_it_was_held_is_not_held(top: Path) -> None:
    path = tree(top, A, OLD)
    code = (
        "import runpy, sys; name, path, absent = sys.argv[1:]; hold = runpy.run_path(name)['hold']; "
        "sys.path[0] = absent; print(hold(absent), hold(path))"
    )
    command = [sys.executable, "-ISc", code, start.__file__, str(path), str(top / ARCHIVE)]
    assert subprocess.check_output(command, text=True) == "False True\n"
    assert time.time() - path.stat().st_mtime < 60, "nothing more is had from an archive that has gone"


def test_a_start_whose_files_are_removed_meanwhile_has_them_again(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter((False, True))

    def look(path: str) -> str:
        if next(looks):
            return ""
        raise FileNotFoundError(2, "it has gone", path)

    path = tree(top, A, OLD)
    monkeypatch.setattr(sys, "path", [str(top / ARCHIVE)])
    monkeypatch.setattr(sys, "argv", ["mesos-gpu-executor.pyz", "monitor"])
    monkeypatch.setattr(start, "tree", lambda: str(path))
    monkeypatch.setattr(start, "fault", look)
    monkeypatch.setattr(start, "hold", lambda _path: True)
    monkeypatch.setattr("isolator.__main__.main", lambda: 7)
    assert (start.main(), list(looks), sys.path) == (7, [], [str(path)])


def test_the_monitor_looks_once_an_hour(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(programs, "tidy", lambda node, _now: seen.append(node))
    reaping = Reaping(Ledger(top.parent / "ledger.sqlite"))
    reaping.look()
    reaping.look()
    wait_until("it has looked", lambda: bool(seen))
    assert seen == [top.parent]
