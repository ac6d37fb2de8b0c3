"""Leaves of the tree of queues: the order of their jobs, and until when it holds."""

from dataclasses import replace
from math import inf
from typing import Any, Final

import pytest

from mesos_gpu.engine.indexes.leaves import Leaf, Leaves, Ranked, leaf_of, rank_in_leaf, ruled_as
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY, Job, JobState
from mesos_gpu.model.tenancy import QueueSpec
from tests.doubles.builders import spec
from tests.unit.engine.tenancy.worlds import tree_world

NOW: Final = 1000.0
STEP_S: Final = 60.0


def job_of(name: str, sequence: int = 1, *, at: float = NOW, room: float | None = None, **fields: Any) -> Job:
    made = spec(**{"queue": "dev", "gpus": 1, "priority": 0, **fields})
    return Job(JobId(name), made, at, sequence, room_made_at=room)


def leaf_with(*jobs: Job) -> tuple[dict[JobId, Job], Leaf]:
    known = {job.id: job for job in jobs}
    return known, Leaf(members={job.id: job.sequence for job in jobs})


def orders(leaf: Leaf) -> tuple[bool, bool, bool]:
    """Whether its order, its ranks and its entries are known."""
    return leaf.jobs is not None, leaf.ranked is not None, leaf.entries is not None


def names(jobs: list[Job]) -> list[str]:
    return [str(job.id) for job in jobs]


@pytest.mark.parametrize(
    ("at", "priority", "step_s", "until"),
    [
        (NOW, 0, STEP_S, NOW + 60),
        (NOW - 30, 0, STEP_S, NOW + 30),
        (NOW - 60, 0, STEP_S, NOW + 60),
        (NOW - 59.5, 0, STEP_S, NOW + 0.5),
        (NOW - 150, 7, STEP_S, NOW + 30),
        (NOW + 20, 0, STEP_S, NOW + 80),  # a clock that was set back
        (NOW - 30, HIGHEST_PRIORITY, STEP_S, inf),
        (NOW - 30, HIGHEST_PRIORITY - 1, STEP_S, NOW + 30),
        (NOW - 30, 0, inf, inf),
    ],
)
def test_order_of_a_leaf_holds_until_a_job_is_worth_more(
    at: float, priority: int, step_s: float, until: float
) -> None:
    known, leaf = leaf_with(job_of("j", at=at, priority=priority), job_of("k", 2, priority=HIGHEST_PRIORITY))
    first = leaf.put_in_order(known, NOW, step_s, {})
    assert leaf.until == until
    last = until - 0.25 if until < inf else NOW + 1e9
    assert leaf.put_in_order(known, last, step_s, {}) is first
    if until < inf:
        assert leaf.put_in_order(known, until, step_s, {}) is not first
    ranked = leaf.by_rank(known, NOW, step_s)
    assert leaf.ranked_in == (NOW, until, step_s)
    assert leaf.by_rank(known, last, step_s) is ranked
    assert leaf.by_rank(known, NOW - 0.25, step_s) is not ranked


def test_order_of_a_leaf_is_by_user_then_worth_then_submission() -> None:
    jobs = (
        job_of("late", 4),
        job_of("early", 1),
        job_of("aged", 3, at=NOW - 2 * STEP_S),
        job_of("dear", 5, priority=2),
        job_of("second", 2, priority=9, user="second"),
        job_of("third", 6, priority=9, user="third"),
    )
    known, leaf = leaf_with(*jobs)
    places = {"second": 1, "third": 2}
    ordered = leaf.put_in_order(known, NOW, STEP_S, places)
    assert names(ordered) == ["aged", "dear", "early", "late", "second", "third"]
    assert not leaf.room_made
    leaf.entries = []
    assert leaf.put_in_order(known, NOW, STEP_S, dict(places)) is ordered
    assert orders(leaf) == (True, False, True)
    assert names(leaf.put_in_order(known, NOW, STEP_S, {}))[:2] == ["second", "third"]
    assert orders(leaf) == (True, False, False)
    assert names(leaf.put_in_order(known, NOW, inf, {}))[2:] == ["dear", "early", "aged", "late"]
    leaf.forget()
    assert orders(leaf) == (False, False, False)


