"""Whose the work on a card is: real processes in real cgroups. Only what the driver tells of their ids is made up."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.node.reaper import strangers
from isolator.node.use import Counts
from isolator.node.whose import started_ticks, ticks_now
from mesos_gpu.model.nodes.gpu_use import Span, TaskUse
from mesos_gpu.model.nodes.health import Reading
from tests.conftest import wait_until
from tests.hosts import GPUS, INVENTORY, Host
from tests.kernel.conftest import EACH_CGROUP
from tests.kernel.test_shares import Node

pytestmark = pytest.mark.kernel
CGROUPS = EACH_CGROUP
#: A command, its child that ends when it is told to, its grandchild, and one that has left its parents and session.
COMMAND = """
echo command $$
sh -c 'echo child $$; until [ -e end ]; do sleep 0.1; done' &
sh -c 'sh -c "echo grandchild \\$\\$; exec sleep 600" & wait' &
(setsid sh -c 'echo daemon $$; exec sleep 600' &)
while :; do wait; sleep 1; done
"""
#: clone3(2) with set_tid: a process that has the id which is its first argument, and runs the others.
AGAIN = """
import ctypes, os, signal, sys
wanted, given = (ctypes.c_int * 1)(int(sys.argv[1])), (ctypes.c_uint64 * 11)()
given[4], given[8], given[9] = signal.SIGCHLD, ctypes.addressof(wanted), 1
pid = ctypes.CDLL(None, use_errno=True).syscall(435, ctypes.byref(given), ctypes.sizeof(given))
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
if pid < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0)
"""


class Seen:
    """Looks at one card, each of a second in which it was at work all the time."""

    def __init__(self, one: Host) -> None:
        self._counts, self._before = Counts(one.ledger), dict[str, tuple[int, int]]()

    def look(self, busy_ms: Mapping[int, int] | None, began_ticks: int | None = None) -> dict[str, TaskUse]:
        """What each task did, when these were on the card and at work for so long."""
        pids = tuple(busy_ms) if busy_ms is not None else ()
        told = None if busy_ms is None else tuple(busy_ms.items())
        memory = tuple((pid, 100 + index) for index, pid in enumerate(pids))
        reading = Reading(
            INVENTORY.gpus[0], pids=pids, process_mib=memory, span=Span(1000, 1000), process_busy_ms=told
        )
        return {use.task_id: use for use in self._counts.look([reading], began_ticks)[1]}

    def did(self, busy_ms: Mapping[int, int], began_ticks: int | None = None) -> dict[str, tuple[int, int]]:
        """For how long of that second each task was seen, and at work, in milliseconds."""
        now = {
            task: (use.work.seen_ms, use.work.busy_ms) if use.work else (0, 0)
            for task, use in self.look(busy_ms, began_ticks).items()
        }
        before, self._before = self._before, now
        return {
            task: (seen - before.get(task, (0, 0))[0], busy - before.get(task, (0, 0))[1])
            for task, (seen, busy) in now.items()
        }


class Task:
    """A task whose processes are those of `COMMAND`."""

    def __init__(self, one: Host, isolation: str) -> None:
        """Wait until they all run."""
        wait_until("all of it runs", lambda: len(one.stdout().splitlines()) == 4)
        self.one, self.name = one, one.task
        self.pids = {name: int(pid) for name, pid in map(str.split, one.stdout().splitlines())}
        version: cgroups.Version = "cgroup1" if isolation == "cgroup1" else "cgroup2"
        self.cgroup = cgroups.mounted()[version] / cgroups.OWN_ROOT / one.sandbox.name

    def end_child(self) -> int:
        """What was its id."""
        (self.one.sandbox / "end").touch()
        pid = self.pids["child"]
        wait_until("it has ended", lambda: not Path(f"/proc/{pid}").exists())
        return pid


@pytest.fixture
def node(open_directory: Path, isolation: str) -> Iterator[Node]:
    directory = open_directory / f"use-{time.monotonic_ns()}"
    directory.mkdir()
    with ExitStack() as stack:
        yield Node(directory, isolation, stack)


@pytest.fixture
def two(node: Node, isolation: str) -> tuple[Task, Task]:
    """Tasks that share the card."""
    first, second = node.run(COMMAND), node.run(COMMAND)
    return Task(first, isolation), Task(second, isolation)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of no task."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def joined(cgroup: Path) -> int:
    """A process that has come into a cgroup from outside, and whose parents have ended."""
    inner = "echo $$; exec sleep 600 > /dev/null 2>&1"
    argv = ["/bin/sh", "-c", f"echo $$ > {cgroup}/cgroup.procs && (setsid sh -c '{inner}' &)"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        return int(process.communicate()[0])


@contextmanager
def again(pid: int, cgroup: Path | None = None) -> Iterator[None]:
    """Another process has that id now; it is in that cgroup."""
    join = f"echo $$ > {cgroup}/cgroup.procs; " if cgroup else ""
    argv = [sys.executable, "-c", AGAIN, str(pid), "/bin/sh", "-c", f"{join}echo ready; exec sleep 600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_task_did_what_all_in_its_cgroup_did_and_a_stranger_did_nothing_for_anybody(
    two: tuple[Task, Task], stranger: int
) -> None:
    one, other = two
    outsider = joined(one.cgroup)
    assert parent(outsider) not in (*one.pids.values(), one.one.process.pid)
    names = ("command", "grandchild", "daemon")
    busy = {one.pids[name]: 100 for name in names} | {outsider: 50, other.pids["command"]: 200, stranger: 400}
    seen = Seen(one.one)
    assert seen.did(busy) == {one.name: (0, 0), other.name: (0, 0)}, "what it did before they were there"
    assert seen.did(busy) == {one.name: (1000, 350), other.name: (1000, 200)}
    use = seen.look(busy)
    assert [(use[task.name].processes, use[task.name].memory_mib) for task in two] == [(4, 406), (1, 104)]
    assert seen.look(None)[one.name].work == use[one.name].work, "of whom nobody tells, nobody knows"
    said = strangers(one.one.ledger, {GPUS[0]: list(busy)})
    assert said[GPUS[0]].startswith(f"pid {stranger} (sleep) of "), said
    assert "; " not in said[GPUS[0]]


def test_task_beside_a_stranger_on_its_card_did_only_its_own_part(
    node: Node, isolation: str, stranger: int
) -> None:
    host = node.executor()
    host.launch(COMMAND, user="nobody", gpus=GPUS[:1])
    task = Task(host, isolation)
    own = task.pids["grandchild"]
    seen = Seen(host)
    seen.did({own: 100, stranger: 900})
    assert seen.did({own: 100, stranger: 900}) == {task.name: (1000, 100)}
    os.kill(stranger, signal.SIGKILL)
    wait_until("it is gone", lambda: started_ticks(stranger) is None)
    assert seen.did({own: 100, stranger: 300}) == {task.name: (1000, 100)}, "it ended after it had worked"
    assert seen.did({own: 100}) == {task.name: (1000, 1000)}, "alone, it did all that the card did"


@pytest.mark.long
def test_use_of_an_ended_process_stays_with_its_task_when_its_pid_is_reused(
    two: tuple[Task, Task],
) -> None:
    one, other = two
    pid, worker = one.pids["child"], other.pids["command"]
    seen = Seen(one.one)
    for _ in range(2):
        before = seen.did({pid: 600, worker: 200})
    assert before == {one.name: (1000, 600), other.name: (1000, 200)}
    began_ticks = ticks_now()
    one.end_child()
    assert seen.did({pid: 300, worker: 200}) == {one.name: (1000, 300), other.name: (1000, 200)}
    assert seen.did({pid: 300, worker: 200}) == {one.name: (700, 0), other.name: (700, 200)}, (
        "a driver that goes on to name it means one that was never seen"
    )
    seen.did({one.pids["daemon"]: 500, pid: 0})
    wait_until("a tick goes by", lambda: ticks_now() > began_ticks)
    with again(pid, other.cgroup):
        late = seen.did({pid: 400, worker: 200}, began_ticks)
        assert late == {one.name: (600, 0), other.name: (600, 200)}, "the driver was asked before it started"
        assert strangers(one.one.ledger, {GPUS[1]: [pid]}, began_ticks) == {}
        assert set(strangers(one.one.ledger, {GPUS[1]: [pid]})) == {GPUS[1]}
        assert seen.did({pid: 400, worker: 200}) == {one.name: (1000, 0), other.name: (1000, 600)}


@pytest.mark.long
def test_an_id_that_two_had_between_two_looks_counts_for_neither(two: tuple[Task, Task]) -> None:
    one, other = two
    pid, worker = one.pids["child"], other.pids["command"]
    seen = Seen(one.one)
    for _ in range(2):
        seen.did({pid: 600, worker: 200})
    one.end_child()
    with again(pid, other.cgroup):
        assert seen.did({pid: 600, worker: 200}) == {one.name: (400, 0), other.name: (400, 200)}
        assert seen.look({pid: 600, worker: 200})[other.name].processes == 2
        assert seen.did({pid: 600, worker: 200}) == {one.name: (2000, 0), other.name: (2000, 1600)}
