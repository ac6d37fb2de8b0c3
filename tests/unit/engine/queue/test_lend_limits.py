"""Limits of what queues lend: their idle guarantees are kept from others, and never from their own jobs."""

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.tenancy import DEFAULT_POOL, QueueSpec
from tests.doubles.builders import World
from tests.unit.engine.tenancy.lending import Tenants, queue
from tests.unit.engine.tenancy.worlds import again, node, owed, running, tree_world

LENDS_ONE = QueueSpec(guarantee_gpus=owed(4), lend_limit_gpus={DEFAULT_POOL: 1000})
TREES = {
    "of a leaf": {"dev": LENDS_ONE, "ops": QueueSpec()},
    "of one above": {"dev": LENDS_ONE, "dev/x": QueueSpec(), "dev/y": QueueSpec(), "ops": QueueSpec()},
    "of one below": {
        "dev": QueueSpec(guarantee_gpus=owed(4)), "dev/x": LENDS_ONE, "dev/y": QueueSpec(), "ops": QueueSpec(),
    },
}  # fmt: skip


def world(tree: dict[str, QueueSpec]) -> World:
    made = tree_world(tree)
    node(made, "a1", 8)
    return made


def starts(tree: dict[str, QueueSpec], queue: str, gpus: int) -> bool:
    made = world(tree)
    made.submit("j1", queue=queue, gpus=gpus, preemptible=True)
    again(made, "a1", 8)
    return "j1" in running(made)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_lend_limit_keeps_what_is_idle_from_other_queues(tree: dict[str, QueueSpec]) -> None:
    assert starts(tree, "ops", 5), "8 but the 3 that are not lent"
    assert not starts(tree, "ops", 6)


@pytest.mark.parametrize(
    ("name", "queue"),
    [("of a leaf", "dev"), ("of one above", "dev/x"), ("of one above", "dev/y"), ("of one below", "dev/x")],
)
def test_lend_limit_keeps_nothing_from_jobs_of_its_own_queue(name: str, queue: str) -> None:
    assert starts(TREES[name], queue, 8)


def test_lend_limit_of_a_queue_holds_beside_it_and_not_above() -> None:
    assert not starts(TREES["of one below"], "dev/y", 6)
    assert starts(TREES["of one below"], "dev/y", 5)


def test_lend_limit_keeps_less_while_its_queue_uses_more() -> None:
    made = world(TREES["of a leaf"])
    made.submit("own", queue="dev", gpus=2)
    again(made, "a1", 8)
    made.submit("j1", queue="ops", gpus=5, preemptible=True)
    again(made, "a1", 6)
    assert running(made) == {"own", "j1"}, "of the 6 that are left one is not lent"


def test_lender_whose_jobs_come_back_takes_back_what_it_lent_and_nothing_else() -> None:
    made = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    made.register()
    made.agents(1, 8)
    made.document(
        team=queue(6), rest=queue(2, lend_limit_gpus={DEFAULT_POOL: 0}), borrower=queue(notice_s=30)
    )
    for number in range(6):
        made.runs(f"b{number}", "borrower")
    made.submit("b6", queue="borrower", gpus=1, preemptible=True)
    for number in range(2):
        made.submit(f"t{number}", queue="team", gpus=1, preemptible=True)
    made.passes(10)
    states = [made.job(f"t{number}").state.value for number in range(2)]
    assert states == ["pending", "pending"], "what is free is kept for rest"
    told = {task.preempted_for for task in made.state.work.tasks.values() if task.notice or task.kill_sent_at}
    assert told == {"t0", "t1"}
    made.submit("r0", queue="rest", gpus=2, preemptible=True)
    made.passes(2)
    made.starts()
    assert made.job("r0").state.value == "running", "at once"
    made.passes(60)
    made.obeys()
    made.passes(10)
    made.starts()
    assert [made.job(f"t{number}").state.value for number in range(2)] == ["running", "running"]
    assert len([task for task in made.state.work.tasks.values() if task.job_id and not task.ended]) == 7


def test_job_larger_than_what_is_lent_keeps_no_room_from_the_next_job() -> None:
    lender = QueueSpec(guarantee_gpus=owed(1), lend_limit_gpus={DEFAULT_POOL: 0})
    made = tree_world({"dev": lender, "ops": QueueSpec()})
    node(made, "a1", 2)
    made.submit("large", queue="ops", gpus=2, preemptible=True)
    made.submit("small", queue="ops", gpus=1, preemptible=True)
    again(made, "a1", 2)
    assert running(made) == {"small"}


def test_lend_limit_room_is_kept_for_the_first_job_that_waits_for_it() -> None:
    lender = QueueSpec(guarantee_gpus=owed(2), lend_limit_gpus={DEFAULT_POOL: 0})
    made = Tenants(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
    made.register()
    made.agents(2, 2)
    made.document(dev=lender, ops=queue(starve_after_s=10), rest=queue())
    made.runs("one", "rest")
    made.submit("two", queue="ops", gpus=2, preemptible=True)
    made.passes(20)
    made.submit("three", queue="rest", gpus=1, preemptible=True)
    made.passes(3)
    assert made.job("three").state.value == "pending", "else one of rest could always run"
    made.ends("one")
    made.passes(3)
    assert made.job("two").state.value == "starting"
