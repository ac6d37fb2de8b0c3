"""The Mesos driver against a scripted peer on real sockets: one test or more for each defect of pymesos.

`test_defect_N_…` fails if the fix of defect N of pymesos 0.3.15 is removed. Those of reconnection are in
driver/test_pymesos_pauses.py.
"""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.pymesos_driver import Disconnected, FatalError, NotConnected, Offers, Registered
from mesos_gpu.errors import Unavailable
from mesos_gpu.ports import Driver
from tests.conftest import wait_until
from tests.doubles.scripted_master import FRAMEWORK_ID, Inbox, Reply, ScriptedMaster, Stream

FRAMEWORK = pd.FrameworkSettings(
    "root", "test", ("gpu", "*"), "http://127.0.0.1:8080", "here", failover_timeout_s=0.0, labels={"a": "b"}
)
QUICK = pd.Timings(first_pause_s=0.02, growth=2.0, longest_pause_s=0.2, answer_s=30.0, call_s=30.0)
Connect = Callable[..., pd.PymesosDriver]
Pair = tuple[pd.PymesosDriver, Inbox]
AGENT, TASK = {"agent_id": {"value": "a1"}}, {"task_id": {"value": "t1"}}
STATUS = {**TASK, **AGENT, "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}
UPDATE = {"type": "UPDATE", "update": {"status": STATUS}}


def error(message: str) -> dict[str, Any]:
    return {"type": "ERROR", "error": {"message": message}}


def offers(count: int = 1, padding: str = "") -> dict[str, Any]:
    some = [{"id": {"value": f"o{n}"}, "hostname": padding} for n in range(count)]
    return {"type": "OFFERS", "offers": {"offers": some}}


def open_sockets() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(("socket:", "pipe:")) for link in links)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    threads, sockets = set(threading.enumerate()), open_sockets()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as peer:
        yield peer


@pytest.fixture
def connect(_nothing_is_left: None) -> Iterator[Connect]:
    """Make and start drivers that are stopped in the end."""
    drivers: list[pd.PymesosDriver] = []

    def make(
        address: str, sink: Inbox, framework: pd.FrameworkSettings = FRAMEWORK, **more: Any
    ) -> pd.PymesosDriver:
        driver = pd.PymesosDriver(framework, address, sink, **{"timings": QUICK, **more})
        drivers.append(driver)
        driver.start()
        return driver

    yield make
    for driver in drivers:
        driver.stop(teardown=False)


@pytest.fixture
def registered(connect: Connect, master: ScriptedMaster) -> Pair:
    """A driver that is subscribed, and its sink."""
    driver = connect(master.address, inbox := Inbox())
    inbox.wait_for(Registered)
    return driver, inbox


# --- 1: callbacks


def test_defect_1_a_failing_callback_sends_no_teardown_and_gets_the_event_again(connect: Connect) -> None:
    def fail_once(event: pd.DriverEvent) -> None:
        if isinstance(event, pd.Update) and len(inbox.of(pd.Update)) == 1:
            raise KeyError("a bug")

    inbox = Inbox(fail_once)
    with ScriptedMaster(then=Stream(events=(UPDATE,))) as master:
        driver = connect(master.address, inbox)
        inbox.wait_for(pd.Update, 2)
        driver.revive()
        assert not master.of_type("TEARDOWN")
        assert not inbox.of(FatalError)


def test_defect_1_updates_are_acknowledged_only_by_the_caller(connect: Connect) -> None:
    inbox = Inbox()
    with ScriptedMaster(then=Stream(events=(UPDATE, offers()))) as master:
        driver = connect(master.address, inbox)
        inbox.wait_for(Offers)  # the update before it was dealt with
        assert not master.of_type("ACKNOWLEDGE")
        driver.acknowledge("a1", "t1", "AAAAAAAAAAAAAAAAAAAAAA==")
        sent = master.wait_for("ACKNOWLEDGE").body["acknowledge"]
        assert sent == {**AGENT, **TASK, "uuid": STATUS["uuid"]}


# --- 4: what is said of the framework


@pytest.mark.parametrize("version", [(401, ""), (200, "1.12.0-rc1"), (200, "0.28.0"), (200, "what?")])
def test_defect_4_capabilities_do_not_depend_on_the_version(
    connect: Connect, version: tuple[int, str]
) -> None:
    inbox = Inbox()
    with ScriptedMaster(version=version) as master:
        connect(master.address, inbox)
        inbox.wait_for(Registered)
        info = master.wait_for("SUBSCRIBE").body["subscribe"]["framework_info"]
        sent = {capability["type"] for capability in info["capabilities"]}
        assert sent == {"GPU_RESOURCES", "PARTITION_AWARE", "TASK_KILLING_STATE", "MULTI_ROLE"}


