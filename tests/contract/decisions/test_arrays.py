"""Job arrays as clients see them: the limit of tasks at once, a range that is killed, a restart amid the array."""

from collections.abc import Iterator

import pytest

from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.local.stack import NodeSpec
from tests.conftest import wait_until
from tests.contract.decisions.site import Site, site_of


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of([NodeSpec(8)]) as site:
        yield site


def of(site: Site, name: str) -> Array:
    return site.client.get(f"/v1/arrays/{name}", Array)


def test_array_runs_each_index_once_and_no_more_at_once_than_its_limit(site: Site) -> None:
    id = site.submit("sweep", 1, array="0-19%4")
    begun: list[int] = []
    while site.client.job(id)["ended_at"] is None:
        running = wait_until("tasks run", lambda: site.client.jobs(states=["running"]))
        assert len(running) <= 4
        index = running[0]["array_index"]
        assert index is not None
        begun.append(index)
        site.end(running[0]["id"])
    assert sorted(begun) == list(range(20))
    assert of(site, "sweep")["finished"] == "0-19"


def test_array_range_is_killed_whether_it_runs_or_not(site: Site) -> None:
    id = site.submit("killed", 1, array="0-9%5")
    wait_until("five run", lambda: of(site, "killed")["running"] == "0-4")
    site.client.kill("killed.3-7")
    wait_until("the range has ended", lambda: of(site, "killed")["killed"] == "3-7")
    wait_until("others take their place", lambda: of(site, "killed")["running"] == "0-2,8-9")
    assert site.client.job("killed.5")["state"] == "killed"
    site.client.kill(id)
    wait_until("the array has ended", lambda: site.client.job(id)["ended_at"] is not None)
    assert of(site, "killed")["killed"] == "0-9"
