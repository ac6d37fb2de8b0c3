"""A pool of two teams on the real Mesos: dev borrows all of it, half of it is guaranteed to production."""

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
#: Prints its notice at each change, and goes on until it is ended. Only `sleep` is a process: many run at once.
WORKS: Final = """\
trap 'echo TERM; exit 75' TERM
told=
while :; do
  text=
  if [ -e "$MESOS_GPU_NOTICE" ]; then
    while read -r line || [ -n "$line" ]; do text="$text$line"; done < "$MESOS_GPU_NOTICE"
  fi
  if [ "$text" != "$told" ]; then told="$text"; printf '%s\\n' "$text"; fi
  sleep 0.5
done"""


@contextmanager
def pool(directory: Path, nodes: int = NODES) -> Iterator[tuple[Stack, Client]]:
    """Start nodes of two GPUs, of which half are guaranteed to production."""
    arguments = ["--share-linger", "1", "--report-interval", "2"]
    with (
        Stack(directory / "stack", [NodeSpec(GPUS)] * nodes, scheduler_arguments=arguments) as stack,
        client_of(stack, GPUS * nodes) as client,
    ):
        apply(client, shared_by(nodes))
        yield stack, client


def shared_by(nodes: int) -> dict[str, Any]:
    """Return queues of which production is guaranteed half of some nodes."""
    guarantee = [{"nodes": nodes // 2, "gpus": GPUS}]
    return {"production": {"guarantee_gpus": guarantee}, "dev": {"notice_s": NOTICE_S}}


def apply(client: Client, queues: Mapping[str, Any]) -> None:
    """Apply a tree of queues in place of the present one."""
    version = client.call("GET", "/v1/queues", dict[str, Any])["version"]
    client.call("PUT", "/v1/queues", dict[str, Any], body={"version": version, "queues": queues})


def submit(client: Client, name: str, queue: str, command: str = WORKS, **fields: object) -> str:
    """Submit a job; return its id."""
    request = {
        "name": name,
        "command": command,
        "queue": queue,
        "cpus": 0.1,
        "mem_mib": 32,
        "kill_grace_s": 2,
    }
    return client.submit({**request, **fields})["id"]


def borrow_all(client: Client, nodes: int = NODES) -> tuple[list[str], list[str]]:
    """Start jobs of dev on all GPUs: on half of the nodes whole ones, on the others halves; return their ids."""
    half = nodes // 2
    whole = [submit(client, "whole", "dev", gpus=GPUS, preemptible=True) for _ in range(half)]
    runs(client, whole)
    halves = [submit(client, "half", "dev", gpus=0.5, preemptible=True) for _ in range(2 * half * GPUS)]
    runs(client, halves)
    return whole, halves


def runs(client: Client, jobs: Sequence[str], within_s: float = 60) -> None:
    """Wait until all of them run."""
    wait_until("all run", lambda: {client.job(job)["state"] for job in jobs} == {"running"}, within_s)


def notices(client: Client, job: str, task_id: str) -> list[dict[str, Any]]:
    """Return the notices that a launch has read in its sandbox."""
    text = client.logs(job, stream="stdout", offset=0, length=100_000, task_id=task_id)["data"]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