def test_order_of_a_leaf_says_whether_room_was_made() -> None:
    known, leaf = leaf_with(job_of("j"), job_of("k", 2, room=5.0))
    leaf.put_in_order(known, NOW, STEP_S, {})
    assert leaf.room_made


def test_ranks_of_a_leaf_put_jobs_with_room_first_and_leave_out_those_without_gpus() -> None:
    jobs = (
        job_of("plain", 1, user="ann"),
        job_of("cpu", 2, gpus=0),
        job_of("alike", 3, user="ann"),
        job_of("two", 4, gpus=2, priority=1),
        job_of("room", 5, room=5.0),
    )
    known, leaf = leaf_with(*jobs)
    assert leaf.by_rank(known, NOW, STEP_S) == [
        Ranked((False, 0, 5), jobs[4], 1000, 2),
        Ranked((True, -1, 4), jobs[3], 2000, 1),
        Ranked((True, 0, 1), jobs[0], 1000, 0),
        Ranked((True, 0, 3), jobs[2], 1000, 0),
    ]
    assert rank_in_leaf(jobs[0], NOW + STEP_S, STEP_S) == (True, -1, 1)


@pytest.mark.parametrize(
    "field",
    [
        {"queue": "ops"}, {"user": "bob"}, {"gpus": 2}, {"gpu_milli": 500}, {"gpu_compute_pct": 50}, {"tasks": 2},
        {"gpu_model": ("T4",)}, {"job_class": "night"}, {"preemptible": True}, {"timeout_s": 60.0},
        {"kill_grace_s": 60.0},
    ],
)  # fmt: skip
def test_jobs_that_differ_in_what_rules_see_are_of_two_kinds(field: dict[str, Any]) -> None:
    plain = job_of("a", user="ann")
    assert ruled_as(plain) == ruled_as(job_of("b", 2, user="ann", cpus=7.0))
    assert ruled_as(plain) != ruled_as(job_of("a", **{"user": "ann", **field}))


def test_leaves_have_the_jobs_that_wait_in_them() -> None:
    world = tree_world({"dev": QueueSpec(), "dev/x": QueueSpec(), "ops": QueueSpec()})
    tree = world.state.quota.tree
    leaves = Leaves(tree)
    first, second, lost = (
        job_of("a", queue="ops"),
        job_of("b", 2, queue="dev/x"),
        job_of("c", 3, queue="gone"),
    )
    assert [leaf_of(tree, job) for job in (first, second, lost)] == ["ops", "dev/x", "default"]
    for job in (first, second, lost):
        leaves.enter(job.id, job)
    assert {path: leaf.members for path, leaf in leaves} == {
        "ops": {"a": 1}, "dev/x": {"b": 2}, "default": {"c": 3},
    }  # fmt: skip
    ops = leaves.by_path["ops"]
    ops.jobs, ops.ranked = [first], []
    more = job_of("d", 4, queue="ops")
    leaves.enter(more.id, more)
    assert (orders(ops), ops.members) == ((False, False, False), {"a": 1, "d": 4})
    ops.jobs, ops.ranked = [first, more], []
    leaves.enter(first.id, replace(first, state=JobState.RUNNING))
    assert (orders(ops), ops.members) == ((False, False, False), {"d": 4})
    leaves.enter(more.id, None)
    leaves.enter(more.id, None)
    assert [path for path, _ in leaves] == ["dev/x", "default"]
    assert leaves.of_job == {"b": "dev/x", "c": "default"}


def test_leaves_follow_the_state_and_are_made_anew_for_another_tree() -> None:
    world = tree_world({"dev": QueueSpec(), "ops": QueueSpec()})
    world.submit("j1", queue="dev", gpus=1)
    tree = world.state.quota.tree
    known = world.state.leaves_in(tree)
    world.submit("j2", queue="ops", gpus=1)
    assert world.state.leaves_in(tree) is known
    assert known.of_job == {"j1": "dev", "j2": "ops"}
    assert world.state.quota.moved_jobs == set()
    other = tree_world({"dev": QueueSpec()}).state.quota.tree
    assert other is not None
    assert world.state.leaves_in(other).of_job == {"j1": "dev", "j2": "default"}
