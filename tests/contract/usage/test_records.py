"""The suite of all that reads records of use: from SQLite, and the store in memory, which adds up one by one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.adapters.usage.reader import SqliteRecords
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import FoldRecords, ForgetSpan, KeepRecord, SaveSpan, SaveSpanWork
from mesos_gpu.model.usage import DAY_MS, NEVER_MS, Closed, MeasuredWork, Part, Span, SpanEnd, SpanWork
from mesos_gpu.policy.accounts.sums import GROUPS, Figures, figures, grouped
from tests.doubles.memory_store import MemoryStore

DAY = 20_000
NOW = (DAY + 5) * DAY_MS
ENDS = [each for each in SpanEnd if each is not SpanEnd.RUNNING]
TIMES = st.integers(DAY * DAY_MS - DAY_MS, NOW)


@st.composite
def closed(draw: st.DrawFn) -> Closed:
    begins, length = draw(TIMES), draw(st.integers(0, 3 * DAY_MS))
    owner, queue = draw(st.sampled_from(("", "ann", "bob?"))), draw(st.sampled_from(("ml", "ml/vision")))
    models = draw(st.sets(st.sampled_from(("A100", "T4", "")), min_size=1, max_size=2))
    parts = tuple(Part(model, milli := draw(st.integers(0, 8000)), 3 * milli) for model in sorted(models))
    span = Span(
        TaskId(f"t{draw(st.integers(0, 10**9))}"), JobId("j"), owner, queue, draw(st.sampled_from(("", "batch"))), "",
        "", parts, draw(st.booleans()), draw(st.sampled_from((100, 50))), begins,
        draw(st.integers(0, DAY_MS)), draw(st.sampled_from((0, 8000))),
    )  # fmt: skip
    lost, refunded = (draw(st.integers(0, length)) for _ in range(2))
    did = tuple(
        MeasuredWork(day, part.model, *(draw(st.integers(0, part.gpu_milli * DAY_MS)) for _ in range(3)))
        for day in sorted(
            draw(
                st.sets(st.integers(begins // DAY_MS, max(begins + length - 1, begins) // DAY_MS), max_size=3)
            )
        )
        for part in parts
    )
    return Closed(span, begins + length, lost, refunded, draw(st.sampled_from(ENDS)), did)


def opened(path: Path) -> Iterator[tuple[SqliteStore, SqliteRecords]]:
    store = SqliteStore(path / "state" / "scheduler.sqlite")
    yield store, SqliteRecords(path / "state" / "scheduler.sqlite")
    store.close()


@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.long)])
def test_usage_records_of_both_stores_add_up_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, count: int
) -> None:
    @given(
        st.lists(closed(), max_size=6, unique_by=lambda each: each.span.task_id),
        st.lists(closed(), max_size=2, unique_by=lambda each: each.span.task_id),
        st.lists(st.integers(DAY - 1, DAY + 8), min_size=2, max_size=4).map(sorted),
        st.sets(st.sampled_from(sorted(GROUPS))),
    )
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    def check(ended: list[Closed], running: list[Closed], days: list[int], by: set[str]) -> None:
        _see_same(tmp_path_factory.mktemp("use"), ended, running, days, by)

    check()


def _see_same(
    directory: Path, ended: list[Closed], running: list[Closed], days: list[int], by: set[str]
) -> None:
    memory = MemoryStore()
    for store, records in opened(directory):
        batch = [*map(KeepRecord, ended), *(SaveSpan(each.span) for each in running)]
        batch += [
            SaveSpanWork(SpanWork(each.span.task_id, NOW, did=each.did)) for each in running if each.did
        ]
        for each in (store, memory, store):  # the disk may ask for a batch twice
            each.save(batch)
        names = sorted(by)
        wanted = [_used(grouped(use, names)) for use in memory.use(days, NOW)]
        assert [_used(grouped(use, names)) for use in records.use(days, NOW, waits=True)] == wanted
        shown = list(records.records(days[0] * DAY_MS, days[-1] * DAY_MS, NOW))
        theirs = list(memory.records(days[0] * DAY_MS, days[-1] * DAY_MS, NOW))
        assert _held(shown) == _held(theirs)
        store.save([FoldRecords(NOW)])
        assert [_used(grouped(use, names)) for use in records.use(days, NOW, waits=True)] == wanted
        assert records.exact_since_ms() == NOW
        late = [each for each in records.records(0, 1 << 60, NOW) if each.reason is not SpanEnd.RUNNING]
        assert {each.span.task_id for each in late} == {r.span.task_id for r in ended if r.ends_ms > NOW}


def _used(sums: dict[tuple[str, ...], Figures]) -> dict[tuple[str, ...], Figures]:
    return {key: each for key, each in sums.items() if each != Figures()}


def _held(records: list[Closed]) -> list[tuple[object, ...]]:
    """A row for each part, and what tells it from others."""
    rows: list[tuple[str | int, ...]] = []
    for each in records:
        times = each.span.begins_ms, each.ends_ms, each.lost_ms, each.refunded_ms
        for part in each.span.parts:
            whole = figures(each, part, 0, NEVER_MS)
            did = whole.busy, whole.unused, whole.wanted
            rows.append((each.span.task_id, part.model, part.gpu_milli, part.cost_milli, *times, *did))
    return sorted(rows)


def test_a_span_that_is_open_is_read_until_it_is_forgotten(tmp_path: Path) -> None:
    span = Span(
        TaskId("t"), JobId("j"), "ann", "ml", "", "", "", (Part("T4", 500, 500),), False, 100, NOW - 1000
    )
    for store, records in opened(tmp_path):
        store.save([SaveSpan(span)])
        ((row,),) = records.use([DAY, DAY + 9], NOW)
        assert row[1].gpu == 500 * 1000
        store.save([ForgetSpan(span.task_id)])
        assert records.use([DAY, DAY + 9], NOW) == [[]]


def test_a_file_that_is_away_is_no_defect(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read now"):
        SqliteRecords(tmp_path / "none").use([0, 1], 0)
