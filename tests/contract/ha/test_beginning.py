"""A scheduler that is elected, and loses its place before it serves: it stands by, or ends as who was deposed."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.election import Election
from mesos_gpu.adapters.replicated.store import ReplicatedStore
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.scheduler.access.first import begin_with
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.ha.member import Member
from mesos_gpu.scheduler.ha.part import DEPOSED
from mesos_gpu.scheduler.ha.run import exit_code
from tests.doubles.fake_driver import FakeClock, FakeDriver

FIRST = AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),))


@pytest.fixture
def member(meeting: str, tmp_path: Path) -> Iterator[Member]:
    """A scheduler that stands for election."""
    with contextlib.closing(Member(at.parsed(meeting), "http://m:1", tmp_path / "m.sqlite")) as member:
        member.election.stand()
        yield member


@pytest.fixture
def other(meeting: str) -> Iterator[Election]:
    """The part of another scheduler, which takes the place when a test says so."""
    client = at.connected(at.parsed(meeting))
    election = Election(client, at.parsed(meeting), "http://other:1")
    election.stand()
    yield election
    at.close(client)


def led(member: Member) -> ReplicatedStore:
    store = member.take(threading.Event())
    assert store is not None
    return store


def test_scheduler_deposed_while_it_takes_over_stands_by(
    member: Member, other: Election, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = member.election.candidates

    def and_another_takes_the_place() -> int:
        other.take()
        return candidates()

    with monkeypatch.context() as patch:
        patch.setattr(member.election, "candidates", and_another_takes_the_place)
        assert member.take(threading.Event()) is None
    assert not member.leads
    assert member.leader is None
    assert member.take(threading.Event()) is not None, "it can be elected again"
    assert member.leads


def test_scheduler_deposed_before_its_first_write_ends_as_deposed(member: Member, other: Election) -> None:
    """`--access-file` waits for an answer of an engine that has ended."""
    store = led(member)
    daemon = Daemon(store, store.load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))

    def lead() -> int:
        other.take()
        daemon.start()
        begin_with(FIRST, daemon)
        return 0

    try:
        assert exit_code(member, lead) == DEPOSED
    finally:
        daemon.stop()


def test_scheduler_that_cannot_begin_to_lead_says_why(member: Member) -> None:
    def lead() -> int:
        raise MesosGpuError("the file of credentials is gone", remedy="bring it back")

    led(member)
    with pytest.raises(MesosGpuError, match="credentials"):
        exit_code(member, lead)
