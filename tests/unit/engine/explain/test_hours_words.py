"""Words about other hours of a queue: what they change, and which are the next that do."""

from typing import Any, Final

import pytest

from mesos_gpu.engine.explain.hours import estimate_then, hours_words, next_hours
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.tenancy import Guarantee, Hours, Pool, QueueSpec
from tests.doubles.builders import World, gpu
from tests.unit.engine.tenancy.lending import Tenants
from tests.unit.engine.tenancy.worlds import most, owed, tree_world

#: A world begins at 00:16 UTC, on a Thursday; these hours end at six.
NIGHT: Final = ("22:00", "06:00")
SIX: Final = 6 * 3600.0


def night(**figures: Any) -> tuple[Hours, ...]:
    return (Hours(*NIGHT, **figures),)


def said(world: World, queue: str) -> str:
    return hours_words(world.state, queue, world.now)


@pytest.mark.parametrize(
    ("day", "hours", "words"),
    [
        ({"guarantee_gpus": owed(4)}, {"guarantee_gpus": owed(1)}, "is guaranteed 4 GPUs"),
        ({"limit_gpus": most(1)}, {"limit_gpus": most(8)}, "may hold 1 GPU"),
        ({"borrow_limit_gpus": most(2.5)}, {"borrow_limit_gpus": most(8)}, "may borrow 2.5 GPUs"),
        (
            {"guarantee_gpus": owed(4), "lend_limit_gpus": most(3)},
            {"lend_limit_gpus": most(0)},
            "lends 3 GPUs",
        ),
        ({"weight": 3}, {"weight": 1}, "has the weight 3"),
        ({"band": 5}, {"band": 1}, "is of band 5"),
        (
            {"weight": 3, "limit_gpus": most(1)},
            {"weight": 1, "limit_gpus": most(8)},
            "may hold 1 GPU and has the weight 3",
        ),
    ],
)
def test_reason_names_the_limits_of_the_next_hours(
    day: dict[str, Any], hours: dict[str, Any], words: str
) -> None:
    world = tree_world({"dev": QueueSpec(hours=night(**hours), **day), "ops": QueueSpec()})
    assert said(world, "dev") == f"from 06:00Z on queue dev {words}"
    assert said(world, "ops") == ""
    assert next_hours(world.state, "ops") is None
    span = next_hours(world.state, "dev")
    assert span is not None
    assert span.since == SIX


def test_figures_of_pools_that_stay_are_not_told() -> None:
    day = {"fast": Guarantee(2000), "default": Guarantee(1000)}
    hours = night(guarantee_gpus={"fast": Guarantee(1000)})
    world = tree_world(
        {"dev": QueueSpec(guarantee_gpus=day, hours=hours)}, pools=(Pool("fast", models=("H100",)),)
    )
    assert said(world, "dev") == "from 06:00Z on queue dev is guaranteed 2 GPUs of pool fast"


def test_figures_of_queues_above_are_told_after_its_own() -> None:
    queues = {
        "lab": QueueSpec(limit_gpus=most(4), hours=night(limit_gpus=most(1))),
        "lab/x": QueueSpec(weight=2, hours=night(weight=7)),
        "lab/y": QueueSpec(weight=3, hours=night(weight=9)),
    }
    world = tree_world(queues)
    assert said(world, "lab/x") == ("from 06:00Z on queue lab/x has the weight 2; queue lab may hold 4 GPUs")
    assert said(world, "lab") == "from 06:00Z on queue lab may hold 4 GPUs"


def test_hours_that_change_nothing_for_a_queue_are_passed_over() -> None:
    queues = {
        "dev": QueueSpec(weight=2, hours=(Hours("12:00", "13:00", weight=7),)),
        "ops": QueueSpec(weight=2, hours=tuple(Hours(f"0{i}:00", f"0{i}:30", weight=7) for i in range(1, 8))),
    }
    world = tree_world(queues)
    assert said(world, "ops") == "from 01:00Z on queue ops has the weight 7"
    assert said(world, "dev") == "from 12:00Z on queue dev has the weight 7"
    assert said(tree_world({"dev": QueueSpec()}), "dev") == ""
    assert said(World(), "dev") == ""


@pytest.mark.parametrize(("between", "told"), [(7, True), (8, False)])
def test_next_hours_are_looked_for_among_sixteen(between: int, told: bool) -> None:
    others = tuple(Hours(f"{i:02}:00", f"{i:02}:30", weight=7) for i in range(1, 1 + between))
    queues = {"dev": QueueSpec(hours=(Hours("12:00", "13:00", weight=7),)), "ops": QueueSpec(hours=others)}
    world = tree_world(queues)  # each of the others begins and ends before
    assert bool(said(world, "dev")) is told


def test_job_that_other_hours_let_start_is_told_when() -> None:
    world = Tenants()
    world.register()
    world.cards["a0"] = 2
    world.node("a0", *(gpu(f"g{i}") for i in range(2)), cpus=64)
    world.document_of({"dev": QueueSpec(limit_gpus=most(2), hours=night(limit_gpus=most(1)))})
    world.submit("wide", queue="dev", gpus=2, preemptible=True)
    job = world.job("wide")
    then = estimate_then(world.state, world.settings, world.now, job)
    assert then is not None
    assert then.at == SIX
    assert then.basis.endswith(", with the hours from 06:00Z on")
    told = why_of(world.state, world.settings, world.now, job)
    assert told.estimate == then
    assert told.summary.endswith("; from 06:00Z on queue dev may hold 2 GPUs")
    world.document_of({"dev": QueueSpec(limit_gpus=most(1))})
    assert estimate_then(world.state, world.settings, world.now, world.job("wide")) is None
