"""Constraints on real Mesos: attributes, zones and apps as its offers have them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    nodes = [
        NodeSpec(1, attributes={"rack": "1.50", "disk": "ssd"}, zone="east"),
        NodeSpec(1, attributes={"rack": "2"}, zone="east"),
        NodeSpec(1, attributes={"rack": "2"}, zone="west"),
    ]
    with Stack(open_directory / "stack", nodes) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 3)
        yield client
        for job in client.jobs(states=("active",)):
            client.kill(job["id"])
        wait_until("the ends", lambda: not client.jobs(states=("active",)))


def submit(client: Client, **fields: object) -> str:
    return client.submit({"name": "t", "command": "sleep 100", "cpus": 0.1, "mem_mib": 32, **fields})["id"]


def placed(client: Client, *jobs: str) -> list[str | None]:
    def now() -> list[Job]:
        return [client.job(job) for job in jobs]

    wait_until("they run", lambda: all(job["state"] in ("running", "finished") for job in now()))
    return [job["hostname"] for job in now()]


def test_the_nodes_say_their_attributes_and_zones(client: Client) -> None:
    places = {n["hostname"]: (n["attributes"]["rack"], n["region"], n["zone"]) for n in client.nodes()}
    assert places == {
        "127.0.0.11": ("1.5", "local", "east"),
        "127.0.0.12": ("2", "local", "east"),
        "127.0.0.13": ("2", "local", "west"),
    }


@pytest.mark.parametrize(
    ("constraint", "hosts"),
    [
        (["rack", "IS", "1.500"], [1]),
        (["disk", "UNLIKE", "s.*"], [2, 3]),
        (["@zone", "LIKE", "w.+"], [3]),
        (["hostname", "CLUSTER", "127.0.0.12"], [2]),
    ],
)
def test_a_job_goes_where_its_constraints_say(
    client: Client, constraint: list[str], hosts: list[int]
) -> None:
    job = submit(client, command="true", constraints=[constraint, ["@hostname", "UNLIKE", "127.0.0.19.*"]])
    wait_until("its end", lambda: ended(client.job(job)))
    end = client.job(job)
    assert end["state"] == "finished", end
    assert end["hostname"] in [f"127.0.0.1{host}" for host in hosts]


def test_the_jobs_of_an_app_see_each_other(client: Client) -> None:
    unique = {"app": "web", "constraints": [["hostname", "UNIQUE"]]}
    first = [submit(client, **unique) for _ in range(3)]
    assert sorted(map(str, placed(client, *first))) == [f"127.0.0.1{n}" for n in (1, 2, 3)]

    late = submit(client, **unique)
    why = client.why(late)
    assert why["can_ever_run"]
    assert all("violates constraint hostname UNIQUE: t-" in n["reasons"][0] for n in why["nodes"]), why
    beside = submit(client, near="web", constraints=[["@zone", "IS", "west"]])
    assert placed(client, beside) == ["127.0.0.13"]

    freed = client.job(first[1])["hostname"]
    client.kill(first[1])
    assert placed(client, late) == [freed]


def test_a_zone_that_is_not_there_is_said(client: Client) -> None:
    why = client.why(submit(client, constraints=[["@zone", "IS", "north"]]))
    assert (why["state"], why["can_ever_run"]) == ("pending", False)
    assert why["summary"] == (
        "no node meets its constraints; 127.0.0.11 violates constraint @zone IS north: @zone is east"
    )
