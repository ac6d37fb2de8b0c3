"""Bookings on real Mesos: one begins on time though its node was killed just before; jobs in its place have notice."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.cluster.bookings import Booking
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import kill_all
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]
GPUS = 2  # of each node
KILLED_BEFORE_S = 3.0
STARTED_WITHIN_S = 2.0  # of its begin: the scheduler looks at time every second
SEEN_WITHIN_S = (
    6.0  # the embedded master gives an agent up that misses four pings, one a second, after its last answer
)
LAUNCHED_WITHIN_S = (
    12.0  # an offer comes each second; the rest is for machines that are busy with other tests
)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    directory.chmod(0o755)
    with Stack(directory / "cluster", [NodeSpec(GPUS)] * 3) as stack, Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 3 * GPUS)
        yield stack
    shutil.rmtree(directory)


def book(client: Client, in_s: int, **fields: object) -> Booking:
    begins = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))
    body = {"name": "exam", "queue": "exam", "gpus": GPUS, "from": begins, "for_s": 600, **fields}
    return client.call("POST", "/v1/bookings", Booking, body=body)


def submit(client: Client, name: str, **fields: object) -> str:
    request = {"name": name, "command": "sleep 600", "gpus": GPUS, "cpus": 0.05, "mem_mib": 16, **fields}
    return client.submit(request)["id"]


def test_booking_begins_on_time_though_its_node_was_killed_just_before(stack: Stack) -> None:
    """Two nodes are in use, and one of them is chosen, whose job must have notice; the third is free from then on."""
    with Client(stack.url) as client:
        spare = stack.cluster.agents[2].ip
        OperatorCalls(client).drain_node(spare, "it is free later", by="ann", deadline_s=None)
        others = [
            submit(client, f"other{i}", preemptible=True, notice_s=20, kill_grace_s=2) for i in range(2)
        ]
        wait_until("two are in use", lambda: all(client.job(id)["state"] == "running" for id in others))
        booked = book(client, 40)
        exam = submit(client, "exam", queue="exam", booking="exam")
        look = f"/v1/bookings/{booked['id']}"
        wait_until("nodes are chosen", lambda: bool(client.get(look, Booking)["places"]), 60)
        (place,) = client.get(look, Booking)["places"]
        assert place["node"] != spare
        OperatorCalls(client).undrain_node(spare, by="ann")
        wait_until("it begins in seconds", lambda: time.time() > booked["begins"] - KILLED_BEFORE_S, 60)
        next(each for each in stack.cluster.agents if each.ip == place["node"]).kill()
        assert time.time() < booked["begins"], "it was killed before the begin"
        wait_until("its job runs", lambda: client.job(exam)["state"] == "running", 120)
        events = [each for each in client.call("GET", "/v1/events", dict)["events"] if each["booking"]]
        assert [each["kind"] for each in events][:2] == ["booking_made", "booking_chosen"]
        at = {each["kind"]: each["at"] for each in events}
        now = client.get(look, Booking)
        assert (now["state"], now["places"][0]["node"]) == ("active", spare)
        assert now["used_at"] is not None
        assert "booking_replaced" in at
        assert 0 <= at["booking_started"] - booked["begins"] <= STARTED_WITHIN_S
        started_at = client.job(exam)["started_at"]
        assert started_at is not None
        begun_s, late_s = at["booking_started"] - booked["begins"], started_at - booked["begins"]
        print(f"it began {begun_s:.3f} s, and its job started {late_s:.3f} s, after that was asked for")
        assert late_s <= SEEN_WITHIN_S - KILLED_BEFORE_S + LAUNCHED_WITHIN_S
        client.call("DELETE", look, Booking)
        kill_all(client)
