"""Clients of a cluster that a test has started."""

from collections.abc import Iterator
from contextlib import contextmanager

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until


@contextmanager
def client_of(stack: Stack, gpus: int) -> Iterator[Client]:
    """A patient one, once the nodes have reported so many GPUs."""
    with Client(stack.reach) as client:
        client.patience_s = 60
        wait_until("the nodes report", lambda: len(client.gpus()) == gpus, 60)
        yield client


def kill_all(client: Client) -> None:
    """Ask for the end of whatever a test that failed may have left: it must not take the next one's GPUs."""
    for job in client.jobs(states=["active"]):
        client.kill(job["id"])
