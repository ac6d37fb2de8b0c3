"""Which libcuda a process has, and whether the driver works for it: real processes, also those that are hard to see."""

import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from isolator.devices import cgroup_names
from isolator.host import processes
from isolator.shares import loaded
from isolator.shares.loaded import Loaded, ProcessInspector, Question, read
from mesos_gpu.adapters.proc import start_ticks
from tests.conftest import wait_until
from tests.doubles.cuda import Cards, Host

REAL = "libmgpu-real-cuda.so"
NULL = os.major(os.stat("/dev/null").st_rdev)  # stands for the device of the driver's memory
ALL = Question(0, ("libcuda.so", REAL), None, True, float("inf"))
ME = os.getpid()


@pytest.fixture
def client(stubs: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A program that is linked against a libcuda, and waits."""
    host = Host(tmp_path / "task", stubs, Cards(tmp_path / "cards"))
    process = host.client("run", 60_000, 1000)
    try:
        wait_until("it has a libcuda", lambda: read(replace(ALL, pid=process.pid)).libraries)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_libcuda_of_a_process_is_found_with_its_device_and_inode(
    client: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    path = tmp_path / "task/lib64/libcuda.so.1"
    seen = read(replace(ALL, pid=client.pid))
    assert seen == Loaded(True, frozenset({(str(path), (path.stat().st_dev, path.stat().st_ino))}))
    looker = ProcessInspector(REAL)
    ours = frozenset(file for _, file in seen.libraries)
    assert looker.look([{client.pid}], {client.pid}, ours, None) == {}
    (what,) = looker.look([{client.pid}], {client.pid}, frozenset({(1, 1)}), None).values()
    assert what == f"has loaded {path}, which is not the libcuda that keeps its share"


def test_libcuda_of_another_name_is_not_the_shares(stubs: Path, tmp_path: Path) -> None:
    """Nothing is to be seen of it but that the driver is open; so it is of one that is linked in."""
    (tmp_path / "cards").mkdir()
    Cards(tmp_path / "cards")
    renamed = tmp_path / "libharmless.so"
    renamed.write_bytes((stubs / "libcuda.so.1").read_bytes())
    code = "import ctypes, sys, time; print(ctypes.CDLL(sys.argv[1]).cuInit(0), flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(renamed)],
        env={**os.environ, "STUB_CARDS": str(tmp_path / "cards")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            looker, ours = ProcessInspector(REAL), frozenset({(1, 1)})
            for computing, major in (({process.pid}, None), (set[int](), NULL)):
                named = looker.look([{process.pid}], computing, ours, major)
                assert named[process.pid].endswith("its CUDA is not ours")
            assert looker.look([{process.pid}], set(), ours, None) == {}
        finally:
            process.kill()


def test_ended_process_has_no_libcuda() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert read(replace(ALL, pid=process.pid, major=NULL)) == Loaded()
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert read(replace(ALL, pid=zombie.pid)) == Loaded(), "it has no mappings any more"


def test_process_without_cuda_is_not_read_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_MAX_BYTES", 0)
    assert read(replace(ALL, pid=ME, computes=False)) == Loaded()
    assert read(replace(ALL, pid=ME)).problem != ""


def test_a_process_with_too_many_mappings_is_named_and_not_read_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 8192 * page) as memory:
        for number in range(0, 8192, 2):  # every second page has other rights: a mapping each
            memory.madvise(mmap.MADV_DONTFORK, number * page, page)
        assert read(replace(ALL, pid=ME)).problem == ""
        monkeypatch.setattr(loaded, "_MAX_BYTES", 1 << 17)
        assert read(replace(ALL, pid=ME)).problem == "it has more mappings than are looked at"
        monkeypatch.undo()
        assert read(replace(ALL, pid=ME, until=0.0)).problem == "", "a busy host makes nobody suspicious"
        monkeypatch.setattr(loaded, "_FEW_BYTES", 1 << 17)
        assert read(replace(ALL, pid=ME, until=0.0)).problem == "it has more mappings than are looked at"


def test_a_process_with_too_many_files_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_MAX_DESCRIPTORS", 1)
    assert read(replace(ALL, pid=ME, major=1 << 12)).problem == "it has more files open than are looked at"


def test_process_that_cannot_be_read_delays_no_look_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process can have its memory locked for as long as it likes: meanwhile it is not asked again."""
    monkeypatch.setattr(loaded, "LOOK_S", 0.02)
    let_go, asked = threading.Event(), list[int]()

    def ask(question: Question) -> Loaded:
        asked.append(question.pid)
        if question.pid != ME:
            let_go.wait(60)
        return Loaded()

    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(6)]
    looker = ProcessInspector(REAL, ask)
    hostile = {process.pid for process in sleepers}
    try:
        for look in range(3):
            named = looker.look([hostile, {ME}], hostile, frozenset({(1, 1)}), None)
            silent = hostile if look else hostile & named.keys()  # once may be the host's fault
            assert named == dict.fromkeys(silent, "cannot be looked at: it does not answer")
            assert look or len(named) == 2
        assert len(set(asked) - {ME}) == 4, "no more threads wait for one task"
        assert asked.count(ME) == 3, "its neighbour is looked at each time"
        let_go.set()
        wait_until(
            "all let themselves be read",
            lambda: not looker.look([hostile, {ME}], hostile, frozenset({(1, 1)}), None),
        )
    finally:
        let_go.set()
        for process in sleepers:
            process.kill()
            process.wait()


