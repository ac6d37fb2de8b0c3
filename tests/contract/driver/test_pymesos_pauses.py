"""Reconnection of the Mesos driver: its pauses between subscriptions, and streams on which nothing comes."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.pymesos_driver import Disconnected, FatalError, Registered
from tests.conftest import wait_until
from tests.contract.test_pymesos_driver import QUICK, Connect, _nothing_is_left, connect, error
from tests.doubles.scripted_master import FRAMEWORK_ID, Inbox, Raw, Reply, ScriptedMaster, Stream

__all__ = ["_nothing_is_left", "connect"]  # fixtures

UNWELCOME = {
    "503": Reply(503),
    "404 while routes come up": Reply(404),
    "401": Reply(401, b"who are you?"),
    "403": Reply(403, b"not you"),
    "500": Reply(500),
    "307 without Location": Reply(307),
    "307 to nowhere": Reply(307, headers={"Location": "//127.0.0.1:1/api"}),
    "closed stream": Stream(then_end=True),
    "ERROR": Stream(events=(error("Not authorized to use roles"),)),
    "closed without an answer": Raw(b""),
    "not HTTP": Raw(b"\x00\x01\x02"),
    "not RecordIO": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{'type':'SUBSCRIBED'}"),
    "not JSON": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n2\n{x"),
}


@pytest.mark.parametrize("answer", UNWELCOME.values(), ids=UNWELCOME.keys())
def test_defect_2_growing_pauses_instead_of_a_storm(connect: Connect, answer: Reply | Stream | Raw) -> None:
    inbox = Inbox()
    with ScriptedMaster(*[answer] * 4) as master:
        driver = connect(master.address, inbox)
        at = [master.wait_for("SUBSCRIBE", n).at for n in range(1, 6)]
        gaps = [later - earlier for earlier, later in pairwise(at)]
        for failures, gap in enumerate(gaps, 1):
            due_s = min(QUICK.longest_pause_s, QUICK.first_pause_s * QUICK.growth**failures)
            assert gap >= 0.5 * due_s
        inbox.wait_for(Registered, 1 + 4 * isinstance(answer, Stream))
        driver.revive()
        assert not inbox.of(FatalError)


class Pauses:
    """Pauses of a driver that take no time.

    Attributes:
        failures: For each pause, the failures in a row before it.
        sum_s: What the pauses would have taken.
        then: Called in each.
        timings: For the driver.
    """

    def __init__(self, **values: Any) -> None:
        self.failures: list[int] = []
        self.sum_s = 0.0
        self.then: Callable[[], None] = lambda: None
        pauses = self

        class Noting(pd.Timings):
            def pause_s(self, failures: int) -> float:
                pauses.failures.append(failures)
                pauses.sum_s += super().pause_s(failures)
                pauses.then()
                return 0.0

        self.timings = Noting(**values)


@contextlib.contextmanager
def returning(port: int, pauses: Pauses, is_due: Callable[[], bool]) -> Iterator[list[ScriptedMaster]]:
    """Let a master come to a port in the pause in which it is due; the list has it then."""
    masters: list[ScriptedMaster] = []

    def come() -> None:
        if not masters and is_due():
            masters.append(ScriptedMaster(port=port))

    pauses.then = come
    yield masters
    for each in masters:
        each.close()


def test_defect_2_a_refused_connection_is_tried_again(connect: Connect) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen: connections are refused
        port = closed.getsockname()[1]
        pauses, inbox = Pauses(), Inbox()

        def is_due() -> bool:
            if len(pauses.failures) == 4:
                closed.close()
            return len(pauses.failures) == 4

        with returning(port, pauses, is_due):
            connect(f"127.0.0.1:{port}", inbox, timings=pauses.timings)
            inbox.wait_for(Registered)


def test_defect_2_back_within_2_s_of_a_master_that_was_away_for_1_s(connect: Connect) -> None:
    inbox, pauses = Inbox(), Pauses()
    with ScriptedMaster() as master, returning(master.port, pauses, lambda: pauses.sum_s >= 1.0) as back:
        connect(master.address, inbox, timings=pauses.timings)
        assert not inbox.wait_for(Registered).reregistered
        master.close()
        again = inbox.wait_for(Registered, 2)
        assert 1.0 <= pauses.sum_s < 3.0
        assert again == Registered(FRAMEWORK_ID, f"http://{master.address}", reregistered=True)
        body = back[0].wait_for("SUBSCRIBE").body
        assert body["framework_id"] == body["subscribe"]["framework_info"]["id"] == {"value": FRAMEWORK_ID}


@pytest.mark.parametrize(("settled_s", "failures"), [(0.0, [1, 2, 3, 0]), (3600.0, [1, 2, 3, 4])])
def test_defect_2_a_settled_subscription_resets_the_pauses(
    connect: Connect, settled_s: float, failures: list[int]
) -> None:
    inbox, pauses = Inbox(), Pauses(settled_s=settled_s)
    with ScriptedMaster(*[Reply(503)] * 3) as master:
        connect(master.address, inbox, timings=pauses.timings)
        inbox.wait_for(Registered)
        master.drop()
        inbox.wait_for(Registered, 2)
        assert pauses.failures == failures


class Clock:
    """A clock that a test sets, and that knows how often it was read."""

    def __init__(self) -> None:
        self.now_s, self.reads = 0.0, 0

    def __call__(self) -> float:
        now_s = self.now_s
        self.reads += 1
        return now_s


def test_defect_3_a_stream_is_kept_by_heartbeats_and_left_when_silent(connect: Connect) -> None:
    clock, inbox = Clock(), Inbox()
    with ScriptedMaster(then=Stream(heartbeat_s=15.0)) as master:
        timings = pd.Timings(first_pause_s=0.02, missed_heartbeats=5, clock=clock)
        driver = connect(master.address, inbox, timings=timings)
        inbox.wait_for(Registered)

        def look() -> None:
            """Have the driver see what time it is."""
            before = clock.reads
            detected = json.dumps({"address": {"ip": "127.0.0.1", "port": master.port}})
            driver._driver.onNewMasterDetectedMessage(detected.encode())
            wait_until("it has looked", lambda: clock.reads > before)

        for _ in range(3):
            clock.now_s += 0.9 * 5 * 15.0
            look()
            before = clock.reads
            master.send({"type": "HEARTBEAT"})
            wait_until("it is heard", lambda: clock.reads >= before + 2)  # noqa: B023 # awaited here
        assert len(master.of_type("SUBSCRIBE")) == 1
        assert not inbox.of(Disconnected)
        clock.now_s += 1.1 * 5 * 15.0
        look()
        inbox.wait_for(Disconnected)
        master.wait_for("SUBSCRIBE", 2)


def test_defect_3_a_master_that_never_answers_is_left(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(60)
        connect(f"127.0.0.1:{mute.getsockname()[1]}", Inbox(), timings=pd.Timings(answer_s=0.2))
        with mute.accept()[0] as first, mute.accept()[0] as second:
            assert first.recv(4) == second.recv(4) == b"POST"
