"""The real `mesos-gpu`, called here or as a process, beside a REST server of its contract; what that answers."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from tests.doubles.fake_rest import FakeRest

UUIDS = ("748f8361-f8f8-5919-8128-7782099d4f97", "c5d8ee65-225e-547c-968b-e6d1aeffee4a")
PROGRAM = [sys.executable, "-m", "mesos_gpu"]
GPU = {
    "uuid": "GPU-1",
    "model": "A100 [x]",
    "memory_mib": 40960,
    "compute_capability": "8.0",
    "index": 0,
    "minor": 0,
    "pci_bus_id": "",
    "numa_node": None,
    "health": "sick",
    "reason": "XID 79",
    "since": 1000.0,
    "node_health": "sick",
    "node_reason": "XID 79",
    "warnings": [],
    "drain": None,
    "reset": None,
    "hostname": "node-1",
    "agent_id": "S0",
    "task_id": None,
    "job_id": None,
    "job_name": None,
    "shares": [],
    "sharing": None,
    "use": None,
}
NODE = {
    "agent_id": "S0",
    "hostname": "n",
    "state": "up",
    "attributes": {"b": "2", "a": "1"},
    "region": None,
    "zone": "z1",
    "gpus_total": 4,
    "gpus_used": 1,
    "gpus_sick": 0,
    "gpus_drained": 0,
    "driver_version": None,
    "cuda_version": None,
    "volume": None,
    "volume_problem": "no room on /",
    "isolation": "off",
    "control_ports": "off",
    "drain": None,
    "source": "simulated",
    "reported_at": None,
    "tasks": 2,
    "cpus_total": 64.0,
    "cpus_free": 16.5,
    "mem_mib_total": 524288.0,
    "mem_mib_free": 131072.0,
}


def call(*words: str, stdin: str = "") -> Result:
    """In this process: for what needs no signals and no terminal."""
    return CliRunner().invoke(main, words, input=stdin, prog_name="mesos-gpu")


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The program as a process, which does not outlive the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with subprocess.Popen([*PROGRAM, *words], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def on_a_terminal(
    *words: str, lines: int = 12, columns: int = 80
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program on a terminal of its own, and the descriptor by which one reads and types there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    try:
        # In a session of its own, so that what asks for a password asks there and not at the terminal of the tests.
        with started(*words, env={**env, "TERM": "xterm"}, start_new_session=True, **streams) as process:
            yield process, ours
    finally:
        os.close(ours)
        os.close(theirs)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), (err or b"").decode()


def read_until(fd: int, words: bytes, timeout_s: float = 60.0, seen: bytes = b"") -> bytes:
    """What was `seen` of it before, and what comes until these words have come."""
    deadline = time.monotonic() + timeout_s
    while words not in seen:
        ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"{words!r} did not come; only {seen!r}"
        piece = os.read(fd, 65536)
        assert piece, f"the end came before {words!r}; only {seen!r}"
        seen += piece
    return seen


def why(job: str) -> dict[str, object]:
    """What is said of a job that waits."""
    missing = "lacks 2 more free GPUs"
    return {
        "job_id": job,
        "state": "pending",
        "summary": f"waits for 4 GPUs; nearest is n1, which {missing}",
        "queue_position": 1,
        "can_ever_run": True,
        "tasks_fit": None,
        "agents": 3,
        "funnel": [
            {"reason": "model", "removed": 2, "left": 1, "example": "n2 has T4"},
            {"reason": "gpus", "removed": 1, "left": 0, "example": f"n1 {missing}"},
        ],
        "nearest": {"hostname": "n1", "missing": missing},
        "nodes": [{"hostname": "n1", "agent_id": "S0", "reasons": [missing, "lacks 1 cpus"]}],
        "estimate": {"at": None, "basis": "nobody knows when job x ends"},
    }


def launch_two(rest: FakeRest, job: str) -> list[str]:
    """A launch of a job's two tasks; their ids."""
    first = rest.tasks[job][-1] if rest.launch(job) else {}
    names = [f"{first['id']}.{rank}" for rank in range(2)]
    rest.tasks[job][-1:] = [{**first, "id": name, "rank": rank} for rank, name in enumerate(names)]
    rest.update(job, task_id=names[0], task_ids=names)
    return names
