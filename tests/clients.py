"""Clients of a cluster that a test has started."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from getpass import getuser
from pathlib import Path
from typing import IO

import pytest

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until


@contextmanager
def client_of(stack: Stack, gpus: int) -> Iterator[Client]:
    """A patient one, once the nodes have reported so many GPUs."""
    with Client(stack.reach) as client:
        client.patience_s = 60
        wait_until("the nodes report", lambda: len(client.gpus()) == gpus, 60)
        yield client


@contextmanager
def reporting(directory: Path, *gpus: int) -> Iterator[Stack]:
    """A cluster of a node for each of these numbers of GPUs, once all have reported."""
    with Stack(directory, [NodeSpec(each) for each in gpus]) as stack:
        with client_of(stack, sum(gpus)):
            pass
        yield stack


def command(*words: str, data: bytes = b"", cwd: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run a command of the command line in this process: without the start of Python it takes a tenth of the CPU.

    Signals, and commands that stay with a job until a signal, need a process of their own.

    Args:
        words: Arguments of `mesos-gpu`.
        data: Standard input.
        cwd: Directory in which it runs; without one, that of the tests.
    """
    with ExitStack() as held:
        files: list[IO[bytes]] = [held.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(data)
        files[0].seek(0)
        with _streams(files), chdir(cwd or "."):
            try:
                main([*words], prog_name="mesos-gpu")
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess([*words], code, files[1].read(), files[2].read())


@contextmanager
def _streams(files: list[IO[bytes]]) -> Iterator[None]:
    """Have descriptors 0 to 2, and Python's streams of them, lead to files."""
    with ExitStack() as held:
        patch = held.enter_context(pytest.MonkeyPatch.context())
        for number, file in enumerate(files):
            kept = os.dup(number)
            held.callback(os.close, kept)
            held.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = held.enter_context(open(number, "w" if number else "r", closefd=False))
            patch.setattr(sys, name, stream)
        yield


def said(stack: Stack, *words: str) -> str:
    """Return the output of a command, as the user who started the cluster."""
    ran = command("--url", stack.reach, *words)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode().strip()


def rule(stack: Stack, directory: Path) -> None:
    """Make who started a secure cluster its admin. `directory`: for a file."""
    mine = directory / "access.yaml"
    mine.write_text(f"bindings: [{{names: [{getuser()}], roles: [admin]}}]")
    said(stack, "access", "apply", "--yes", str(mine))


def run(client: Client, **request: object) -> tuple[str, str]:
    """State and output of a job."""
    job = client.submit({"cpus": 0.1, "mem_mib": 64, **request})
    job = [job, *client.follow(job)][-1]
    return job["state"], client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]


def kill_all(client: Client) -> None:
    """Ask for the end of whatever a test that failed may have left: it must not take the next one's GPUs."""
    for job in _active(client):
        client.kill(job)


def free_all(client: Client) -> None:
    """Kill whatever is left, and wait until no GPU is held: the next test may ask for all of them."""
    kill_all(client)
    wait_until("all GPUs are free", lambda: not any(gpu["task_id"] for gpu in client.gpus()))


def end_all(client: Client) -> None:
    """Kill whatever is left, and wait until it has ended: a document of queues must have those of all jobs."""
    kill_all(client)
    wait_until("all jobs have ended", lambda: not _active(client))


def _active(client: Client) -> list[str]:
    folded = {"fold_arrays": ["true"]}
    return [
        job["id"] for job in client.listed(states=["active"], limit=None, order=None, filters=folded)["jobs"]
    ]