def test_defect_5_the_framework_is_described_as_set(connect: Connect, master: ScriptedMaster) -> None:
    connect(master.address, Inbox())
    info = master.wait_for("SUBSCRIBE").body["subscribe"]["framework_info"]
    del info["capabilities"]
    assert info == {
        "user": "root",
        "name": "test",
        "roles": ["gpu", "*"],
        "webui_url": "http://127.0.0.1:8080",
        "hostname": "here",
        "failover_timeout": 0.0,  # pymesos: 100 where it is not set
        "checkpoint": True,
        "labels": {"labels": [{"key": "a", "value": "b"}]},
    }


def test_a_known_framework_takes_over_its_tasks(connect: Connect, master: ScriptedMaster) -> None:
    inbox = Inbox()
    framework = pd.FrameworkSettings("root", "test", ("*",), "", "here", 60.0, framework_id="fw-0")
    driver = connect(master.address, inbox, framework)
    assert inbox.wait_for(Registered).reregistered
    driver.revive()
    subscribe = master.wait_for("SUBSCRIBE")
    assert subscribe.body["framework_id"] == {"value": "fw-0"}
    assert subscribe.body["subscribe"]["framework_info"]["id"] == {"value": "fw-0"}
    assert "mesos-stream-id" not in subscribe.headers
    assert master.wait_for("REVIVE").headers["mesos-stream-id"] == "stream-1"


# --- 5: calls


def test_defect_5_kill_and_reconcile_say_agent_and_policy(registered: Pair, master: ScriptedMaster) -> None:
    driver, _ = registered
    driver.kill("t1", "a1", grace_s=2.5)
    driver.kill("t2", None, grace_s=None)
    driver.reconcile([("t1", "a1"), ("t2", None)])
    driver.reconcile([])
    policy = {"kill_policy": {"grace_period": {"nanoseconds": 2_500_000_000}}}
    assert master.wait_for("KILL").body["kill"] == {**TASK, **AGENT, **policy}
    assert master.wait_for("KILL", 2).body["kill"] == {"task_id": {"value": "t2"}}
    asked = master.wait_for("RECONCILE").body["reconcile"]["tasks"]
    assert asked == [{**TASK, **AGENT}, {"task_id": {"value": "t2"}}]
    assert master.wait_for("RECONCILE", 2).body["reconcile"]["tasks"] == []


def test_offers_are_accepted_and_declined(registered: Pair, master: ScriptedMaster) -> None:
    driver, _ = registered
    driver.accept(["o1", "o2"], [{"name": "task"}], refuse_s=0.5)
    driver.decline(["o3"], refuse_s=60)
    driver.suppress()
    assert master.wait_for("ACCEPT").body == {
        "type": "ACCEPT",
        "framework_id": {"value": FRAMEWORK_ID},
        "accept": {
            "offer_ids": [{"value": "o1"}, {"value": "o2"}],
            "operations": [{"type": "LAUNCH", "launch": {"task_infos": [{"name": "task"}]}}],
            "filters": {"refuse_seconds": 0.5},
        },
    }
    declined = master.wait_for("DECLINE").body["decline"]
    assert declined == {"offer_ids": [{"value": "o3"}], "filters": {"refuse_seconds": 60}}
    assert master.wait_for("SUPPRESS").body == {"type": "SUPPRESS", "framework_id": {"value": FRAMEWORK_ID}}


def test_reservations_go_with_a_launch_in_one_accept(registered: Pair, master: ScriptedMaster) -> None:
    driver, _ = registered
    old, new = {"name": "cpus"}, {"name": "gpus"}
    driver.accept(["o1"], [{"name": "task"}], refuse_s=0.0, reserve=[new], unreserve=[old])
    driver.accept(["o2"], [], refuse_s=0.0, unreserve=[old])
    assert master.wait_for("ACCEPT").body["accept"]["operations"] == [
        {"type": "UNRESERVE", "unreserve": {"resources": [old]}},
        {"type": "RESERVE", "reserve": {"resources": [new]}},
        {"type": "LAUNCH", "launch": {"task_infos": [{"name": "task"}]}},
    ]
    given_back = master.wait_for("ACCEPT", 2).body["accept"]["operations"]
    assert [operation["type"] for operation in given_back] == ["UNRESERVE"]


def test_defect_6_a_credential_stays_with_its_driver(connect: Connect) -> None:
    with ScriptedMaster() as one, ScriptedMaster() as two:
        inbox_one, inbox_two = Inbox(), Inbox()
        first = connect(one.address, inbox_one, principal="p", secret="s")
        second = connect(two.address, inbox_two)
        for driver, inbox in ((first, inbox_one), (second, inbox_two)):
            inbox.wait_for(Registered)
            driver.revive()
        basic = "Basic " + base64.b64encode(b"p:s").decode()
        assert one.wait_for("SUBSCRIBE").headers["authorization"] == basic
        assert one.wait_for("REVIVE").headers["authorization"] == basic
        assert "authorization" not in two.wait_for("SUBSCRIBE").headers
        assert "authorization" not in two.wait_for("REVIVE").headers


