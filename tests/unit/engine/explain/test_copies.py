"""A copy of the state for readers, beside the state that it is of."""

from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading import jobs, nodes, queues
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.tenancy.shares import Shares, standing_of
from mesos_gpu.model.ids import JobId, OfferId
from mesos_gpu.policy.tenancy.share import Layout
from tests.doubles.builders import World, offer
from tests.unit.engine.match.test_engine_shares import HALF, card, submit, world_of
from tests.unit.engine.tenancy.lending import Tenants, queue


@pytest.fixture
def world() -> Tenants:
    """A full cluster: a queue has borrowed all, and jobs of another one, with a seat and without, wait."""
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.document(dev=queue(2), prod=queue(6))
    for i in range(4):
        world.runs(f"runs{i}", "dev", 2)
    for i in range(4):
        world.submit(f"waits{i}", queue="prod", gpus=2, preemptible=True)
    world.passes(20)
    return world


def view_of(world: World) -> View:
    return View(world.state, world.settings, world.now)


def standing(view: View) -> Shares:
    return standing_of(view.state, view.settings, view.now)


def told(view: View) -> dict[str, Any]:
    """Return the answers to readers of a state."""
    return {
        "jobs": dict(view.jobs),
        "tasks": {job_id: jobs.tasks_of(view, job_id) for job_id in view.jobs},
        "gpus": nodes.gpu_statuses(view),
        "page": nodes.gpu_page(view, None, 3, 2),
        "holders": [nodes.holder_of(view, status.gpu.id) for status in nodes.gpu_statuses(view)],
        "amounts": nodes.node_amounts(view, view.nodes),
        "why": [jobs.explain_job(view, job_id) for job_id in view.jobs],
        "queue": jobs.waiting_jobs(view, 10),
        "reasons": jobs.wait_reasons(view, 10),
        "queues": [
            jobs.queue_uses(view),
            queues.queue_shares(view),
            queues.explain_queue(view, "prod"),
            queues.budget_standings(view),
        ],
        "room": {job_id: jobs.made_room_for(view, job_id) for job_id in view.jobs},
        "unmet": queues.unmet_demand(view),
        "disbelieved": view.disbelieved,
        "unused": list(nodes.unused_offers(view)),
    }


def test_copy_tells_readers_what_the_state_does(world: Tenants) -> None:
    assert any(jobs.made_room_for(view_of(world), job_id) for job_id in world.state.work.jobs), (
        "others end for a job"
    )
    assert world.state.quota.seats_given
    assert told(view_of(world).copied()) == told(view_of(world))


def test_copy_stays_as_it_was_whatever_follows(world: Tenants) -> None:
    copied = view_of(world).copied()
    before = told(copied)
    world.agents(1, 4)
    world.ends("runs0")
    world.starts()
    world.submit("new", queue="prod", gpus=1, preemptible=True)
    world.feed(ev.KillRequested(JobId("runs1")))
    world.offers(offer("more", "plain"))
    world.feed(ev.OfferRescinded(OfferId("more")))
    world.passes(90)
    assert told(view_of(world)) != before
    assert told(copied) == before


def test_copy_has_what_queues_are_due_without_dividing_again(
    world: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = {path: standing(view_of(world)).due(path, "default") for path in ("dev", "prod")}
    copied = view_of(world).copied()
    with monkeypatch.context() as patched:
        patched.delattr(Layout, "dues")
        assert {path: standing(copied).due(path, "default") for path in due} == due
    world.feed(*(ev.KillRequested(JobId(f"waits{i}")) for i in range(4)))
    assert {path: standing(view_of(world)).due(path, "default") for path in due} != due
    assert {path: standing(copied).due(path, "default") for path in due} == due


def test_share_of_a_card_that_ends_stays_in_a_copy() -> None:
    world = world_of(card("g1"))
    submit(world, "j1", **HALF)
    (shared,) = [
        nodes.shared_gpu(view_of(world), status.gpu) for status in nodes.gpu_statuses(view_of(world))
    ]
    assert shared is not None
    assert len(shared.tenants) == 1
    copied = view_of(world).copied()
    task_id = world.job("j1").task_id
    assert task_id is not None
    world.status(task_id, "TASK_FINISHED", agent="a1")
    assert [nodes.shared_gpu(copied, status.gpu) for status in nodes.gpu_statuses(copied)] == [shared]
