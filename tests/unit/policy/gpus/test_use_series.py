"""Past use of cards and tasks: means of known values, with a bound."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.gpus import use_series
from mesos_gpu.policy.gpus.use_series import COARSE_S, KEPT_S, RECENT_S, SAMPLE_S, Ring, UseHistory, mean
from tests.doubles.builders import gpu

CARD, OTHER, TASK = GpuId("g0"), GpuId("g1"), TaskId("a.1")
Value = float | None


def node(at: float, *uses: GpuUse, tasks: tuple[TaskUse, ...] = ()) -> Node:
    inventory = Inventory((gpu("g0"), gpu("g1")), gpu_uses=uses, task_uses=tasks)
    return Node(AgentId("a1"), "host", inventory=inventory, reported_at=at)


def use(at: float, seen_ms: int = 0, busy_ms: int = 0, card: GpuId = CARD, since: float = 1.0) -> GpuUse:
    meters = Meters(memory_used_mib=512, power_mw=70500)
    return GpuUse(card, at, meters, Work(since, seen_ms, busy_ms))


def task_use(at: float, seen_ms: int, busy_ms: int, card: GpuId = CARD, mib: int | None = 300) -> TaskUse:
    return TaskUse(TASK, card, at, 1, mib, Work(1.0, seen_ms, busy_ms))


def anything(_: Node, use: TaskUse) -> bool:
    return True


def test_ring_keeps_the_mean_of_each_span_and_no_value_where_nothing_is_known() -> None:
    ring = Ring(10.0, 4)
    for at, busy in ((100.0, 20.0), (109.0, 40.0), (125.0, 50.0), (126.0, None)):
        ring.note(at, (busy, None, 7.0))
    assert ring.read(129.0) == ([None, 30.0, None, 50.0], [None] * 4, [None, 7.0, None, 7.0])
    assert ring.read(149.0)[0] == [None, 50.0, None, None]
    assert ring.read(1000.0)[0] == [None] * 4


def test_ring_keeps_no_value_that_comes_late() -> None:
    ring = Ring(10.0, 4)
    ring.note(100.0, (20.0, None, None))
    ring.note(50.0, (90.0, None, None))
    assert ring.read(100.0)[0] == [None, None, None, 20.0]


def test_recent_mean_is_of_known_values() -> None:
    ring = Ring(10.0, 9)
    for at, busy in ((100.0, 99.0), (150.0, 20.0), (170.0, 40.0)):
        ring.note(at, (busy, None, None))
    assert ring.recent(175.0, 30.0) == 30.0
    assert ring.recent(400.0, 30.0) is None


@given(st.lists(st.tuples(st.integers(0, 600), st.one_of(st.none(), st.integers(0, 100))), max_size=40))
def test_ring_is_the_means_of_a_list(notes: list[tuple[int, int | None]]) -> None:
    ring, slots, step = Ring(10.0, 6), 6, 10
    in_order = sorted(notes, key=lambda note: note[0])
    for at, value in in_order:
        ring.note(float(at), (None if value is None else float(value), None, None))
    for n, got in enumerate(ring.read(600.0)[0]):
        slot = 600 // step - slots + 1 + n
        values = [value for at, value in in_order if at // step == slot and value is not None]
        expected = sum(values) / len(values) if values else None
        assert (got is None) == (expected is None)
        assert got is None or expected is None or math.isclose(got, expected, abs_tol=0.0051)


def test_ring_is_as_long_as_what_was_heard_of_and_no_longer_than_it_may_be() -> None:
    ring = Ring(10.0, 90)
    for at in range(0, 300, 10):
        ring.note(float(at), (12.345, 81_559.4, None))
    assert [None if column is None else len(column) for column in ring.columns] == [30, 30, None]
    assert [each[-1] for each in ring.read(290.0)] == [12.34, 81559.0, None]
    for at in range(300, 20_000, 50):
        ring.note(float(at), (None, None, 9999.0))
    assert [None if column is None else len(column) for column in ring.columns] == [90, 90, 90]
    assert ring.read(19_950.0)[2][-6:] == [6553.4, None, None, None, None, 6553.4], "more is not told"
    ring.note(10e6, (1.0, None, None))
    assert ring.read(10e6) == ([None] * 89 + [1.0], [None] * 90, [None] * 90)


def test_card_is_at_work_by_what_was_counted_between_two_reports() -> None:
    history = UseHistory()
    for at, seen_ms, busy_ms in ((1000.0, 0, 0), (1010.0, 10_000, 2500)):
        history.note(node(at, use(at, seen_ms, busy_ms)), at, anything)
    busy, memory, power = history.cards[CARD].fine.read(1010.0)
    assert (busy[-2:], memory[-2:], power[-2:]) == ([None, 25.0], [512.0, 512.0], [70.5, 70.5])
    assert history.cards[CARD].coarse.read(1010.0)[0][-1] == 25.0


def test_report_that_comes_again_is_counted_once_and_a_count_that_began_anew_says_nothing() -> None:
    history = UseHistory()
    same = node(1000.0, use(1000.0, 10_000, 5000))
    for at in (1000.0, 1010.0):
        history.note(same, at, anything)
    history.note(node(1020.0, use(1020.0, 20_000, 9000, since=2.0)), 1020.0, anything)
    assert history.cards[CARD].fine.read(1020.0)[0][-3:] == [None, None, None]


def test_task_is_the_mean_of_its_cards_and_what_is_unknown_of_one_is_unknown() -> None:
    history = UseHistory()
    for at, seen_ms, busy in ((1000.0, 0, (0, 0)), (1010.0, 1000, (1000, 0))):
        tasks = task_use(at, seen_ms, busy[0]), task_use(at, seen_ms, busy[1], OTHER)
        history.note(node(at, use(at), tasks=tasks), at, anything)
    both = task_use(1020.0, 2000, 2000), task_use(1020.0, 1000, 0, OTHER, None)
    history.note(node(1020.0, use(1020.0), tasks=both), 1020.0, anything)
    parts, memory, _ = history.tasks[TASK].fine.read(1020.0)
    assert (parts[-3:], memory[-3:]) == ([None, 50.0, None], [600.0, 600.0, None])


def test_use_history_keeps_nothing_of_cards_of_other_hosts() -> None:
    history = UseHistory()
    foreign = use(1000.0, card=GpuId("another's"))
    history.note(node(1000.0, foreign, tasks=(task_use(1000.0, 1, 1),)), 1000.0, lambda *_: False)
    assert (history.cards, history.tasks) == ({}, {})


def test_use_history_forgets_cards_silent_for_a_day() -> None:
    history = UseHistory()
    history.note(node(1000.0, use(1000.0), tasks=(task_use(1000.0, 1, 1),)), 1000.0, anything)
    later = 1001.0 + KEPT_S
    history.note(node(later, use(later, card=OTHER)), later, anything)
    assert (list(history.cards), history.tasks) == ([OTHER], {})


def test_use_history_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_series, "MAX_SERIES", 1)
    history = UseHistory()
    history.note(node(1000.0, use(1000.0), use(1000.0, card=OTHER)), 1000.0, anything)
    assert list(history.cards) == [CARD]


def test_mean_is_of_fully_known_values() -> None:
    assert (mean([1.0, 2.0]), mean([1.0, None]), mean([])) == (1.5, None, None)


def test_report_without_cards_says_nothing_of_tasks() -> None:
    history = UseHistory()
    history.note(node(1000.0, use(1000.0)), 1000.0, anything)
    history.note(node(1010.0, tasks=(task_use(1010.0, 1, 1),)), 1010.0, anything)
    history.note(Node(AgentId("a2"), "host"), 1010.0, anything)
    assert (list(history.cards), history.tasks) == ([CARD], {})


def test_series_that_are_kept_go_on_when_there_is_room_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_series, "MAX_SERIES", 2)
    history = UseHistory()
    for at, seen_ms in ((1000.0, 0), (1010.0, 10_000)):
        both = use(at, seen_ms), use(at, seen_ms, card=OTHER)
        history.note(node(at, *both), at, anything)
    assert [history.cards[each].fine.read(1010.0)[0][-1] for each in (CARD, OTHER)] == [0.0, 0.0]


@pytest.mark.parametrize(("silent_s", "kept"), [(KEPT_S, True), (KEPT_S + 1, False)])
def test_series_are_forgotten_after_a_day_with_the_counts_of_their_cards(silent_s: float, kept: bool) -> None:
    """A count goes on from the one before, if that is still known."""
    history, late = UseHistory(), 1000.0 + silent_s
    tasks = (task_use(1000.0, 1000, 1000),)
    history.note(node(1000.0, use(1000.0, 1000, 1000), tasks=tasks), 1000.0, anything)
    history.note(replace(node(late, use(late, card=OTHER)), id=AgentId("a2")), late, anything)
    assert (CARD in history.cards, TASK in history.tasks) == (kept, kept)
    again = late + 1
    both = (task_use(again, 2000, 1500),)
    history.note(node(again, use(again, 2000, 1500), tasks=both), again, anything)
    read = [history.cards[CARD].fine.read(again)[0][-1], history.tasks[TASK].fine.read(again)[0][-1]]
    assert read == ([50.0, 50.0] if kept else [None, None])


def test_report_is_taken_again_when_its_host_was_silent_for_a_day() -> None:
    history = UseHistory()
    same = node(1000.0, use(1000.0, 1000, 1000))
    history.note(same, 1000.0, anything)
    late = 1001.0 + KEPT_S
    history.note(replace(node(late, use(late, card=OTHER)), id=AgentId("a2")), late, anything)
    assert CARD not in history.cards
    history.note(same, late + 1, anything)
    assert CARD in history.cards


def test_series_are_looked_through_every_five_minutes() -> None:
    history = UseHistory()
    for agent, at in (("a1", 1000.0), ("a2", 1000.0 + COARSE_S - 1)):
        history.note(replace(node(at, use(at)), id=AgentId(agent)), at, anything)
    history.cards[CARD].noted_at = -KEPT_S
    for number, after_s, known in ((3, COARSE_S - 1, True), (4, COARSE_S, False)):
        at = 1000.0 + after_s
        history.note(replace(node(at, use(at, card=OTHER)), id=AgentId(f"a{number}")), at, anything)
        assert (CARD in history.cards) is known


@pytest.mark.parametrize(
    ("span_s", "mean_pct"), [(0.0, 40.0), (9.0, 40.0), (10.0, 40.0), (20.0, 30.0), (29.0, 30.0), (90.0, 53.0)]
)
def test_recent_mean_is_of_the_slots_that_the_span_touches(span_s: float, mean_pct: float) -> None:
    ring = Ring(10.0, 9)
    for at, busy in ((100.0, 99.0), (150.0, 20.0), (170.0, 40.0)):
        ring.note(at, (busy, None, None))
    assert ring.recent(175.0, span_s) == mean_pct


def test_value_beyond_what_a_column_holds_is_its_largest() -> None:
    ring = Ring(10.0, 2)
    ring.note(0.0, (655.34, float(0xFFFFFFFE), 6553.4))
    assert ring.read(0.0) == ([None, 655.34], [None, float(0xFFFFFFFE)], [None, 6553.4])
    ring.note(10.0, (655.35, float(0xFFFFFFFF), 6553.5))
    assert ring.read(10.0) == ([655.34] * 2, [float(0xFFFFFFFE)] * 2, [6553.4] * 2)


def test_card_without_meters_has_no_memory_and_no_power() -> None:
    history = UseHistory()
    history.note(node(1000.0, GpuUse(CARD, 1000.0)), 1000.0, anything)
    assert [each[-1] for each in history.cards[CARD].fine.read(1000.0)] == [None, None, None]
    assert history.cards[CARD].noted_at == 1000.0


def seen_at_quarter() -> UseHistory:
    """Give a history whose card CARD had a utilization of 25 % up to 1010.0."""
    history = UseHistory()
    for at, seen_ms, busy_ms in ((1000.0, 0, 0), (1010.0, 10_000, 2500)):
        history.note(node(at, use(at, seen_ms, busy_ms)), at, anything)
    return history


def test_cluster_sample_has_allocated_gpus_and_use_of_cards_with_samples() -> None:
    history = seen_at_quarter()
    history.sample(1010.0, lambda: [CARD, OTHER], lambda gpu: gpu == OTHER)
    assert [column[-1] for column in history.cluster.read(1010.0)] == [2.0, 1.0, 25.0, 70.0]
    assert len(history.cluster.read(1010.0)[0]) * COARSE_S == KEPT_S


@pytest.mark.parametrize(
    ("after_s", "known"), [(RECENT_S, [25.0, 70.0]), (RECENT_S + use_series.FINE_S, [None, None])]
)
def test_cluster_sample_leaves_out_cards_that_are_silent(after_s: float, known: list[Value]) -> None:
    history = seen_at_quarter()
    history.sample(1010.0 + after_s, lambda: [CARD], lambda _: True)
    assert [column[-1] for column in history.cluster.read(1010.0 + after_s)] == [1.0, 1.0, *known]


def test_cluster_is_sampled_again_after_a_time_and_when_the_clock_was_set_back() -> None:
    history, asked = UseHistory(), []

    def gpus() -> list[GpuId]:
        asked.append(now)
        return [CARD]

    for now in (1000.0, 1000.0 + SAMPLE_S - 1, 1000.0 + SAMPLE_S, 500.0):
        history.sample(now, gpus, lambda _: False)
    assert asked == [1000.0, 1000.0 + SAMPLE_S, 500.0]


def test_cluster_without_gpus_has_no_sample() -> None:
    history = UseHistory()
    history.sample(1000.0, list, lambda _: True)
    assert history.cluster.read(1000.0)[0][-1] is None
    history.sample(1000.0, lambda: [CARD], lambda _: True)
    assert [column[-1] for column in history.cluster.read(1000.0)] == [1.0, 1.0, None, None]