# --- 8: names, lost calls, locks, signals, threads


def test_defect_8_a_name_that_does_not_resolve_is_tried_again(
    connect: Connect, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = socket.getaddrinfo, []

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "leader.mesos":
            return real(host, *rest, **more)
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    inbox = Inbox()
    driver = connect(f"leader.mesos:{master.port}", inbox)
    assert inbox.wait_for(Registered).master_url == f"http://leader.mesos:{master.port}"
    driver.revive()
    assert len(asked) == 3  # calls go where the events come from, and ask no name server


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "http://127.0.0.1"])
def test_a_master_has_several_addresses(connect: Connect, master: ScriptedMaster, host: str) -> None:
    inbox = Inbox()
    connect(f"{host}:{master.port}", inbox)
    inbox.wait_for(Registered)


CALLS: dict[str, Callable[[Driver], None]] = {
    "accept": lambda d: d.accept(["o"], [], refuse_s=0),
    "decline": lambda d: d.decline(["o"], refuse_s=0),
    "acknowledge": lambda d: d.acknowledge("a", "t", "u"),
    "kill": lambda d: d.kill("t", "a", grace_s=None),
    "reconcile": lambda d: d.reconcile([]),
    "suppress": lambda d: d.suppress(),
    "revive": lambda d: d.revive(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_defect_8_no_call_is_dropped_while_disconnected(
    connect: Connect, call: Callable[[Driver], None]
) -> None:
    inbox = Inbox()
    with ScriptedMaster(Stream(), then=Reply(503)) as master:
        driver = connect(master.address, inbox)
        inbox.wait_for(Registered)
        call(driver)
        master.drop()
        inbox.wait_for(Disconnected)
        with pytest.raises(NotConnected) as raised:
            call(driver)
        assert not raised.value.maybe_delivered
        assert isinstance(raised.value, Unavailable)


def test_a_refused_call_raises_with_the_answer(registered: Pair, master: ScriptedMaster) -> None:
    driver, _ = registered
    master.call_answer = Reply(400, b"Failed to validate")
    with pytest.raises(pd.CallFailed, match="SUPPRESS with HTTP 400: Failed to validate") as raised:
        driver.suppress()
    assert (raised.value.status, raised.value.body) == (400, "Failed to validate")
    master.call_answer = Reply(202)
    driver.suppress()


def in_thread(call: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except NotConnected as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_defect_8_events_come_while_a_call_waits(registered: Pair, master: ScriptedMaster) -> None:
    driver, inbox = registered
    master.calls_go_on.clear()
    thread, raised = in_thread(driver.revive)
    master.wait_for("REVIVE")
    master.send(offers())
    inbox.wait_for(Offers)
    assert thread.is_alive()
    master.calls_go_on.set()
    thread.join(60)
    assert not raised


def test_a_call_whose_answer_is_lost_may_have_been_delivered(
    registered: Pair, master: ScriptedMaster
) -> None:
    driver, _ = registered
    master.calls_go_on.clear()
    thread, raised = in_thread(driver.revive)
    master.wait_for("REVIVE")
    master.drop()
    thread.join(60)
    assert [getattr(error, "maybe_delivered", None) for error in raised] == [True]
    assert len(master.of_type("REVIVE")) == 1  # never sent twice


def test_a_connection_that_the_master_closed_is_not_used_again(
    registered: Pair, master: ScriptedMaster
) -> None:
    driver, _ = registered
    master.call_answer = Reply(202, close=True)
    for _ in range(3):
        driver.revive()
        assert select.select([driver._driver._conn.sock], [], [], 5)[0]  # type: ignore[union-attr]
    assert len(master.of_type("REVIVE")) == 3


IMPORT = """
import logging, signal, sys, threading
before = signal.getsignal(signal.SIGINT)
raised = []
def load():
    try:
        import mesos_gpu.adapters.pymesos_driver
    except BaseException as error:
        raised.append(error)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=load); thread.start(); thread.join()
else:
    load()
assert not raised, raised
assert signal.getsignal(signal.SIGINT) is before
assert signal.signal.__module__ == "signal"
assert not logging.getLogger("pymesos").handlers
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_defect_8_importing_leaves_signals_and_logs_alone(where: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT, where], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_defect_8_a_dying_thread_is_an_event_not_an_interrupt(
    connect: Connect, master: ScriptedMaster
) -> None:
    def die(event: pd.DriverEvent) -> None:
        if isinstance(event, Registered):
            raise SystemExit("gone")

    inbox, handler = Inbox(die), signal.getsignal(signal.SIGINT)
    driver = connect(master.address, inbox)
    assert "gone" in inbox.wait_for(FatalError).message
    with pytest.raises(NotConnected):
        driver.revive()
    assert signal.getsignal(signal.SIGINT) is handler
    assert not master.of_type("TEARDOWN")


# --- ends


@pytest.mark.parametrize("message", ["Framework failed over", "Framework has been removed"])
def test_a_lost_framework_is_fatal_and_not_subscribed_again(connect: Connect, message: str) -> None:
    inbox = Inbox()
    with ScriptedMaster(then=Stream(events=(error(message),))) as master:
        driver = connect(master.address, inbox)
        assert inbox.wait_for(FatalError) == FatalError(message)
        with pytest.raises(NotConnected):
            driver.suppress()
        wait_until(
            "its thread has ended", lambda: not any("Process IO" in t.name for t in threading.enumerate())
        )
        assert [call.type for call in master.calls] == ["SUBSCRIBE"]
        driver.stop(teardown=False)
        assert inbox.events[-1] == FatalError(message)


def test_stop_leaves_tasks_running_unless_told(connect: Connect, master: ScriptedMaster) -> None:
    for teardown in (False, True):
        inbox = Inbox()
        driver = connect(master.address, inbox)
        inbox.wait_for(Registered)
        driver.stop(teardown=teardown)
        assert len(master.of_type("TEARDOWN")) == teardown
        with pytest.raises(NotConnected):
            driver.revive()
        assert not inbox.of(FatalError)


def test_a_teardown_that_cannot_be_delivered_is_an_error(connect: Connect) -> None:
    driver = connect("127.0.0.1:1", Inbox())
    with pytest.raises(NotConnected):
        driver.stop(teardown=True)  # and yet it ends: no thread is left


# --- redirects


def to(master: ScriptedMaster) -> Reply:
    return Reply(307, headers={"Location": f"//{master.address}/api/v1/scheduler"})


def test_the_leader_is_followed_and_left(connect: Connect) -> None:
    inbox = Inbox()
    with ScriptedMaster(then=Stream()) as home:
        with ScriptedMaster() as leader:
            home.answers.append(to(leader))
            driver = connect(home.address, inbox)
            assert inbox.wait_for(Registered).master_url == f"http://{leader.address}"
            driver.revive()
            leader.wait_for("REVIVE")
        assert inbox.wait_for(Registered, 2).master_url == f"http://{home.address}"
        driver.revive()
        home.wait_for("REVIVE")


def test_masters_that_name_each_other_are_asked_with_pauses(connect: Connect) -> None:
    with ScriptedMaster() as one, ScriptedMaster() as two:
        one.then, two.then = to(two), to(one)
        connect(one.address, Inbox())
        first, third = one.wait_for("SUBSCRIBE"), one.wait_for("SUBSCRIBE", 3)
        assert third.at - first.at >= 0.5 * QUICK.first_pause_s * (2 + 4 + 8 + 10)


def test_the_master_that_zookeeper_names_is_followed(connect: Connect, master: ScriptedMaster) -> None:
    with ScriptedMaster() as other:
        inbox = Inbox()
        driver = connect(master.address, inbox)
        inbox.wait_for(Registered)
        detected = json.dumps({"address": {"ip": "127.0.0.1", "port": other.port}})
        driver._driver.onNewMasterDetectedMessage(detected.encode())
        assert inbox.wait_for(Registered, 2).master_url == f"http://{other.address}"
        driver._driver.onNoMasterDetectedMessage()
        inbox.wait_for(Disconnected, 2)


# --- events


def test_events_become_nouns(connect: Connect, master: ScriptedMaster) -> None:
    inbox = Inbox()
    connect(master.address, inbox)
    inbox.wait_for(Registered)
    sent = [
        {"type": "RESCIND", "rescind": {"offer_id": {"value": "o1"}}},
        {"type": "FAILURE", "failure": AGENT},
        {"type": "FAILURE", "failure": {**AGENT, "executor_id": {"value": "e1"}, "status": 9}},
        {"type": "FAILURE", "failure": {**AGENT, "executor_id": {"value": "e2"}}},
        {"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": [{"id": {"value": "i"}}]}},
        {"type": "OF_ANOTHER_VERSION", "of_another_version": {}},
        UPDATE,
        offers(200, "é" * 2000),  # much more than one read
    ]
    for event in sent:
        master.send(event)
    got = inbox.wait_for(Offers)
    assert inbox.events[1:-1] == [
        pd.Rescinded("o1"),
        pd.AgentFailed("a1"),
        pd.ExecutorFailed("a1", "e1", 9),
        pd.ExecutorFailed("a1", "e2", -1),
        pd.Update(STATUS),
    ]
    assert got.offers == offers(200, "é" * 2000)["offers"]["offers"]
    assert len(master.of_type("SUBSCRIBE")) == 1
