"""A limit of Mesos on the scheduler's role: offers are shrunk by it, and nodes are not taken to be smaller."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.gpus.role import ASK_AGAIN_S
from mesos_gpu.engine.reading.jobs import waiting_jobs
from mesos_gpu.model.nodes.role import Role
from tests.doubles.builders import World
from tests.unit.policy.queueing.test_queue import run, view, world

LIMITED = Role("gpu", limits={"gpus": 6.0}, used={"gpus": 4.0})


@pytest.mark.parametrize(
    ("role", "basis"),
    [
        (None, "job y has run 70s of its timeout_s 16m on a1"),
        (Role("gpu"), "job y has run 70s of its timeout_s 16m on a1"),
        (replace(LIMITED, limits={"gpus": 100.0}), "job y has run 70s of its timeout_s 16m on a1"),
        (LIMITED, "what it needs is free on a0.example"),
    ],
)
def test_gpus_that_a_limit_keeps_off_offers_are_still_the_nodes(role: Role | None, basis: str) -> None:
    made = world(agents=2)
    run(made, "x", gpus=2, timeout_s=1000)
    run(made, "y", gpus=4, timeout_s=1000)
    made.submit("big", gpus=4)
    made.status("x.1", "TASK_FINISHED", agent="a0")  # and its GPUs are not offered again
    if role is not None:
        made.feed(ev.RoleRead(role))
    made.tick(70)
    assert waiting_jobs(view(made), 1)[0].estimate.basis.startswith(basis)


def why(made: World, name: str) -> str:
    return why_of(made.state, made.settings, made.now, made.job(name)).summary


def test_explanation_names_the_limit_of_a_role() -> None:
    made = world(role="gpu")
    run(made, "x", gpus=4)
    made.submit("big", gpus=4)
    made.feed(ev.RoleRead(LIMITED))
    said = "; by Mesos' quota the role gpu may have 6 GPUs, and 4 are used"
    assert why(made, "big").endswith(said)
    made.submit("small", gpus=2)
    assert said not in why(made, "small")


def test_role_is_asked_for_while_jobs_wait() -> None:
    made = world()
    asked = [each for each in made.tick(ASK_AGAIN_S + 1) if isinstance(each, fx.ReadRole)]
    assert asked == [], "nobody waits"
    run(made, "x", gpus=4)
    made.submit("big", gpus=4)
    counts = [sum(isinstance(each, fx.ReadRole) for each in made.tick(ASK_AGAIN_S / 2)) for _ in range(5)]
    assert counts[:1] == [1]
    assert sum(counts) == 3
