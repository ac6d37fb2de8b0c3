"""Placement policies: one registry, from which the scheduler, the simulator and the benchmark choose."""

from pathlib import Path

import click
import pytest

from mesos_gpu.cli.simulate.commands import inflation
from mesos_gpu.model.jobs.job import Placement
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import mix_of
from mesos_gpu.policy.cluster.policies import BestFit
from mesos_gpu.policy.cluster.registry import OFFERED, POLICIES, Registered
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import View
from mesos_gpu.simulate.inflation import cluster, run

ROOT = Path(__file__).parents[4]
REQUESTS = [Shape(1000, 1024, 1), Shape(1000, 1024, 2)]


def test_jobs_may_ask_for_what_is_registered_under_the_names_of_requests() -> None:
    assert tuple(placement.value for placement in Placement) == OFFERED
    assert set(OFFERED) <= POLICIES.keys()


@pytest.mark.parametrize("name", POLICIES)
def test_registered_policies_place_a_request(name: str) -> None:
    view = View([Row(4000, 4096, (WHOLE, WHOLE), "A")], POLICIES[name].make(lambda: mix_of(REQUESTS), 0))
    assert view.best(view.shape(REQUESTS[0])) == 0


@pytest.mark.parametrize("name", OFFERED)
def test_registered_policies_that_jobs_may_ask_for_are_on_their_page(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/placement.md").read_text("utf-8")


def test_registered_policy_can_be_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "new", Registered(lambda mix, seed: BestFit()))
    assert run(cluster(2, 2), REQUESTS, "new", 0, target=50).placements


def test_registered_policies_are_all_offered_by_the_simulator() -> None:
    (option,) = [param for param in inflation.params if param.name == "policy"]
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == set(POLICIES)
