"""Another task of a ledger, whose process holds a descriptor that was passed to it."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from isolator.confinement.fence import see_cgroup2
from isolator.devices import cgroups
from isolator.gpus.ledger import Ledger, Owner, Trace

#: Program that takes a descriptor and keeps it.
TAKER = """
import ctypes, os, socket, sys, threading
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
held = socket.recv_fds(socket.socket(fileno=int(sys.argv[2])), 1, 1)[1]
how = sys.argv[3:]
if how == ["queue"]:
    queue = socket.socketpair()
    socket.send_fds(queue[0], [b"x"], held)
    os.close(held[0])
if how == ["cwd"]:
    os.fchdir(held[0])
    os.close(held[0])
if how == ["thread"]:
    ready = threading.Event()

    def keep():
        ctypes.CDLL(None).unshare(0x400)  # CLONE_FILES
        ready.set()
        threading.Event().wait()

    threading.Thread(target=keep, daemon=True).start()
    ready.wait()
    os.close(held[0])
print("held", flush=True)
sys.stdin.read()
"""


def made_cgroup(name: str) -> cgroups.Cgroup:
    """Make the cgroup of a task, with the name of its container."""
    see_cgroup2()
    made = cgroups.Cgroup("cgroup2", cgroups.mounted()["cgroup2"] / cgroups.OWN_ROOT / name, own=True)
    made.create()
    return made


class OtherTask:
    """Another task of the ledger, whose process alone holds a descriptor that was passed to it."""

    def __init__(self, ledger: Ledger, directory: Path, passed: int, *how: str) -> None:
        container = f"other-{os.getpid()}-{time.monotonic_ns()}"
        self.cgroup, self.sandbox = made_cgroup(container), directory / container
        self.sandbox.mkdir()
        self.executor = subprocess.Popen(["sleep", "600"])
        here, there = socket.socketpair()
        with here, there:
            argv = [sys.executable, "-c", TAKER, str(self.cgroup.path), str(there.fileno()), *how]
            self.process = subprocess.Popen(
                argv, pass_fds=[there.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            socket.send_fds(here, [b"x"], [passed])
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == b"held\n"
        os.close(passed)
        traces = (Trace("sandbox", str(self.sandbox)), Trace("cgroup2", str(self.cgroup.path)))
        ledger.claim("other.1", (), Owner.of(self.executor.pid), container=container, traces=traces)

    def end(self) -> None:
        for each in (self.process, self.executor):
            each.kill()
            each.communicate()
        assert self.cgroup.remove() == []


@contextlib.contextmanager
def other_task(ledger: Ledger, directory: Path, passed: int, *how: str) -> Iterator[OtherTask]:
    task = OtherTask(ledger, directory, passed, *how)
    try:
        yield task
    finally:
        task.end()
