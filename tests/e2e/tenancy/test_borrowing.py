"""Borrowing on the real Mesos: a team uses a pool of which half is guaranteed to another, from notice to return."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.stack import Stack
from tests.clients import end_all
from tests.conftest import wait_until
from tests.e2e.tenancy.story import (
    GPUS,
    NODES,
    NOTICE_S,
    apply,
    borrow_all,
    notices,
    pool,
    runs,
    shared_by,
    submit,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


#: Nodes of the pool; nightly with gangs over two of four.
SIZES = [2, pytest.param(NODES, marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=SIZES)
def nodes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def cluster(open_directory: Path, nodes: int) -> Iterator[tuple[Stack, Client]]:
    with pool(open_directory / f"of-{nodes}", nodes) as made:
        yield made


@pytest.fixture
def client(cluster: tuple[Stack, Client], nodes: int) -> Iterator[Client]:
    yield cluster[1]
    end_all(cluster[1])
    apply(cluster[1], shared_by(nodes))


def test_borrowing_ends_with_a_notice_for_a_guarantee_and_borrowers_come_back(
    client: Client, nodes: int
) -> None:
    whole, halves = borrow_all(client, nodes)
    unique = {"constraints": [["hostname", "UNIQUE"]]} if nodes > 2 else {}
    gang = submit(client, "gang", "production", "sleep 600", gpus=GPUS, tasks=nodes // 2, **unique)
    runs(client, [gang])
    jobs = {job["id"]: job for job in client.jobs() if job["queue"] == "dev"}
    stopped = [job for job in (*whole, *halves) if jobs[job]["state"] != "running"]
    assert nodes // 2 <= len(stopped) <= nodes * GPUS, "no more than half of the nodes"
    for job in stopped:
        (launch, *_) = client.tasks(job)
        (notice,) = notices(client, job, launch["id"])
        assert (notice["reason"], notice["by"], notice["recalled"]) == ("reclaim", gang, False)
        assert notice["until"] - notice["at"] == pytest.approx(NOTICE_S)
        assert launch["ended_at"] >= notice["until"] - 1, "it was told, and then ended"
        assert jobs[job]["attempts"] == 0, "no attempt is used up"
    client.kill(gang)
    runs(client, [*whole, *halves])
    assert all(len(client.tasks(job)) == 2 for job in stopped)


@pytest.mark.long
def test_borrowing_goes_on_when_the_room_is_not_needed_any_more(client: Client, nodes: int) -> None:
    whole, halves = borrow_all(client, nodes)
    gang = submit(client, "gang", "production", "sleep 600", gpus=GPUS, tasks=nodes // 2)

    def told() -> list[tuple[str, str]]:
        launches = [(job, client.tasks(job)[-1]["id"]) for job in (*whole, *halves)]
        return [(job, launch) for job, launch in launches if notices(client, job, launch)]

    readers = wait_until("a job has read a notice", told, 60)
    client.kill(gang)
    job, launch = readers[0]
    wait_until("it was recalled", lambda: notices(client, job, launch)[-1]["recalled"], 60)
    runs(client, [*whole, *halves])
    assert {len(client.tasks(job)) for job in (*whole, *halves)} == {1}, "none was stopped"


def test_team_takes_back_its_own_gpus_and_none_that_another_does_not_lend(client: Client, nodes: int) -> None:
    gpus = nodes * GPUS
    apply(
        client,
        {
            "team": {"guarantee_gpus": gpus - 1},
            "rest": {"guarantee_gpus": 1, "lend_limit_gpus": 0},
            "dev": {"notice_s": NOTICE_S},
        },
    )
    borrowers = [submit(client, "borrower", "dev", gpus=1, preemptible=True) for _ in range(gpus)]
    runs(client, borrowers[:-1])
    own = submit(client, "own", "team", "sleep 600", gpus=1)
    told = wait_until("a borrower ends for it", lambda: ended_for(client, own), 60)
    resting = submit(client, "resting", "rest", "sleep 600", gpus=1)
    runs(client, [resting, own])
    assert len(told) == 1
    assert ended_for(client, own) == told
    assert ended_for(client, resting) == []
    assert client.job(borrowers[-1])["state"] == "pending"


def test_gang_of_a_drained_node_starts_again_before_a_job_behind_it(client: Client, nodes: int) -> None:
    fields = {"gpus": GPUS, "preemptible": True}
    unique = {"tasks": nodes, "constraints": [["hostname", "UNIQUE"]]}
    gang = submit(client, "gang", "dev", "sleep 600", **fields, **unique)
    runs(client, [gang])
    behind = submit(client, "behind", "dev", "sleep 600", **fields)
    host = client.tasks(gang)[0]["hostname"]
    OperatorCalls(client).drain_node(host, "a new fan", by="ann", deadline_s=1.0)
    wait_until("the gang has ended", lambda: client.job(gang)["state"] == "pending", 60)
    small = submit(client, "small", "dev", "true", preemptible=True)
    wait_until("what is free was offered", lambda: client.job(small)["state"] == "finished", 60)
    assert client.job(behind)["state"] == "pending"
    OperatorCalls(client).undrain_node(host, by="ann")
    runs(client, [gang])
    assert client.job(behind)["launches"] == 0
    assert client.job(gang)["attempts"] == 0


def ended_for(client: Client, job: str) -> list[str]:
    """Return the jobs with a notice to end for a job."""
    others = [each["id"] for each in client.jobs() if each["queue"] == "dev"]
    launches = [(other, client.tasks(other)) for other in others]
    return [
        other
        for other, tasks in launches
        if any(read["by"] == job for task in tasks for read in notices(client, other, task["id"]))
    ]
