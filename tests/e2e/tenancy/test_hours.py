"""Pools and hours on the real Mesos: jobs go on to the next pool; a guarantee of some hours holds from their begin."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from tests.clients import end_all
from tests.conftest import wait_until
from tests.e2e.tenancy.story import GPUS, NODES, apply, notices, pool, runs, submit

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]
AHEAD_S = 12  # from the document to the hours that change
NOTICE_S = 6
OTHERS: dict[str, Any] = {"team": {}, "owner": {}, "dev": {}}  # jobs of them may be about to end


@pytest.fixture(scope="module")
def cluster(open_directory: Path) -> Iterator[Client]:
    with pool(open_directory) as (_, client):
        yield client


@pytest.fixture
def client(cluster: Client) -> Iterator[Client]:
    yield cluster
    end_all(cluster)


def host_of(client: Client, job: str) -> str:
    return str(client.tasks(job)[-1]["hostname"])


def test_pools_are_used_in_order_and_dedicated_ones_by_their_queue_alone(client: Client) -> None:
    first, second, *others = sorted({node["hostname"] for node in client.nodes()})
    pools = {
        "first": {"constraints": [["hostname", "IS", first]]},
        "own": {"constraints": [["hostname", "LIKE", second]], "dedicated": True},
    }
    queues = {
        "team": {"pools": ["first", "default"], "overflow_after_s": 4},
        "owner": {"pools": ["own"]},
        "dev": {},
    }
    version = client.call("GET", "/v1/queues", dict[str, Any])["version"]
    body = {"version": version, "pools": pools, "queues": queues}
    client.call("PUT", "/v1/queues", dict[str, Any], body=body)
    fills = submit(client, "fills", "team", gpus=GPUS, preemptible=True)
    runs(client, [fills])
    assert host_of(client, fills) == first
    waits = submit(client, "waits", "team", gpus=GPUS, preemptible=True)
    said = wait_until(
        "why says it",
        lambda: client.why(waits)["summary"] if "may use" in client.why(waits)["summary"] else "",
    )
    assert "it waits for pool first, and may use pool default from" in said
    runs(client, [waits])
    job = client.job(waits)
    assert (job["started_at"] or 0) - job["submitted_at"] >= 4
    assert host_of(client, waits) in others
    many = [submit(client, "many", "dev", gpus=GPUS, preemptible=True) for _ in range(NODES)]
    owned = submit(client, "owned", "owner", gpus=GPUS, preemptible=True)
    runs(client, [owned])
    assert host_of(client, owned) == second, "nobody else was there"
    wait_until(
        "all others run that can",
        lambda: [client.job(each)["state"] for each in many].count("running") == NODES - 3,
    )


def test_hours_give_a_queue_its_guarantee_from_their_begin_on(client: Client) -> None:
    day = {"notice_s": NOTICE_S, "guarantee_gpus": GPUS * NODES}
    apply(client, {**OTHERS, "day": day, "night": {}})
    holds = [submit(client, "day", "day", gpus=GPUS, preemptible=True) for _ in range(NODES)]
    runs(client, holds)
    moment = int(time()) + AHEAD_S
    begins, ends = (f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}" for at in (moment, moment + 3600))
    hours = {"from": begins, "to": ends}
    apply(
        client,
        {
            **OTHERS,
            "day": {**day, "hours": [{**hours, "guarantee_gpus": GPUS * (NODES - 1)}]},
            "night": {"hours": [{**hours, "guarantee_gpus": GPUS}]},
        },
    )
    in_force = client.call("GET", "/v1/queues", dict[str, Any])["in_force"]
    assert in_force["until"] == moment
    assert in_force["next"]["night"]["guarantee_gpus"] == GPUS
    owed = submit(client, "night", "night", "sleep 600", gpus=GPUS)
    assert client.job(owed)["state"] == "pending", (
        "it is taken in, though nothing is guaranteed to its queue now"
    )
    runs(client, [owed])
    started_at = client.job(owed)["started_at"]
    assert started_at is not None
    assert started_at >= moment
    (stopped,) = (job for job in holds if client.job(job)["state"] == "pending")
    (launch, *_) = client.tasks(stopped)
    (notice,) = notices(client, stopped, launch["id"])
    assert (notice["reason"], notice["by"], notice["recalled"]) == ("reclaim", owed, False)
    assert notice["until"] >= moment - 1
    assert notice["at"] <= notice["until"] - NOTICE_S + 1
