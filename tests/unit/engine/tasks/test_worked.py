"""GPU time of tasks, from counts of monitors that start again, through restarts of the scheduler."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from mesos_gpu.model.saves import KeepRecord, SaveSpanWork
from mesos_gpu.model.usage import DAY_MS, Closed, SpanEnd
from mesos_gpu.policy.accounts.sums import Figures, figures
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, gpu, offer, saved_of

GPUS = gpu("g0"), gpu("g1")
MIDNIGHT = 20_000 * DAY_MS / 1000


@dataclass
class Bench:
    """A node of two cards whose monitor tells what one task does on each."""

    gpus: int = 1
    world: World = field(default_factory=World)
    works: dict[GpuId, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.now = MIDNIGHT - 3600.0
        self.world.register()
        self.world.node("a1", *GPUS)
        self.world.submit("j1", gpus=self.gpus)
        self.tell("TASK_RUNNING")

    @property
    def task(self) -> TaskId:
        task_id = self.world.job().task_id
        assert task_id is not None
        return task_id

    def tell(self, state: str) -> list[fx.Effect]:
        return self.world.status(self.task, state)

    def look(self, after_s: float, busy_pct: int | None, *, anew: bool = False) -> list[fx.Effect]:
        """A report after so long, in which the cards were at work for so many percent; None: nobody can tell."""
        self.world.now += after_s
        held, now = self.world.state.work.tasks[self.task].gpus, self.world.now
        if anew:
            self.works.clear()
        if busy_pct is not None:
            seen_ms = int(after_s * 1000)
            for each in held:
                known = self.works.get(each, Work(now - after_s))
                busy_ms = known.busy_ms + seen_ms * busy_pct // 100
                self.works[each] = Work(known.since, known.seen_ms + seen_ms, busy_ms)
        uses = [TaskUse(self.task, each, now, work=self.works.get(each)) for each in held]
        return self.report(*uses)

    def report(self, *uses: TaskUse) -> list[fx.Effect]:
        monitor = self.world.state.cluster.nodes[AgentId("a1")].monitor
        assert monitor is not None
        data = report.encode(Inventory(GPUS, "simulated", task_uses=uses))
        return self.world.status(monitor, "TASK_RUNNING", data=data)

    def restart(self) -> None:
        self.world.state = State.restored(self.world.now, saved_of(self.world.state))
        self.world.register()

    def end(self, state: str = "TASK_FINISHED") -> Closed:
        return every(self.tell(state), KeepRecord)[-1].record


def whole(*records: Closed) -> Figures:
    sums = Figures()
    for record in records:
        for part in record.span.parts:
            sums.add(figures(record, part, 0, 1 << 60))
    return sums


def test_gpu_time_tells_busy_idle_and_unknown_apart() -> None:
    bench = Bench(gpus=2)
    for busy_pct in (100, 0, None, 40):
        bench.look(10, busy_pct)
    bench.world.now += 7
    sums = whole(bench.end())
    assert (sums.busy, sums.unused) == (2 * 14_000_000, 2 * 16_000_000)
    assert sums.gpu - sums.busy - sums.unused == 2 * 17_000_000
    assert bench.world.state.ledger.span_works == {}


def test_gpu_time_is_written_for_few_reports() -> None:
    bench = Bench()
    saves = [len(every(bench.look(10, 0), SaveSpanWork)) for _ in range(13)]
    assert saves == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert whole(bench.end()).unused == 130_000_000


def test_idle_gpu_time_is_wanted_while_jobs_wait() -> None:
    bench = Bench(gpus=2)
    bench.look(10, 0)
    bench.look(10, 0)
    bench.world.submit("j2", gpus=1)
    bench.look(10, 50)
    bench.look(10, 100)
    sums = whole(bench.end())
    assert (sums.unused, sums.wanted) == (2 * 25_000_000, 2 * 5_000_000)


def test_gpu_time_of_a_task_without_reports_ends_at_the_last_one() -> None:
    bench = Bench()
    bench.look(10, 0)
    bench.look(10, 0)
    bench.report()
    assert whole(bench.end()).unused == 20_000_000


def test_gpu_time_leaves_out_a_count_older_than_the_span() -> None:
    """Some tasks ran when the scheduler began to keep records."""
    bench = Bench()
    bench.works[bench.world.state.work.tasks[bench.task].gpus[0]] = Work(bench.world.now - 5000, 4_000_000, 0)
    bench.look(10, 0)
    bench.look(10, 0)
    assert whole(bench.end()).unused == 10_000_000


def test_gpu_time_is_counted_for_each_day() -> None:
    bench = Bench()
    for _ in range(400):
        bench.look(10, 0)
    record = bench.end("TASK_KILLED")
    (part,) = record.span.parts
    before = figures(record, part, 0, int(MIDNIGHT * 1000))
    after = figures(record, part, int(MIDNIGHT * 1000), 1 << 60)
    assert (before.unused, after.unused) == (3_600_000_000, 400_000_000)


def test_gpu_time_of_a_share_is_its_part() -> None:
    bench = Bench()
    shared = bench.world.state.ledger.spans[bench.task]
    assert [part.gpu_milli for part in shared.parts] == [1000]
    bench.look(10, 0)
    record = bench.end()
    assert record.reason is SpanEnd.FINISHED
    assert record.did[0].idle == 10_000_000


def test_reports_of_another_node_or_of_cards_of_others_count_for_nobody() -> None:
    bench = Bench()
    bench.report(TaskUse(bench.task, GpuId("g1"), bench.world.now, work=Work(bench.world.now - 5, 5000, 0)))
    bench.world.node("a2", gpu("g2"))
    monitor = bench.world.state.cluster.nodes[AgentId("a2")].monitor
    assert monitor is not None
    use = TaskUse(bench.task, GpuId("g0"), bench.world.now, work=Work(bench.world.now - 5, 5000, 0))
    data = report.encode(Inventory((gpu("g2"),), "simulated", task_uses=(use,)))
    bench.world.status(monitor, "TASK_RUNNING", agent="a2", data=data)
    assert bench.end().did == ()


LOOKS = st.tuples(
    st.sampled_from(("look", "look", "look", "monitor", "scheduler", "nothing")),
    st.integers(1, 90),
    st.sampled_from((0, 0, 33, 100, None)),
)


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.long)])
def test_gpu_time_sums_to_the_counts_of_monitors_whoever_restarts(count: int) -> None:
    @settings(max_examples=count)
    @given(st.lists(LOOKS, max_size=40), st.integers(1, 2))
    def check(looks: list[tuple[str, int, int | None]], gpus: int) -> None:
        bench = Bench(gpus=gpus)
        busy = idle = 0
        for what, after_s, busy_pct in looks:
            if what == "scheduler":
                bench.restart()
            if what == "nothing":
                bench.world.now += after_s
                bench.report()
                bench.works.clear()
                continue
            bench.look(after_s, busy_pct, anew=what == "monitor")
            if busy_pct is not None:
                part = after_s * 1000 * busy_pct // 100
                busy, idle = busy + part * gpus * 1000, idle + (after_s * 1000 - part) * gpus * 1000
        sums = whole(bench.end())
        assert (sums.busy, sums.unused) == (busy, idle)
        assert sums.busy + sums.unused <= sums.gpu

    check()


def test_gpu_time_of_the_next_job_on_a_card_begins_at_nothing() -> None:
    bench = Bench(gpus=2)
    bench.look(10, 0)
    bench.world.submit("j2", gpus=2)
    bench.end()
    bench.world.offers(offer("o9", "a1", cpus=8, gpus=2))
    span = bench.world.state.ledger.spans[TaskId("j2.1")]
    assert span.begins_ms == int(bench.world.now * 1000)
    assert bench.world.state.ledger.span_works == {}
