"""Health checks of the scheduler, against servers on real ports."""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from mesos_gpu.adapters import prober as prober_module
from mesos_gpu.adapters.prober import Attempt, Prober, dial
from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.healthcheck import CheckHealth, HealthCheck, IpProtocol, Protocol
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.policy.apps.healthcheck import Finding, TaskHealth
from mesos_gpu.policy.apps.outward import Outward, Way
from mesos_gpu.scheduler.checks import Checks, Names, Subject
from mesos_gpu.scheduler.watching import Watching
from tests.answers import (
    Behaviour,
    Server,
    answering,
    closed_port,
    closes,
    drips,
    floods,
    hangs,
    says,
    server_context,
    slow_body,
    status,
)
from tests.conftest import wait_until

HTTP = HealthCheck()
SHORT = HealthCheck(timeout_s=1)
GREEDY = HealthCheck(ignore_http_1xx=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole seconds are long for tests."""
    monkeypatch.setattr(prober_module, "timeout_s", lambda check: 0.5 * check.timeout_s)
    monkeypatch.setattr(prober_module, "pause_s", lambda check: check.interval_s or 0.05)


@pytest.fixture
def prober() -> Iterator[Prober]:
    closed_port()  # its socket stays open
    before = set(os.listdir("/proc/self/fd"))
    prober = Prober(spread=lambda: 0.0)
    yield prober
    prober.stop()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def names() -> Iterator[Callable[[Callable[[str, IpProtocol], str]], Names]]:
    with ExitStack() as stack:

        def make(look_up: Callable[[str, IpProtocol], str]) -> Names:
            names = Names(look_up)
            stack.callback(names.stop)
            return names

        yield make


def probe(prober: Prober, *asks: tuple[HealthCheck, int]) -> list[Finding]:
    """What the first attempt of each finds; all are made at once."""
    findings: dict[int, Finding] = {}
    for number, (check, port) in enumerate(asks):
        prober.add(
            number,
            check,
            0.0,
            lambda check=check, port=port: dial(check, "127.0.0.1", "localhost", port),  # type: ignore[misc]
            lambda finding, number=number: findings.update({number: finding}),  # type: ignore[misc]
        )
    wait_until("all have been made", lambda: len(findings) == len(asks))
    return [findings[number] for number in range(len(asks))]


ANSWERS: dict[str, tuple[HealthCheck, Behaviour, bool | None, str]] = {
    "200": (HTTP, status("200 OK"), True, ""),
    "a redirect": (HTTP, status("302 Found"), True, ""),
    "500": (HTTP, status("500 Internal Server Error"), False, "HTTP status 500"),
    "404": (HTTP, status("404 Not Found"), False, "HTTP status 404"),
    "a body without an end": (HTTP, slow_body, True, ""),
    "closes": (HTTP, closes, False, "closed without an answer"),
    "another language": (HTTP, says(b"SSH-2.0-x\r\n"), False, "not an answer of HTTP: b'SSH-2.0-x\\r'"),
    "interim, then good": (HTTP, says(b"HTTP/1.1 103 E\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), True, ""),
    "interim only": (HTTP, says(b"HTTP/1.1 103 E\r\n\r\n"), False, "closed without an answer"),
    "interim only, ignored": (GREEDY, says(b"HTTP/1.1 103 E\r\n\r\n"), None, "closed without an answer"),
    "hangs": (SHORT, hangs, False, "no answer in 0.5 s"),
    "floods": (HTTP, floods, False, "more than 64 interim answers"),
    "drips": (SHORT, drips, False, "no answer in 0.5 s"),
    "tcp to one that hangs": (HealthCheck(Protocol.TCP), hangs, True, ""),
    "tls to one without": (
        HealthCheck(Protocol.HTTPS),
        status("200 OK"),
        False,
        "",
    ),
}


def test_check_passes_or_fails_according_to_the_servers_answer(prober: Prober) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(answering(behave)) for _, behave, _, _ in ANSWERS.values()]
        asks = [(case[0], server.port) for case, server in zip(ANSWERS.values(), servers, strict=True)]
        findings = probe(prober, *asks)
    for (name, (_, _, ok, cause)), finding in zip(ANSWERS.items(), findings, strict=True):
        assert finding.ok is ok, f"{name}: {finding}"
        assert finding.cause == cause or (not cause and not ok), name


def test_https_takes_any_certificate(prober: Prober, tmp_path: Path) -> None:
    context = server_context(tmp_path)
    https = HealthCheck(Protocol.HTTPS)
    with answering(status("204 No Content"), context) as good, answering(hangs, context) as bad:
        findings = probe(prober, (https, good.port), (HealthCheck(Protocol.HTTPS, timeout_s=1), bad.port))
    assert [finding.ok for finding in findings] == [True, False]


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 100 Continue\r\n\r\n" * 600, b"HTTP/1.1 100 C\r\n" + b"x: y\r\n" * 2000]
)
def test_endless_answer_holds_up_no_other_check(prober: Prober, text: bytes) -> None:
    """All checks of a scheduler are on one thread: a task that can keep it stops those of everybody."""

    def endless(connection: socket.socket, over: threading.Event) -> None:
        while not over.is_set():
            connection.sendall(text)

    with answering(endless) as flood, answering(hangs) as good:
        bad = probe(prober, (HTTP, flood.port))
        assert probe(prober, (HealthCheck(Protocol.TCP), good.port)) == [Finding(True)]
    assert [finding.ok for finding in bad] == [False]


def test_check_of_a_closed_port_is_refused(prober: Prober) -> None:
    port = closed_port()
    findings = probe(prober, (HTTP, port), (HealthCheck(Protocol.TCP), port))
    assert [finding.cause for finding in findings] == ["Connection refused"] * 2


def test_check_without_a_free_descriptor_is_not_the_tasks_fault(prober: Prober) -> None:
    def begin() -> Attempt:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    findings: list[Finding] = []
    prober.add("x", HTTP, 0.0, begin, findings.append)
    wait_until("it is made", lambda: findings)
    assert findings[0].ok is None


def test_a_check_goes_on_until_it_is_removed(prober: Prober) -> None:
    findings: list[Finding] = []
    with answering(status("200 OK")) as server:
        often = HealthCheck(interval_s=0)
        prober.add("x", often, 0.0, lambda: dial(often, "127.0.0.1", "x", server.port), findings.append)
        wait_until("it goes on", lambda: len(findings) >= 3)
        server.behave = status("500 Oops")
        wait_until("the change is seen", lambda: findings[-1].ok is False)
        prober.remove("x")
        prober.remove("never there")
        probe(prober, (HTTP, closed_port()))  # it is removed: orders are obeyed one after another
        seen = server.requests
        with answering(hangs) as slow:
            probe(prober, (SHORT, slow.port))
        assert server.requests == seen


def test_checks_beyond_the_limit_take_turns(prober: Prober, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober_module, "MAX_AT_ONCE", 2)
    with answering(hangs) as slow, answering(status("200 OK")) as server:
        findings = probe(prober, (SHORT, slow.port), (SHORT, slow.port), *[(HTTP, server.port)] * 5)
    assert [finding.ok for finding in findings] == [False] * 2 + [True] * 5


def test_prober_may_be_stopped_by_a_report() -> None:
    prober = Prober(spread=lambda: 0.0)
    findings: list[Finding] = []

    def report(finding: Finding) -> None:
        findings.append(finding)
        prober.stop()

    prober.add("x", HTTP, 0.0, lambda: dial(HTTP, "127.0.0.1", "x", closed_port()), report)
    wait_until("it was made", lambda: findings)
    prober.stop()
    prober.add("y", HTTP, 0.0, lambda: dial(HTTP, "127.0.0.1", "x", 1), report)
    assert len(findings) == 1


def test_prober_stop_does_not_wait_for_a_check_that_hangs() -> None:
    def hangs_until_the_end(_: socket.socket, over: threading.Event) -> None:
        over.wait()  # of the server, which is after the stop

    prober = Prober(spread=lambda: 0.0)
    with answering(hangs_until_the_end) as server:
        check = HealthCheck(timeout_s=36_000)
        prober.add("x", check, 0.0, lambda: dial(check, "127.0.0.1", "x", server.port), print)
        wait_until("the check is under way", lambda: server.requests)
        prober.stop()


# --- tasks


class Reports:
    """What was reported, by task."""

    def __init__(self) -> None:
        self.all: list[tuple[str, TaskHealth]] = []

    def __call__(self, task: str, health: TaskHealth) -> None:
        self.all.append((task, health))

    def of(self, task: str) -> list[TaskHealth]:
        return [health for name, health in self.all if name == task]


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def checks(reports: Reports) -> Iterator[Checks]:
    threads = threading.active_count()
    checks = Checks(reports, prober=Prober(spread=lambda: 0.0))
    yield checks
    checks.stop()
    wait_until("its threads end", lambda: threading.active_count() <= threads)


OFTEN = HealthCheck(port_index=0, interval_s=0, grace_period_s=0, max_consecutive_failures=2)


def subject(
    *servers: Server, task: str = "t1", host: str = "127.0.0.1", check: HealthCheck = OFTEN
) -> Subject:
    return Subject(task, host, tuple(server.port for server in servers), (check,), time.time() - 100)


def test_a_task_becomes_healthy_then_fails_until_it_is_to_be_killed(checks: Checks, reports: Reports) -> None:
    with answering(status("200 OK")) as server:
        checks.watch(subject(server))
        wait_until("it is healthy", lambda: [health.healthy for health in reports.of("t1")] == [True])
        server.behave = status("503 Busy")
        wait_until("it is to be killed", lambda: reports.of("t1")[-1].kill)
    counts = [health.healths[0].consecutive_failures for health in reports.of("t1")]
    assert counts[:4] == [0, 1, 2, 3]
    assert [bool(health.kill) for health in reports.of("t1")[:4]] == [False, False, False, True]
    assert checks.healths["t1"].healthy is False


def test_check_of_a_host_by_its_name(checks: Checks, reports: Reports) -> None:
    with answering(status("200 OK")) as server:
        checks.watch(subject(server, host="localhost"))
        wait_until("it is healthy", lambda: reports.of("t1"))
    assert reports.of("t1")[0].healthy is True


def test_a_server_on_ipv6_is_checked(checks: Checks, reports: Reports) -> None:
    try:
        server = Server(status("200 OK"), None, socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this host's loopback")
    checks.watch(subject(server, host="::1"))
    wait_until("it is healthy", lambda: reports.of("t1"))
    server.close()
    assert reports.of("t1")[0].healthy is True


def test_a_task_that_has_ended_is_forgotten(checks: Checks, reports: Reports) -> None:
    with answering(status("200 OK")) as server:
        checks.watch(subject(server, task="t1"))
        checks.watch(subject(server, task="t2"))
        wait_until("both are seen", lambda: len(reports.all) == 2)
        checks.forget("t1")
        checks.forget("never there")
        assert list(checks.healths) == ["t2"]
        server.behave = closes
        wait_until("the other fails", lambda: reports.of("t2")[-1].kill)
    assert len(reports.of("t1")) == 1


def test_checks_of_the_executor_are_left_to_it(checks: Checks) -> None:
    checks.watch(Subject("t1", "127.0.0.1", (), (HealthCheck(Protocol.COMMAND, command="true"),), 0.0))
    assert not checks.healths


def test_a_task_without_the_port_fails(checks: Checks, reports: Reports) -> None:
    checks.watch(subject())
    wait_until("it fails", lambda: reports.of("t1"))
    assert reports.of("t1")[0].healths[0].last_failure_cause == "the task has no port 0"


def test_no_check_goes_to_a_port_that_commands_the_cluster(checks: Checks, reports: Reports) -> None:
    """The scheduler reaches them, and who writes a check names its port and path."""
    with answering(status("200 OK")) as agent:
        check = replace(OFTEN, port=agent.port, path="/logging/toggle?level=3&duration=1weeks")
        checks.watch(replace(subject(check=check), way=Way(denied=frozenset({agent.port}))))
        wait_until("it fails", lambda: reports.of("t1"))
        assert agent.requests == 0
    cause = reports.of("t1")[0].healths[0].last_failure_cause
    assert cause == f"port {agent.port} commands the cluster, and is not for tasks"


def test_check_knows_the_control_ports() -> None:
    state = State(0.0)
    state.mesos.master_url = "http://192.0.2.1:5050"
    own = [ControlPort("api", 8080, boot_id="b"), ControlPort("api", 8080, "192.0.2.9")]
    outward = Outward(check_low_ports=True)
    way = Watching(lambda _: None, outward, own)._way(state)
    assert way == Way(
        outward, frozenset({5050}), frozenset({(ip_address("192.0.2.9"), 8080)}), frozenset({8080}), False
    )
    state.mesos.master_url = "http://127.0.0.1:5050"
    assert Watching(lambda _: None, outward, own)._way(state).is_here


def test_no_check_goes_where_only_the_scheduler_gets(checks: Checks, reports: Reports) -> None:
    """An agent may say that it is at the scheduler's loopback, and a name may lead there."""
    with answering(status("200 OK")) as server:
        for task, host in ("t1", "127.0.0.1"), ("t2", "localhost"):
            checks.watch(replace(subject(server, task=task, host=host), way=Way(is_here=False)))
            wait_until("it fails", partial(reports.of, task))
        assert server.requests == 0
    cause = reports.of("t2")[0].healths[0].last_failure_cause
    assert (
        cause == "127.0.0.1 is a loopback address, where checks may not connect (--check-network allows it)"
    )


def test_a_check_goes_to_the_address_that_was_judged(reports: Reports) -> None:
    """A name that leads elsewhere when it is asked for once more."""
    asked = []

    def look_up(host: str, _family: IpProtocol) -> str:
        asked.append(host)
        return "127.0.0.1" if len(asked) == 1 else "169.254.169.254"

    checks = Checks(reports, prober=Prober(spread=lambda: 0.0), names=Names(look_up))
    try:
        with answering(status("200 OK")) as server:
            checks.watch(subject(server, host="rebinding.example"))
            wait_until("it is healthy", lambda: reports.of("t1"))
        assert reports.of("t1")[0].healthy is True
        assert asked == ["rebinding.example"]
    finally:
        checks.stop()


def test_checks_keep_the_failures_counted_by_an_earlier_scheduler(checks: Checks, reports: Reports) -> None:
    before = TaskHealth((OFTEN,), 0.0, (CheckHealth(1.0, 1.0, 2.0, "HTTP status 500", 2),))
    with answering(status("503 Busy")) as server:
        checks.watch(subject(server), before)
        wait_until("one more is enough", lambda: reports.of("t1"))
    assert reports.of("t1")[0].kill == "HTTP check failed 3 times: HTTP status 503"


def test_check_of_an_unknown_host_fails(
    reports: Reports, names: Callable[[Callable[[str, IpProtocol], str]], Names]
) -> None:
    def look_up(host: str, family: IpProtocol) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    checks = Checks(reports, prober=Prober(spread=lambda: 0.0), names=names(look_up))
    checks.watch(subject(host="agent7", check=HealthCheck(port=1, interval_s=0, grace_period_s=0)))
    wait_until("it fails", lambda: reports.of("t1"))
    checks.stop()
    cause = reports.of("t1")[0].healths[0].last_failure_cause
    assert cause == "agent7 has no address: Name or service not known"


def test_a_name_that_takes_long_holds_up_only_its_own_tasks(
    reports: Reports, names: Callable[[Callable[[str, IpProtocol], str]], Names]
) -> None:
    answer = threading.Event()

    def look_up(host: str, family: IpProtocol) -> str:
        if host == "slow":
            answer.wait(30)
        return "127.0.0.1"

    checks = Checks(reports, prober=Prober(spread=lambda: 0.0), names=names(look_up))
    with answering(status("200 OK")) as server:
        for task in ("gone", "late"):
            checks.watch(subject(server, task=task, host="slow"))
        checks.watch(subject(server, task="quick", host="fast"))
        wait_until("the other is seen", lambda: reports.of("quick"))
        checks.forget("gone")
        assert len(reports.all) == 1
        answer.set()
        wait_until("it is seen", lambda: reports.of("late"))
        checks.stop()
    assert not reports.of("gone")