class Slowly:
    """A clock that questions move, each by more time than there is for all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked = 1.0, list[int]()
        monkeypatch.setattr(loaded, "time", SimpleNamespace(monotonic=self.read))

    def read(self) -> float:
        """Read the clock."""
        self.now += 0.001
        return self.now

    def ask(self, question: Question) -> Loaded:
        """Answer that there is nothing."""
        self.now += 2.0
        self.asked.append(question.pid)
        return Loaded()

    def look(self, looker: ProcessInspector, *tasks: set[int]) -> None:
        """Look, at nothing in particular."""
        looker.look(tasks, set(), frozenset(), None)


def test_processes_left_out_by_a_look_come_first_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slowly = Slowly(monkeypatch)
    looker = ProcessInspector(REAL, slowly.ask)
    for _ in range(4):
        slowly.look(looker, {ME, os.getppid()})
    assert set(slowly.asked[:2]) == {ME, os.getppid()}
    assert slowly.asked[2:] == slowly.asked[:2]


def test_processes_made_without_end_hide_none(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = Slowly(monkeypatch)
    looker, first = ProcessInspector(REAL, slowly.ask), 1 << 23  # beyond what pids can be
    for look in range(3):
        fresh = range(first + look * 100, first + look * 100 + 100)
        slowly.look(looker, {os.getppid(), *fresh}, {ME})
    assert {ME, os.getppid()} <= set(slowly.asked)


def test_answer_that_comes_late_each_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process can have its memory locked for a while whenever it is looked at."""
    monkeypatch.setattr(loaded, "LOOK_S", 0.01)
    let_go = threading.Event()

    def ask(_: Question) -> Loaded:
        let_go.wait(60)
        return Loaded(True)

    looker = ProcessInspector(REAL, ask)
    assert looker.look([{ME}], {ME}, frozenset({(1, 1)}), None) == {}
    let_go.set()
    (thread,) = (thread for thread, _ in looker._waiting.values())
    thread.join(60)
    let_go.clear()
    try:
        (what,) = looker.look([{ME}], {ME}, frozenset({(1, 1)}), None).values()
    finally:
        let_go.set()
    assert what.endswith("its CUDA is not ours")


#: Ends the first thread of its process, and no other: exit(2), by its number.
HEADLESS = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({93 if os.uname().machine == "aarch64" else 60}, 0)
"""


def test_a_process_whose_first_thread_has_ended_is_seen_by_the_others() -> None:
    """The process lives, computes and holds memory; by its own number /proc has nothing of it, as if it had ended."""
    task = f"headless.{ME}"
    with subprocess.Popen(
        [sys.executable, "-c", HEADLESS], env={**os.environ, "MESOS_TASK_ID": task}
    ) as process:
        try:
            wait_until("its first thread has ended", lambda: start_ticks(process.pid) is None)
            assert Path(f"/proc/{process.pid}/maps").read_bytes() == b""
            seen = read(replace(ALL, pid=process.pid, names=("libc.so",), major=NULL))
            assert [path.rpartition("/")[2] for path, _ in seen.libraries] == ["libc.so.6"]
            assert processes.of_task(task) == [process.pid]
            assert cgroup_names.paths_of(process.pid) == cgroup_names.paths_of(ME)
            assert processes.kill_leftovers(task) == []
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()
