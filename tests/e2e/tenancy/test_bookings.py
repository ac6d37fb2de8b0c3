"""Bookings on real Mesos: one begins on time though a node was killed just before; who is in the way has notice."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.cluster.bookings import Booking
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import kill_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]
GPUS = 2  # of each node


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    directory.chmod(0o755)
    with Stack(directory / "cluster", [NodeSpec(GPUS), NodeSpec(GPUS)]) as stack, Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 2 * GPUS)
        yield stack
    shutil.rmtree(directory)


def book(client: Client, in_s: int, **fields: object) -> Booking:
    begins = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))
    body = {"name": "exam", "queue": "exam", "gpus": GPUS, "from": begins, "for_s": 600, **fields}
    return client.call("POST", "/v1/bookings", Booking, body=body)


def submit(client: Client, name: str, **fields: object) -> str:
    request = {"name": name, "command": "sleep 600", "gpus": GPUS, "cpus": 0.05, "mem_mib": 16, **fields}
    return client.submit(request)["id"]


def test_it_begins_on_time_though_a_node_was_killed_just_before(stack: Stack) -> None:
    with Client(stack.url) as client:
        others = [
            submit(client, f"other{i}", preemptible=True, notice_s=45, kill_grace_s=2) for i in range(2)
        ]
        wait_until(
            "both nodes are in use", lambda: all(client.job(id)["state"] == "running" for id in others)
        )
        booked = book(client, 60)
        exam = submit(client, "exam", queue="exam", booking="exam")
        look = f"/v1/bookings/{booked['id']}"
        wait_until("nodes are chosen", lambda: bool(client.get(look, Booking)["places"]), 90)
        (place,) = client.get(look, Booking)["places"]
        next(each for each in stack.cluster.agents if each.ip == place["node"]).kill()
        wait_until("it has begun", lambda: client.get(look, Booking)["state"] == "active", 120)
        wait_until("its job runs", lambda: client.job(exam)["state"] == "running", 120)
        now = client.get(look, Booking)
        assert now["places"][0]["node"] != place["node"]
        assert now["used_at"] is not None
        kinds = [each["kind"] for each in client.call("GET", "/v1/events", dict)["events"] if each["booking"]]
        assert kinds[:2] == ["booking_made", "booking_chosen"]
        assert {"booking_replaced", "booking_started"} <= set(kinds)
        client.call("DELETE", look, Booking)
        kill_all(client)
