"""The window of launches under way on an agent: it grows with prompt registrations, and shrinks with slow ones."""

from dataclasses import replace

import pytest

from mesos_gpu.policy.queueing.launch_window import (
    FIRST_SIZE,
    MAX_BACK_OFF_S,
    MAX_SIZE,
    MIN_BACK_OFF_S,
    MIN_SIZE,
    PROBE_SIZE,
    PROMPT_S,
    Window,
    registered,
    timed_out,
)


def _after(window: Window, count: int, *, took_s: float, under_way: int | None = None) -> Window:
    """Return the window after registrations of equal duration, while the window is full."""
    for number in range(count):
        now = 1000.0 + number
        used = int(window.size) if under_way is None else under_way
        window = registered(window, now - took_s, now, used)
    return window


def test_window_grows_by_one_with_each_quick_registration() -> None:
    assert _after(Window(), 10, took_s=1).size == FIRST_SIZE + 10


def test_window_grows_slower_with_registrations_that_are_not_quick() -> None:
    window = _after(Window(), FIRST_SIZE, took_s=PROMPT_S - 1)
    assert FIRST_SIZE + 0.9 < window.size < FIRST_SIZE + 1


def test_window_does_not_grow_while_little_of_it_is_used() -> None:
    assert _after(Window(), 50, took_s=1, under_way=FIRST_SIZE // 2 - 1).size == FIRST_SIZE


def test_window_has_bounds() -> None:
    assert _after(Window(), 2000, took_s=0).size == MAX_SIZE
    window = Window()
    for at in range(100, 2000, 100):  # each was launched after it shrank
        window = registered(window, at - PROMPT_S - 1, at, 1)
    assert window.size == MIN_SIZE


def test_window_is_halved_once_for_launches_of_one_time() -> None:
    window = registered(Window(), 100.0, 120.0, FIRST_SIZE)
    assert window == Window(FIRST_SIZE / 2, shrunk_at=120.0, latest=100.0)
    assert registered(window, 100.0, 121.0, FIRST_SIZE) == window, "it was launched before that"
    assert registered(window, 120.0, 131.0, FIRST_SIZE).size == FIRST_SIZE / 4


def test_back_off_lasts_longer_each_time_and_ends_with_a_launch_that_registers() -> None:
    window, until = timed_out(Window(100), 1000.0)
    assert (window.size, until) == (PROBE_SIZE, 1000.0 + MIN_BACK_OFF_S)
    window, until = timed_out(window, 1100.0)
    assert until == 1100.0 + 2 * MIN_BACK_OFF_S
    for _ in range(10):
        window, until = timed_out(window, 1200.0)
    assert until == 1200.0 + MAX_BACK_OFF_S
    late = registered(window, 1150.0, 1201.0, 3)
    assert late.back_offs == window.back_offs, "it was launched before the agent was backed off"
    assert registered(window, 1300.0, 1301.0, 1).back_offs == 0


SHRUNK = Window(16, shrunk_at=100.0, back_offs=2, backed_off_at=100.0, latest=150.0)


@pytest.mark.parametrize(
    ("size", "launched_at", "took_s", "under_way", "wanted"),
    [
        (16, 160.0, 2.5, 8, Window(17, 100.0, 0, 100.0, 160.0)),
        (16, 160.0, 2.6, 8, Window(16 + 1 / 16, 100.0, 0, 100.0, 160.0)),
        (16, 160.0, 2.5, 7, Window(16, 100.0, 0, 100.0, 160.0)),
        (16, 100.0, 2.5, 8, Window(17, 100.0, 0, 100.0, 150.0)),
        (16, 99.0, 2.5, 8, Window(17, 100.0, 2, 100.0, 150.0)),
        (16, 99.0, 2.5, 7, Window(16, 100.0, 2, 100.0, 150.0)),
        (16, 160.0, 10.0, 8, Window(16 + 1 / 16, 100.0, 0, 100.0, 160.0)),
        (16, 160.0, 10.1, 8, Window(8, 170.1, 2, 100.0, 160.0)),
        (16, 99.0, 10.1, 8, Window(16, 100.0, 2, 100.0, 150.0)),
        (12, 160.0, 11.0, 8, Window(8, 171.0, 2, 100.0, 160.0)),
        (4, 160.0, 11.0, 8, Window(4, 171.0, 2, 100.0, 160.0)),
        (511.5, 160.0, 1.0, 300, Window(512, 100.0, 0, 100.0, 160.0)),
    ],
)
def test_window_after_one_registration(
    size: float, launched_at: float, took_s: float, under_way: int, wanted: Window
) -> None:
    before = replace(SHRUNK, size=size)
    assert registered(before, launched_at, launched_at + took_s, under_way) == wanted


def test_window_after_a_timeout_is_small_and_ends_its_back_off_later() -> None:
    window, until = timed_out(SHRUNK, 1000.0)
    assert window == Window(PROBE_SIZE, 1000.0, 3, 1000.0, 150.0)
    assert until == 1000.0 + 4 * MIN_BACK_OFF_S
