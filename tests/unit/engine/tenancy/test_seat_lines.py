"""Lines of jobs that ask for seats, kept from match to match, against a look at every job."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.queue.budgets import Budgets
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.tenancy import seats
from mesos_gpu.engine.tenancy.seats import Asked, Ground
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tenancy import QueueSpec
from mesos_gpu.policy.queueing.queue import effective_priority, in_line_since
from mesos_gpu.policy.tenancy.seats import Ask, Room
from mesos_gpu.policy.tenancy.tree import lineage
from tests.chaos import run as chaos
from tests.unit.engine.tenancy.worlds import apply, most, node, owed, tree_world

Lines = dict[str, list[Ask]]
LINES = seats._lines


def plain(turn: Turn, ground: Ground, room: Room, running: Sequence[Job], may_start: seats.MayStart) -> Lines:
    """Every job of the queue, each leaf put in order, and `may_start` asked of each."""
    state, tree, now = turn.state, ground.tree, turn.now
    budgets, attained = Budgets(state, now), AttainedServiceOrder(state, now)

    def rank(job: Job) -> tuple[int, ...]:
        if attained.orders(job):
            return (job.room_made_at is None, *attained.rank(job), job.sequence)
        priority = effective_priority(
            job.priority, now - in_line_since(job), turn.settings.queue.aging_step_s
        )
        return job.room_made_at is None, -priority, job.sequence

    open_ = {
        leaf.path
        for leaf in tree.leaves()
        if any(room.pools(path) and not room.is_full(path) for path in lineage(leaf.path))
    }
    lines: Lines = {}
    for job in running:
        leaf = leaf_of(tree, job)
        if job.seat is None and leaf in open_ and not budgets.must_borrow(job):
            lines.setdefault(leaf, []).append(Ask(job.id, (ground.granted(job),), job.spec.tasks, rank(job)))
    waiting: dict[str, list[Job]] = {}
    hopeless = fit_nowhere(state, now)
    for _, job_id in state.work.queue:
        job = state.work.jobs[job_id]
        due = job.not_before <= now or job.room_made_at is not None
        due = due and job.id not in hopeless
        if job.spec.gpus and due and leaf_of(tree, job) in open_ and not budgets.must_borrow(job):
            waiting.setdefault(leaf_of(tree, job), []).append(job)
    for leaf, jobs in waiting.items():
        free, taken = sum(room.left(path) for path in lineage(leaf)), dict[object, int]()
        for job in sorted(jobs, key=rank):
            kind = job.spec.gpu_model, job.spec.counted_milli, job.spec.tasks
            wants = tuple(each for each in ground.wants(job) if may_start(job, each[0]))
            if taken.get(kind, 0) <= free and wants:
                taken[kind] = taken.get(kind, 0) + max(job.spec.gpu_milli_in_all, 1)
                lines.setdefault(leaf, []).append(Ask(job.id, wants, job.spec.tasks, rank(job)))
    for leaf, line in lines.items():
        line.sort(key=lambda ask: ask.rank)
        after_s = tree.queues[leaf].resolved.starve_after_s
        waits = (i for i, ask in enumerate(line) if state.work.jobs[ask.job_id].state is JobState.PENDING)
        first = next(waits, None)
        if first is not None and now - in_line_since(state.work.jobs[line[first].job_id]) >= after_s:
            line[first] = replace(line[first], starving=True)
    return lines


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of lines compared in each match."""
    seen: list[int] = []

    def lines(
        turn: Turn, ground: Ground, room: Room, running: Sequence[Job], may_start: seats.MayStart
    ) -> Lines:
        wanted = plain(turn, ground, room, running, may_start)
        asked = {leaf: list(line) for leaf, line in LINES(turn, ground, room, running, may_start).items()}
        assert asked == wanted, f"at {turn.now}"
        seen.append(len(asked))
        return asked

    monkeypatch.setattr(seats, "_lines", lines)
    return seen


@pytest.mark.parametrize(
    ("seed", "jobs"), [(0, 18), *(pytest.param(seed, 80, marks=pytest.mark.long) for seed in range(2))]
)
def test_seat_lines_equal_a_full_look_on_a_random_day(compared: list[int], seed: int, jobs: int) -> None:
    chance = random.Random(seed)
    queues = {
        "lab": QueueSpec(guarantee_gpus=owed(4), limit_gpus=most(9)),
        "lab/x": QueueSpec(starve_after_s=40.0),
        "lab/y": QueueSpec(guarantee_gpus=owed(2)),
        "dev": QueueSpec(guarantee_gpus=owed(3)),
    }
    world = tree_world(queues, settings=Settings.of("e", "m", report_stale_s=1e9, aging_step_s=7.0))
    for i in range(3):
        node(world, f"n{i}", 4)
    for i in range(jobs):
        name = f"j{i}"
        with suppress(NotAccepted):  # it needs a seat, and no seat can be as large
            world.submit(
                name,
                gpus=chance.randint(0, 4),
                queue=chance.choice(("lab/x", "lab/y", "dev")),
                priority=chance.randint(0, 3),
                preemptible=chance.random() < 0.6,
                timeout_s=chance.choice((None, 30.0, 600.0)),
                user=chance.choice(("ann", "bob")),
            )
        if chance.random() < 0.3:
            world.tick(chance.choice((1, 4, 12)))
        if chance.random() < 0.1:
            queues["dev"] = QueueSpec(guarantee_gpus=owed(chance.randint(0, 4)))
            apply(world, queues)
    assert sum(compared) > jobs


def test_seat_asks_are_worked_out_lazily_and_once() -> None:
    made: list[int] = []

    def asks() -> Iterator[Ask]:
        for i in range(9):
            made.append(i)
            yield Ask(JobId(f"j{i}"), ())

    line = Asked(asks())
    first, second = iter(line), iter(line)
    assert [next(first).job_id for _ in range(3)] == [next(second).job_id for _ in range(3)]
    assert made == [0, 1, 2]
    assert [ask.job_id for ask in line] == [f"j{i}" for i in range(9)]
    assert [ask.job_id for ask in first] == [f"j{i}" for i in range(3, 9)]
    assert made == list(range(9))


@pytest.mark.parametrize(
    ("seed", "acts"), [(4, 150), *(pytest.param(seed, 600, marks=pytest.mark.long) for seed in (3, 17))]
)
def test_seat_lines_equal_a_full_look_in_chaos_with_queues(compared: list[int], seed: int, acts: int) -> None:
    chaos.replay(seed, chaos.acts_of(random.Random(seed), acts, chaos.QUEUES))
    assert sum(compared) > acts // 30
