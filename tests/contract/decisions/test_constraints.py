"""Constraints among the jobs of an app, and those that no node meets, over nodes with attributes and zones."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.local.stack import NodeSpec
from tests.contract.decisions.site import Site, site_of


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    nodes = [
        NodeSpec(1, attributes={"rack": "1.5", "disk": "ssd"}, zone="east"),
        NodeSpec(1, attributes={"rack": "2"}, zone="east"),
        NodeSpec(1, attributes={"rack": "2"}, zone="west"),
    ]
    with site_of(nodes) as site:
        yield site


@pytest.mark.parametrize(
    ("constraint", "hosts"),
    [
        (["rack", "IS", "1.500"], [1]),
        (["disk", "UNLIKE", "s.*"], [2, 3]),
        (["@zone", "LIKE", "w.+"], [3]),
        (["hostname", "CLUSTER", "127.0.0.12"], [2]),
    ],
)
def test_constraints_of_a_job_choose_its_host(site: Site, constraint: list[str], hosts: list[int]) -> None:
    job = site.submit(constraints=[constraint, ["@hostname", "UNLIKE", "127.0.0.19.*"]])
    site.running(job)
    assert site.hosts(job)[0] in [f"127.0.0.1{host}" for host in hosts]
    site.kill(job)


def test_constraints_of_an_app_count_its_other_jobs(site: Site) -> None:
    unique: dict[str, Any] = {"app": "web", "constraints": [["hostname", "UNIQUE"]]}
    first = [site.submit("t", **unique) for _ in range(3)]
    site.running(*first)
    assert sorted(site.hosts(*first)) == [f"127.0.0.1{n}" for n in (1, 2, 3)]

    late = site.submit("t", **unique)
    why = site.client.why(late)
    assert why["can_ever_run"]
    assert all("violates constraint hostname UNIQUE: t-" in n["reasons"][0] for n in why["nodes"]), why
    beside = site.submit("beside", near="web", constraints=[["@zone", "IS", "west"]])
    site.running(beside)
    assert site.hosts(beside) == ["127.0.0.13"]

    freed = site.hosts(first[1])
    site.kill(first[1])
    site.running(late)
    assert site.hosts(late) == freed
    site.kill(first[0], first[2], late, beside)


def test_constraints_that_no_node_meets_are_named_by_why(site: Site) -> None:
    job = site.submit(constraints=[["@zone", "IS", "north"]])
    why = site.client.why(job)
    assert (why["state"], why["can_ever_run"]) == ("pending", False)
    assert why["summary"] == (
        "no node meets its constraints; 127.0.0.11 violates constraint @zone IS north: @zone is east"
    )
    site.kill(job)
