"""Terminals in the /dev of a task, which is a mount namespace of its own, opened from outside of it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from isolator.session.terminal import open_terminal
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel

#: A task: it says when its /dev is there, takes a terminal, and says what it sees of it.
TASK = """
import os, socket, sys
from isolator.devices import view
view.enter()
view.make_dev(())
line = socket.socket(fileno=int(sys.argv[1]))
line.send(b"there")
_, [terminal], *_ = socket.recv_fds(line, 1, 1)
os.setgid(65534); os.setuid(65534)
name = os.ttyname(terminal)
os.close(os.open(name, os.O_RDWR | os.O_NOCTTY))  # its user may open it by its name
line.send(f"{name} {sorted(os.listdir('/dev/pts'))} {oct(os.stat(name).st_mode)}".encode())
line.recv(1)
"""


@contextmanager
def task() -> Iterator[tuple[int, socket.socket]]:
    """A process with a /dev as that of a task, and the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        argv = [sys.executable, "-c", TASK, str(theirs.fileno())]
        with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            ours.settimeout(60)
            try:
                assert ours.recv(10) == b"there"
                yield process.pid, ours
            finally:
                process.kill()


def said_of_a_terminal(pid: int, line: socket.socket) -> str:
    """Open a terminal in the task and hand it over; return what the task says of it."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH)
    ours, theirs = open_terminal(root)
    os.close(root)
    try:
        os.fchown(theirs, 65534, 65534)
        os.fchmod(theirs, 0o600)
        socket.send_fds(line, [b"."], [theirs])
        return line.recv(1000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_terminal_has_its_name_in_the_task_and_is_seen_by_no_other() -> None:
    needs("cgroup2")
    before = sorted(os.listdir("/dev/pts"))
    own = "/dev/pts/0 ['0', 'ptmx'] 0o20600"
    with task() as one, task() as other:
        assert said_of_a_terminal(*one) == own
        assert said_of_a_terminal(*other) == own, "each task counts its terminals from 0"
        assert sorted(os.listdir("/dev/pts")) == before, "the host has none of them"
