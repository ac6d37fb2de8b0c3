"""Windows of compute: who may start work when, on doubles of the driver. How well they split a card: bench shim."""

import math
import time
from ast import literal_eval

import pytest

from mesos_gpu.policy.sharing.windows import PERIOD_US, Window
from tests.cuda import Bench, Program

#: A period so long that no busy machine blurs it: work starts in its first half second.
SLOW = Window(0, 500_000, 1_000_000)
TRIES = 5


def sleep_to_phase(phase_s: float) -> None:
    """Return at this phase of a period, or later; windows are counted on this clock."""
    time.sleep((phase_s - time.monotonic()) % 1.0)


def asked_while_closed(program: Program, action: str) -> tuple[int, float, float]:
    """Have an action done that begins while the window of `SLOW` is closed.

    Returns:
        The result, and seconds on the clock of windows: the next opening, and the end of the action.
    """
    while True:
        sleep_to_phase(0.6)
        begun_s, result, done_s = literal_eval(program.ask(f"[now(), {action}, now()]"))
        if begun_s % 1.0 >= 0.5:  # else the program was held up until the next window
            return result, math.floor(begun_s) + 1.0, done_s


def waits_for_nothing(program: Program, action: str) -> bool:
    """Return whether an action ends before the next window; a busy machine may hold up some that wait for nothing."""
    for _ in range(TRIES):
        _, opens_s, done_s = asked_while_closed(program, action)
        if done_s < opens_s:
            return True
    return False


@pytest.mark.parametrize("launch", ["launch()", "launch_ex()", "cooperative()", "grid()", "graph_launch()"])
def test_work_starts_in_the_window_only_whatever_starts_it(bench: Bench, launch: str) -> None:
    """HAMi-core #143: cuLaunchKernelEx; HAMi #1445: graphs, that pass the limit by."""
    with bench.task(window=SLOW).program() as program:
        assert program.ask("capture(0, 1)") == "0"
        for _ in range(2):
            result, opens_s, done_s = asked_while_closed(program, launch)
            assert result == 0
            assert done_s >= opens_s


def test_without_a_window_nothing_waits_and_nothing_is_noted(bench: Bench) -> None:
    task = bench.task()
    with task.program() as program:
        program.ask("[launch() for _ in range(100)] and sync()")
        assert (task.usage().asked_ns, task.usage().busy_ns) == (0, 0)


def test_the_host_sees_that_a_task_is_busy_and_that_it_is_idle(bench: Bench) -> None:
    task = bench.task(window=Window(0, PERIOD_US))
    with task.program() as program:
        before = time.monotonic_ns()
        program.ask("[launch(2000) for _ in range(20)] and sync()")
        usage = task.usage()
        assert before < usage.asked_ns < time.monotonic_ns()
        assert usage.busy_ns > 5_000_000, "measured but for the last two batches"
        time.sleep(0.05)
        assert task.usage() == usage


def test_a_kernel_longer_than_the_window_runs_and_is_paid_for_later(bench: Bench) -> None:
    task = bench.task(window=Window(0, 20_000, 100_000))
    with task.program() as program:
        began = time.monotonic()
        program.ask("[(launch(150_000), sync()) for _ in range(4)]")
        took_s = time.monotonic() - began
        assert took_s > 1.2, "four times 150 ms at a fifth of the card, but for the last"
        assert task.usage().missed >= 6


def test_a_pause_is_no_debt(bench: Bench) -> None:
    """Time in which the card was done with a task's work is nobody's."""
    task = bench.task(window=Window(0, 50_000, 100_000))
    with task.program() as program:
        program.ask("[launch(1000) for _ in range(10)] and sync()")
        time.sleep(1.0)
        program.ask("[launch(1000), sync()]")
        assert task.usage().missed <= 1, "a debt of a second would be paid by ten windows and more"


def test_a_window_that_changes_is_followed_at_once(bench: Bench) -> None:
    task = bench.task(window=Window(0, 1_000_000, 1_000_000))
    with task.program() as program:
        program.ask("[launch(1000) for _ in range(10)] and sync()")
        task.region.change(task.gpus[0], window=SLOW)
        for _ in range(2):
            _, opens_s, done_s = asked_while_closed(program, "launch()")
            assert done_s >= opens_s
        task.region.change(task.gpus[0], window=None)
        assert waits_for_nothing(program, "launch()")


def test_a_capture_waits_for_nothing(bench: Bench) -> None:
    with bench.task(window=SLOW).program() as program:
        assert waits_for_nothing(program, "capture(0, 1000)")


def test_an_idle_task_of_the_same_card_delays_nobody(bench: Bench) -> None:
    """Windows are times, not turns: nobody waits for another."""
    first, second = bench.task(window=SLOW), bench.task(window=Window(500_000, 500_000, 1_000_000))
    with first.program() as one, second.program() as two:
        assert two.ask("sync()") == "0"
        for _ in range(TRIES):
            sleep_to_phase(0.05)
            begun_s, _, done_s = literal_eval(one.ask("[now(), launch(), now()]"))
            if begun_s % 1.0 < 0.5 and done_s < math.floor(begun_s) + 0.5:
                return
    pytest.fail("no launch of five was let through in its own window")
