"""Sums of what queues and users hold, against the plain sum over all tasks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.indexes.charges import ALL, Sums, up
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import QueueSpec
from tests.doubles.builders import World, saved_of
from tests.unit.engine.tenancy.worlds import again, apply, most, node, submit_all, tree_world

QUEUES = ["a/x", "a/y", "b"]
TREE = {"a": QueueSpec(limit_gpus=most(5)), "a/x": QueueSpec(), "a/y": QueueSpec(weight=3), "b": QueueSpec()}
Entry = tuple[JobId, Charge]
ENTRIES = st.tuples(
    st.sampled_from([JobId("j1"), JobId("j2"), JobId("j3")]),
    st.builds(
        Charge,
        st.just("a/x"),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["default", "t4"]),
        st.integers(0, 3000),
        st.just(0),
        st.integers(0, 2000),
    ),
)


def plain(entries: list[Entry]) -> Sums:
    """The sums by their meaning."""
    sums = Sums()
    for path in {path for _, each in entries for path in up(each.queue)}:
        below = [(job_id, each) for job_id, each in entries if path in up(each.queue)]
        for _, each in below:
            sums.amounts[path, each.pool] += each.milli
            for user in (each.user, ALL):
                sums.users[path, user] += each.milli
        for user in (*{each.user for _, each in below}, ALL):
            sums.jobs[path, user] = len({job_id for job_id, each in below if user in (each.user, ALL)})
    for key in {(each.queue, each.pool) for _, each in entries}:
        here = [each for _, each in entries if (each.queue, each.pool) == key]
        amounts = [(each.milli, each.cpus_milli, each.mem_mib) for each in here]
        milli, cpus, memory = (sum(column) for column in zip(*amounts, strict=True))
        if milli or cpus or memory:
            sums.leaves[key] = milli, cpus, memory
    sums.members.update(job_id for job_id, _ in entries)
    return sums


def same(sums: Sums, other: Sums) -> None:
    for name in ("amounts", "users", "jobs", "members"):
        assert +getattr(sums, name) == +getattr(other, name), name
        assert not -getattr(sums, name), name
    assert sums.leaves == other.leaves


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.long)])
def test_held_sums_are_those_of_tasks_not_undone(count: int) -> None:
    @settings(max_examples=count)
    @given(st.lists(st.tuples(ENTRIES, st.booleans()), max_size=30))
    def check(steps: list[tuple[Entry, bool]]) -> None:
        sums, owners, standing = Sums(), dict[JobId, str](), list[Entry]()
        for (job_id, charge), undoes in steps:
            if undoes and standing:
                sums.add(*standing.pop(), -1)
            elif owners.setdefault(job_id, charge.user) == charge.user:  # a job has one
                sums.add(job_id, charge)
                standing.append((job_id, charge))
            same(sums, plain(standing))

    check()


def _charged(world: World) -> list[Entry]:
    state = world.state
    live = [state.work.tasks[task_id] for task_id in state.work.live]
    held = [(task, job) for task in live if (job := state.work.holding_job(task)) is not None]
    entries = []
    for task, job in held:
        milli, spec = state.work.counted_milli(task, job), job.spec
        beside = round(spec.cpus * 1000), round(spec.mem_mib)
        entries.append((job.id, Charge(spec.queue, job.charged_to, "default", milli, milli, *beside)))
    return entries


ACTS = st.lists(
    st.tuples(st.sampled_from(["submit", "end", "fail", "restart", "apply"]), st.integers(0, 99)), max_size=25
)


@pytest.mark.parametrize("count", [6, pytest.param(25, marks=pytest.mark.long)])
def test_held_sums_kept_between_matches_equal_a_look_at_all_tasks(count: int) -> None:
    @settings(max_examples=count)
    @given(ACTS)
    def check(
        acts: list[tuple[str, int]],
    ) -> None:
        world = tree_world(TREE)
        node(world, "n1", 8)
        for number, (act, chance) in enumerate(acts):
            if act == "submit":
                asked = (f"j{number}", QUEUES[chance % 3], chance % 3)
                submit_all(
                    world, asked, tasks=1 + chance % 2, user=("ann", "bob")[chance % 2], max_attempts=2
                )
            elif act == "restart":
                world.state = State.restored(world.now, saved_of(world.state))
                world.register()
            elif act == "apply":
                apply(world, {**TREE, "b": QueueSpec(weight=1 + chance)})
            elif world.state.work.live:
                live = [
                    world.state.work.tasks[each]
                    for each in world.state.work.live
                    if world.state.work.tasks[each].job_id
                ]
                for task in live[chance % len(live) :][:1] if live else []:
                    world.status(task.id, "TASK_FINISHED" if act == "end" else "TASK_FAILED", agent="n1")
            world.tick(1.5)
            free = 8 - len(world.state.gpus.holders)
            again(world, "n1", free)
            charges = charges_of(world.state, world.settings)
            same(charges.sums, plain(_charged(world)))
            _leaves_are_those_of_the_queue(world)

    check()


def _leaves_are_those_of_the_queue(world: World) -> None:
    tree = world.state.quota.tree
    leaves = {path: set(leaf.members) for path, leaf in world.state.leaves_in(tree)}
    pending = [job for job in world.state.work.jobs.values() if job.state is JobState.PENDING]
    wanted: dict[str, set[JobId]] = {}
    for job in pending:
        wanted.setdefault(job.spec.queue, set()).add(job.id)
    assert leaves == wanted
    submitted = Counter(
        (j.spec.queue, j.charged_to) for j in world.state.work.jobs.values() if not j.state.ended
    )
    assert world.state.books.submitted == submitted
