"""Placement of small jobs, and of a job that needs a whole node: the case of ten free GPUs on four nodes."""

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from mesos_gpu.local.stack import NodeSpec
from mesos_gpu.model.jobs.job import Placement
from tests.conftest import wait_until
from tests.contract.decisions.site import Site, site_of

NODES, GPUS, SMALL = 4, 4, 6


def cluster(**settings: Any) -> AbstractContextManager[Site]:
    return site_of([NodeSpec(GPUS)] * NODES, **settings)


def fill(site: Site) -> list[int]:
    """Start small jobs that leave ten GPUs free; return how many each used host has."""
    jobs = []
    for number in range(SMALL):
        jobs.append(site.submit(f"small-{number}", 1))
        site.running(jobs[-1])
    return sorted(Counter(site.hosts(*jobs)).values())


def test_placement_spread_leaves_ten_gpus_on_four_nodes_and_why_says_so() -> None:
    with cluster(placement=Placement.SPREAD) as site:
        assert fill(site) == [1, 1, 2, 2]
        big = site.submit("big", 4)
        why = site.client.why
        wait_until("the job is looked at", lambda: "fragmentation" in why(big)["summary"])
        assert "10 are free, on 4 nodes with at most 3 each: fragmentation" in why(big)["summary"]
        assert site.states(big) == ["pending"]


def test_placement_bundle_leaves_whole_nodes_and_an_app_has_its_own() -> None:
    with cluster(placement_of={"wide": Placement.SPREAD}) as site:
        assert fill(site) == [2, 4]
        big = site.submit("big", 4)
        site.running(big)
        one = site.submit("apart", 1, app="wide", gpu_memory_mib=80_000, compute_capability="8.0")
        site.running(one)
        used = {str(job["hostname"]) for job in site.client.jobs() if job["name"] != "apart"}
        assert not used & set(site.hosts(one)), "an app's placement goes before the scheduler's"
        newer = site.submit("newer", 1, compute_capability="8.9")
        assert site.client.why(newer)["state"] == "pending", "these cards have 8.0"
