"""Clients of a cluster that a test has started."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

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


def said(stack: Stack, *words: str) -> str:
    """What a command of who started the cluster prints."""
    argv = [sys.executable, "-m", "mesos_gpu", *words, "--url", stack.reach]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


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
