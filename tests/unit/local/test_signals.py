"""Signals to processes of a cluster."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.local.processes import send_signal

THREADS = 8
SPINNING = f"""
import threading
def spin():
    while True:
        pass
for _ in range({THREADS - 1}):
    threading.Thread(target=spin, daemon=True).start()
print(flush=True)
spin()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose threads never rest."""
    with subprocess.Popen([sys.executable, "-S", "-c", SPINNING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def states(process: subprocess.Popen[bytes]) -> list[str]:
    """Return the state of each thread as of proc(5)."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads]


def test_all_threads_have_stopped_when_a_stop_has_been_sent(child: subprocess.Popen[bytes]) -> None:
    for _ in range(8):
        send_signal(child, signal.SIGSTOP)
        assert states(child) == ["T"] * THREADS
        send_signal(child, signal.SIGSTOP)  # a second one does not wait either
        send_signal(child, signal.SIGCONT)


def test_stop_of_an_ended_process_returns(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    send_signal(child, signal.SIGSTOP)
    child.wait()
    send_signal(child, signal.SIGSTOP)
