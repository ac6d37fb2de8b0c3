"""A pool of two teams on the real Mesos: dev borrows all of it, production is owed half."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until

NOTICE_S: Final = 3
NODES: Final = 4
GPUS: Final = 2  # of each
QUEUES: Final[Mapping[str, Any]] = {
    "production": {"guarantee_gpus": [{"nodes": 2, "gpus": GPUS}]},
    "dev": {"notice_s": NOTICE_S},
}
#: Says what its notice says, and goes on until it is ended. Many run at once, and each look starts processes.
WORKS: Final = """\
trap 'echo TERM; exit 75' TERM
while :; do
  if ! cmp -s "$MESOS_GPU_NOTICE" told && cp "$MESOS_GPU_NOTICE" told 2> /dev/null; then tr -d '\\n' < told; echo; fi
  sleep 0.5
done"""


@contextmanager
def pool(directory: Path) -> Iterator[tuple[Stack, Client]]:
    """Four nodes of two GPUs, the tree applied."""
    arguments = ["--share-linger", "1", "--report-interval", "2"]
    with (
        Stack(directory / "stack", [NodeSpec(GPUS)] * NODES, scheduler_arguments=arguments) as stack,
        client_of(stack, GPUS * NODES) as client,
    ):
        apply(client, QUEUES)
        yield stack, client


def apply(client: Client, queues: Mapping[str, Any]) -> None:
    """Let the tree be that, whatever it was."""
    version = client.call("GET", "/v1/queues", dict[str, Any])["version"]
    client.call("PUT", "/v1/queues", dict[str, Any], body={"version": version, "queues": queues})


def submit(client: Client, name: str, queue: str, command: str = WORKS, **fields: object) -> str:
    """The job's id."""
    request = {
        "name": name,
        "command": command,
        "queue": queue,
        "cpus": 0.1,
        "mem_mib": 32,
        "kill_grace_s": 2,
    }
    return client.submit({**request, **fields})["id"]


def borrow_all(client: Client) -> tuple[list[str], list[str]]:
    """Jobs of dev on all GPUs: of two nodes whole ones, of two nodes halves."""
    whole = [submit(client, "whole", "dev", gpus=GPUS, preemptible=True) for _ in range(2)]
    runs(client, whole)
    halves = [submit(client, "half", "dev", gpus=0.5, preemptible=True) for _ in range(4 * GPUS)]
    runs(client, halves)
    return whole, halves


def runs(client: Client, jobs: Sequence[str], within_s: float = 60) -> None:
    """Wait until all of them run."""
    wait_until("all run", lambda: {client.job(job)["state"] for job in jobs} == {"running"}, within_s)


def notices(client: Client, job: str, task_id: str) -> list[dict[str, Any]]:
    """What a launch has read in its sandbox."""
    text = client.logs(job, stream="stdout", offset=0, length=100_000, task_id=task_id)["data"]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
