"""Readiness checks of the scheduler, against servers on real ports."""

import queue
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mesos_gpu.adapters import prober as prober_module
from mesos_gpu.adapters.asker import MAX_BODY
from mesos_gpu.adapters.prober import Prober
from mesos_gpu.model.apps.app import HttpScheme, ReadinessCheck
from mesos_gpu.model.jobs.healthcheck import Answer, Readiness
from mesos_gpu.scheduler.checks import Names
from mesos_gpu.scheduler.readiness import Candidate, ReadinessChecks
from tests.answers import Behaviour, answering, closed_port, closes, hangs, says, server_context
from tests.conftest import wait_until

KEEP = ReadinessCheck(preserve_last_response=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between checks; only a test of a host that hangs shortens the limit of an answer."""
    monkeypatch.setattr(prober_module, "timeout_s", lambda _: 60.0)
    monkeypatch.setattr(prober_module, "pause_s", lambda _: 0.05)


class CheckRig:
    """Readiness checks, and their reports in order."""

    def __init__(self, stack: ExitStack) -> None:
        prober, names = Prober(spread=lambda: 0.0), Names()
        stack.callback(names.stop)
        stack.callback(prober.stop)
        self.reports: queue.SimpleQueue[tuple[str, Readiness]] = queue.SimpleQueue()
        self.checks = ReadinessChecks(lambda *report: self.reports.put(report), prober, names)

    def first(self, check: ReadinessCheck, port: int | None) -> Readiness:
        self.checks.watch(Candidate("t", "127.0.0.1", port, check))
        task, readiness = self.reports.get(timeout=60)
        assert task == "t"
        return readiness


@pytest.fixture
def rig() -> Iterator[CheckRig]:
    with ExitStack() as stack:
        yield CheckRig(stack)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\r\nready"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nloading\r\n0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * (MAX_BODY + 5)

ANSWERS = {
    "ready": (OK, ReadinessCheck(), Readiness("readinessCheck", True)),
    "ready, and its words": (
        OK,
        KEEP,
        Readiness("readinessCheck", True, Answer(200, "text/plain; charset=utf-8", "ready")),
    ),
    "not ready, in chunks": (
        BUSY,
        KEEP,
        Readiness("readinessCheck", False, Answer(503, "text/plain", "loading")),
    ),
    "another status means ready": (
        BUSY,
        ReadinessCheck(name="up", ready_codes=(503,)),
        Readiness("up", True),
    ),
    "200 does not": (OK, ReadinessCheck(ready_codes=(204, 299)), Readiness("readinessCheck", False)),
    "a long body is cut off": (
        UNTIL_CLOSED,
        KEEP,
        Readiness("readinessCheck", True, Answer(200, "", "x" * MAX_BODY)),
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", KEEP, Readiness("readinessCheck", False)),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_readiness_check_follows_the_status_of_the_answer(rig: CheckRig, case: str) -> None:
    words, check, wanted = ANSWERS[case]
    with answering(says(words)) as server:
        assert rig.first(check, server.port) == wanted
        rig.checks.forget("t")


@pytest.mark.parametrize("behave", [hangs, closes], ids=["hangs", "closes"])
def test_readiness_check_without_an_answer_is_not_ready(
    rig: CheckRig, behave: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober_module, "timeout_s", lambda _: 0.1)
    with answering(behave) as server:
        assert rig.first(KEEP, server.port) == Readiness("readinessCheck", False)
        rig.checks.forget("t")


def test_readiness_check_without_a_port_or_listener_is_not_ready(rig: CheckRig) -> None:
    assert not rig.first(KEEP, None).ready
    rig.checks.forget("t")
    assert not rig.first(KEEP, closed_port()).ready


def test_https_asks_for_no_name(rig: CheckRig, tmp_path: Path) -> None:
    with answering(says(OK), server_context(tmp_path)) as server:
        assert rig.first(ReadinessCheck(protocol=HttpScheme.HTTPS), server.port).ready
        rig.checks.forget("t")


def test_readiness_check_runs_until_it_is_forgotten(rig: CheckRig) -> None:
    with answering(says(BUSY)) as server, answering(says(BUSY)) as other:
        rig.first(ReadinessCheck(), server.port)
        wait_until("it is asked again", lambda: server.requests >= 3)
        server.behave = says(OK)
        wait_until("it is ready", lambda: rig.reports.get(timeout=60)[1].ready)
        rig.checks.forget("t")
        rig.checks.watch(Candidate("u", "127.0.0.1", other.port, ReadinessCheck()))
        wait_until(
            "another is asked", lambda: other.requests
        )  # by the same thread, which does things in order
        before = server.requests
        wait_until("time has passed", lambda: other.requests >= 4)
        assert server.requests == before
