"""Windows of a card's tasks: proportional, apart, steady, and wide while neighbours are idle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import TaskId
from mesos_gpu.policy.sharing.windows import PERIOD_US, Tenant, Window, most_at_once, plan

A, B, C, D = map(TaskId, "ABCD")


def tenants(*compute: int, idle: str = "") -> list[Tenant]:
    names = [TaskId(letter) for letter in "ABCDEFGHIJKLMNOP"[: len(compute)]]
    return [Tenant(name, milli, name not in idle) for name, milli in zip(names, compute, strict=True)]


@pytest.mark.parametrize("compute", [(500, 500), (700, 300), (800, 200), (250,) * 4, (1,) * 3 + (997,)])
def test_full_card_is_split_in_proportion_without_a_gap(compute: tuple[int, ...]) -> None:
    granted = plan(tenants(*compute)).granted
    assert [window.length_us for window in granted.values()] == [
        PERIOD_US * milli // 1000 for milli in compute
    ]
    for at_us in range(0, PERIOD_US, 7):
        assert sum(window.covers(at_us) for window in granted.values()) == 1


def test_window_of_a_task_alone_is_open() -> None:
    assert plan(tenants(250)).granted[A].is_open
    assert plan(tenants(500, 500, idle="B")).granted[A].is_open


def test_window_without_widening_is_a_cap() -> None:
    assert plan(tenants(250), widen=False).granted == {A: Window(0, PERIOD_US // 4)}


def test_time_between_two_busy_tasks_is_split_by_their_compute() -> None:
    granted = plan(tenants(250, 250, 250, 250, idle="B")).granted
    assert [granted[task].length_us * 1000 // PERIOD_US for task in (A, B, C, D)] == [375, 250, 375, 250]
    granted = plan(tenants(300, 400, 100, 200, idle="BD")).granted
    assert granted[A].length_us + granted[C].length_us == PERIOD_US
    assert granted[A].length_us == 30_000
    assert granted[C].length_us == 10_000


def test_idle_task_keeps_its_own_stretch() -> None:
    busy, idle = plan(tenants(500, 500)), plan(tenants(500, 500, idle="B"))
    assert idle.granted[B] == busy.granted[B] == busy.own[B]


def test_window_stays_when_another_task_leaves_or_joins() -> None:
    first = plan(tenants(250, 250, 250, 250)).own
    left = [tenant for tenant in tenants(250, 250, 250, 250) if tenant.task != B]
    second = plan(left, first).own
    assert second == {task: first[task] for task in (A, C, D)}
    third = plan([*left, Tenant(TaskId("E"), 200)], second).own
    assert {task: third[task] for task in (A, C, D)} == second
    assert third[TaskId("E")] == Window(first[B].start_us, 8_000)


def test_windows_are_placed_again_only_where_a_task_finds_no_room() -> None:
    first = plan(tenants(250, 250, 250, 250)).own
    apart = [tenant for tenant in tenants(250, 250, 250, 250) if tenant.task in (A, C)]
    wide = plan([*apart, Tenant(TaskId("E"), 500)], plan(apart, first).own).own
    assert sorted(window.start_us for window in wide.values()) == [0, 10_000, 20_000]


def test_resized_task_gets_its_new_length() -> None:
    first = plan(tenants(500, 300)).own
    second = plan(tenants(500, 400), first).own
    assert second[A] == first[A]
    assert second[B].length_us == 16_000


def test_overcommitted_compute_overlaps_no_more_than_was_agreed() -> None:
    three = tenants(1000, 600, 400)
    assert most_at_once(three) == 2
    granted = plan(three).granted
    for at_us in range(0, PERIOD_US, 11):
        assert sum(window.covers(at_us) for window in granted.values()) <= 2


computes = st.lists(st.integers(1, 1000), min_size=1, max_size=12).map(
    lambda raw: [max(1, milli * 1000 // max(1000, sum(raw) + len(raw))) for milli in raw]
)


@given(computes, st.data())
def test_busy_windows_never_meet_and_are_no_smaller_than_their_own(
    compute: list[int], data: st.DataObject
) -> None:
    busy = data.draw(st.lists(st.booleans(), min_size=len(compute), max_size=len(compute)))
    all_of_them = [
        Tenant(TaskId(str(number)), milli, on)
        for number, (milli, on) in enumerate(zip(compute, busy, strict=True))
    ]
    gone = data.draw(st.sets(st.sampled_from([tenant.task for tenant in all_of_them])))
    first = plan(all_of_them)
    stay = [tenant for tenant in all_of_them if tenant.task not in gone]
    for tenants_now, result in ((all_of_them, first), (stay, plan(stay, first.own))):
        windows = [result.granted[tenant.task] for tenant in tenants_now if tenant.busy]
        edges = {edge % PERIOD_US for w in windows for edge in (w.start_us, w.start_us + w.length_us - 1)}
        assert all(sum(window.covers(edge) for window in windows) <= 1 for edge in edges)
        for tenant in tenants_now:
            own, now = result.own[tenant.task], result.granted[tenant.task]
            assert now.covers(own.start_us)
            assert now.covers((own.start_us + own.length_us - 1) % PERIOD_US)
            assert now.length_us >= own.length_us == max(1, PERIOD_US * tenant.compute_milli // 1000)
    assert plan(stay, first.own).own == {
        task: window for task, window in first.own.items() if task not in gone
    }
