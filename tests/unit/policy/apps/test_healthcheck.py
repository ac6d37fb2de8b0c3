"""Health of a task from the findings of its checks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.jobs.healthcheck import CheckHealth, HealthCheck, Protocol
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.policy.apps.healthcheck import (
    MIN_PAUSE_S,
    Finding,
    TaskHealth,
    first_after_s,
    is_fatal,
    judge,
    judged,
    of_executor,
    of_scheduler,
    pause_s,
    port_of,
    timeout_s,
    unanswered,
)

GOOD, BAD, NEITHER = Finding(True), Finding(False, "HTTP status 500"), Finding(None)
START_S = 1000.0


def after(check: HealthCheck, *findings: tuple[float, Finding]) -> CheckHealth:
    """Judge findings, each given as seconds after the start, and what."""
    health = CheckHealth()
    for at_s, finding in findings:
        health = judged(check, health, finding, START_S + at_s, START_S)
    return health


def test_health_is_unknown_before_the_first_finding() -> None:
    assert CheckHealth().alive is None
    assert TaskHealth.begin((HealthCheck(),), START_S).healthy is None
    assert TaskHealth.begin((), START_S).healthy is None


def test_failures_in_the_grace_period_do_not_count() -> None:
    check = HealthCheck(grace_period_s=10)
    assert after(check, (1, BAD), (9.9, BAD)) == CheckHealth()
    assert after(check, (1, BAD), (10, BAD)).consecutive_failures == 1


def test_first_success_of_a_check_ends_the_grace_period() -> None:
    health = after(HealthCheck(grace_period_s=300), (1, BAD), (2, GOOD), (3, BAD))
    assert health == CheckHealth(START_S + 2, START_S + 2, START_S + 3, "HTTP status 500", 1)
    assert health.alive is False


def test_check_success_forgets_failures_and_keeps_their_cause() -> None:
    health = after(HealthCheck(grace_period_s=0), (1, BAD), (2, BAD), (3, GOOD))
    assert (health.alive, health.consecutive_failures) == (True, 0)
    assert health.last_failure_cause == "HTTP status 500"


def test_finding_without_an_answer_changes_nothing() -> None:
    check = HealthCheck(grace_period_s=0)
    assert after(check, (1, BAD), (2, NEITHER)) == after(check, (1, BAD))


@pytest.mark.parametrize(
    ("protocol", "most", "failures", "fatal"),
    [
        (Protocol.HTTP, 3, 3, False),  # Marathon counts after it has judged
        (Protocol.HTTP, 3, 4, True),
        (Protocol.TCP, 1, 2, True),
        (Protocol.MESOS_HTTP, 3, 2, False),
        (Protocol.MESOS_HTTP, 3, 3, True),
        (Protocol.COMMAND, 1, 1, True),
        (Protocol.HTTP, 0, 1000, False),
        (Protocol.COMMAND, 0, 1000, False),
    ],
)
def test_check_failure_is_fatal_at_its_limit(
    protocol: Protocol, most: int, failures: int, fatal: bool
) -> None:
    check = HealthCheck(protocol, max_consecutive_failures=most)
    assert is_fatal(check, CheckHealth(consecutive_failures=failures)) is fatal


def test_task_is_healthy_if_all_its_checks_are() -> None:
    checks = (HealthCheck(grace_period_s=0), HealthCheck(Protocol.TCP, grace_period_s=0))
    task = TaskHealth.begin(checks, START_S).after(0, GOOD, START_S + 1)
    assert task.healthy is None, "the other has not been made"
    both = task.after(1, GOOD, START_S + 2)
    assert both.healthy is True
    assert both.after(1, BAD, START_S + 3).healthy is False
    assert task.after(1, BAD, START_S + 2).healthy is False


def test_kill_for_health_names_the_check_and_the_cause() -> None:
    checks = (HealthCheck(), HealthCheck(Protocol.MESOS_TCP, grace_period_s=0, max_consecutive_failures=2))
    task = TaskHealth.begin(checks, START_S)
    task = task.after(1, Finding(False, "Connection refused"), START_S + 1)
    assert task.kill == ""
    task = task.after(1, Finding(False, "Connection refused"), START_S + 2)
    assert task.kill == "MESOS_TCP check failed 2 times: Connection refused"


def test_finding_is_news_if_it_differs_or_fails_again() -> None:
    task = TaskHealth.begin((HealthCheck(grace_period_s=0),), START_S)
    good = task.after(0, GOOD, START_S + 1)
    assert good.differs(task)
    assert not good.after(0, GOOD, START_S + 2).differs(good)
    bad = good.after(0, BAD, START_S + 3)
    assert bad.differs(good)
    assert bad.after(0, BAD, START_S + 4).differs(bad)
    assert (
        not TaskHealth.begin((HealthCheck(),), START_S)
        .after(0, BAD, START_S)
        .differs(TaskHealth.begin((HealthCheck(),), START_S))
    ), "in the grace period"


def test_check_success_beside_a_failure_is_news() -> None:
    checks = (HealthCheck(grace_period_s=0), HealthCheck(Protocol.TCP))
    bad = TaskHealth.begin(checks, START_S).after(0, BAD, START_S + 1)
    assert bad.after(1, GOOD, START_S + 2).differs(bad)


def test_times_of_a_check_are_mesos_and_marathons() -> None:
    assert first_after_s(HealthCheck(Protocol.HTTP, interval_s=60, delay_s=40)) == 5
    assert first_after_s(HealthCheck(Protocol.HTTP, interval_s=2)) == 2
    assert first_after_s(HealthCheck(Protocol.COMMAND, interval_s=2, delay_s=40)) == 40
    assert pause_s(HealthCheck(interval_s=0)) > 0
    assert timeout_s(HealthCheck(timeout_s=0)) == 20
    assert timeout_s(HealthCheck(timeout_s=3)) == 3


def test_check_port_is_its_own_or_by_index() -> None:
    assert port_of(HealthCheck(port=80, port_index=0), (31000,)) == 80
    assert port_of(HealthCheck(port_index=1), (31000, 31001)) == 31001
    assert port_of(HealthCheck(port_index=2), (31000, 31001)) is None
    assert port_of(HealthCheck(Protocol.COMMAND, command="true"), (31000,)) is None


def test_checks_are_split_between_scheduler_and_executor() -> None:
    checks = (HealthCheck(port_index=0), HealthCheck(Protocol.MESOS_TCP, port_index=1))
    assert of_scheduler(checks) == checks[:1]
    assert of_executor(checks, (1, 2)) == (HealthCheck(Protocol.MESOS_TCP, port=2, port_index=1),)


def test_check_of_an_executor_has_the_host_port_that_leads_to_its_own() -> None:
    bindings = (PortBinding(80, 31000, "tcp"), PortBinding(53, 31001, "udp"), PortBinding(53, 31002, "tcp"))
    made = {
        HealthCheck(Protocol.MESOS_HTTP, port=80): 31000,
        HealthCheck(Protocol.MESOS_TCP, port=53): 31002,
        HealthCheck(Protocol.MESOS_TCP, port=9): 9,
        HealthCheck(Protocol.MESOS_TCP, port_index=1): 7,
        HealthCheck(Protocol.MESOS_TCP, port_index=2): None,
        HealthCheck(Protocol.COMMAND, command="true"): None,
    }
    wanted = tuple(replace(check, port=port) for check, port in made.items())
    assert of_executor((HealthCheck(port=80), *made), (6, 7), bindings) == wanted
    assert of_executor([HealthCheck(Protocol.MESOS_TCP, port=80)], ()) == (
        HealthCheck(Protocol.MESOS_TCP, port=80),
    )


def test_later_success_of_a_check_is_not_its_first() -> None:
    health = after(HealthCheck(), (1, GOOD), (2, GOOD))
    assert health == CheckHealth(START_S + 1, START_S + 2)


def test_pause_of_a_check_is_never_nothing() -> None:
    assert [pause_s(HealthCheck(interval_s=seconds)) for seconds in (0, 1)] == [MIN_PAUSE_S, 1.0]
    assert first_after_s(HealthCheck(interval_s=0)) == MIN_PAUSE_S


def test_check_port_index_may_be_the_first_and_never_negative() -> None:
    assert port_of(HealthCheck(port_index=0), (31000,)) == 31000
    assert port_of(HealthCheck(port_index=-1), (31000,)) is None
    assert port_of(HealthCheck(port_index=1), (31000,)) is None


@pytest.mark.parametrize(
    ("status", "ok"),
    [(101, False), (199, False), (200, True), (302, True), (399, True), (400, False), (503, False)],
)
def test_http_status_decides_a_check(status: int, ok: bool) -> None:
    assert judge(status, ignore_1xx=False).ok is ok
    assert judge(status, ignore_1xx=True).ok is (None if status < 200 else ok)


def test_interim_answer_alone_is_ignored_if_it_is_asked() -> None:
    assert unanswered("late", interim=True, ignore_1xx=True).ok is None
    assert unanswered("late", interim=False, ignore_1xx=True).ok is False
    assert unanswered("late", interim=True, ignore_1xx=False) == Finding(False, "late")


@given(
    st.lists(st.sampled_from([True, False, None]), max_size=30),
    st.integers(0, 20),
    st.integers(0, 4),
    st.sampled_from(list(Protocol)),
)
def test_task_is_killed_exactly_after_that_many_failures_in_a_row(
    results: list[bool | None], grace_s: int, most: int, protocol: Protocol
) -> None:
    check = HealthCheck(protocol, grace_period_s=grace_s, max_consecutive_failures=most)
    task, row, succeeded = TaskHealth.begin((check,), 0.0), 0, False
    for second, ok in enumerate(results):
        task = task.after(0, Finding(ok), float(second))
        if ok:
            row, succeeded = 0, True
        elif ok is False and (succeeded or second >= grace_s):
            row += 1
        assert task.healths[0].consecutive_failures == row
        assert bool(task.kill) is (most > 0 and row >= most + (not protocol.by_executor))
        assert task.healthy is (False if row else True if succeeded else None)
