"""TLS towards Mesos: the driver and its master, the reader of logs and an agent, an executor and its agent."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isolator.agent.agent_api import Connection, Settings
from isolator.agent.tls import AgentTls
from isolator.runs.environment import task_environment
from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.pymesos_driver import Disconnected, NotConnected, Offers, Registered
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.scheduler.options.mesos_tls import MesosTlsOptions
from tests.certificates import DAY, Authority, Made, context_of
from tests.conftest import wait_until
from tests.contract.abuse.agents import Reader
from tests.contract.api.test_api_logs import VIRTUAL, Agent
from tests.contract.test_pymesos_driver import FRAMEWORK, QUICK, offers
from tests.doubles.scripted_agent import scripted_agent
from tests.doubles.scripted_master import Inbox, Reply, ScriptedMaster, Stream


@contextmanager
def driver(address: str, inbox: Inbox, trust: Trust | None) -> Iterator[pd.PymesosDriver]:
    tls = client_context(trust) if trust else None
    made = pd.PymesosDriver(FRAMEWORK, address, inbox, timings=QUICK, tls=tls)
    made.start()
    try:
        yield made
    finally:
        made.stop(teardown=False)


# --- the master


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_driver_is_subscribed_and_calls(ca: Authority, version: ssl.TLSVersion) -> None:
    """Events of many records of TLS, which come in one piece and in many."""
    served = context_of(ca.server())
    served.minimum_version = served.maximum_version = version
    big = offers(50, "x" * 4000)
    with ScriptedMaster(Stream(events=(big,)), tls=served) as master:
        inbox = Inbox()
        with driver(master.address, inbox, Trust(ca.cert)) as made:
            assert inbox.wait_for(Registered).master_url == f"https://{master.address}"
            assert len(inbox.wait_for(Offers).offers) == 50
            for number in range(2, 12):
                master.send(offers(number, "y" * 20_000))
                assert len(inbox.wait_for(Offers, number).offers) == number
            for _ in range(3):
                made.revive()
            master.wait_for("REVIVE", 3)
            assert made._driver.get("/version") == {"version": "1.11.0"}
            made.decline(["o" * 100_000], refuse_s=1.0)  # a call of many records
            master.wait_for("DECLINE")
            master.drop()
            inbox.wait_for(Disconnected)
            inbox.wait_for(Registered, 2)
            made.revive()
            master.wait_for("REVIVE", 4)


def test_a_redirect_is_followed_and_its_name_verified(ca: Authority) -> None:
    leader_context = context_of(ca.server("leader", "localhost"))
    with ScriptedMaster(tls=leader_context) as leader:
        away = Reply(307, headers={"Location": f"//localhost:{leader.port}/api/v1/scheduler"})
        with ScriptedMaster(then=away, tls=context_of(ca.server())) as first:
            inbox = Inbox()
            with driver(first.address, inbox, Trust(ca.cert)) as made:
                assert inbox.wait_for(Registered).master_url == f"https://localhost:{leader.port}"
                made.revive()  # to the address of that name, which the certificate is not for
                leader.wait_for("REVIVE")


def test_a_master_that_is_not_believed_gets_nothing(
    ca: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "Other CA")
    cases: list[tuple[Made | None, str]] = [
        (other.server(), "unable to get local issuer certificate"),
        (ca.server("late", life=-DAY), "certificate has expired"),
        (ca.server("named", "master.example.com"), "IP address mismatch"),
        (None, "it does not use TLS (see --mesos-tls)"),
    ]
    for made, why in cases:
        caplog.clear()
        with ScriptedMaster(tls=context_of(made) if made else None) as master:
            inbox = Inbox()
            with driver(master.address, inbox, Trust(ca.cert)) as subscriber:
                wait_until(f"it says: {why}", partial(_says, caplog, why))
                with pytest.raises(NotConnected):
                    subscriber.revive()
            assert master.calls == []
            assert inbox.events == []


def test_a_master_that_asks_for_a_certificate_gets_one(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    own = ca.client("mesos_gpu")
    with ScriptedMaster(tls=context_of(ca.server(), ca.cert)) as master:
        inbox = Inbox()
        with driver(master.address, inbox, Trust(ca.cert)):
            wait_until("it is refused", lambda: "trying again" in caplog.text)
            assert inbox.events == []
        with driver(master.address, inbox, Trust(ca.cert, own.cert, own.key)) as made:
            inbox.wait_for(Registered)
            made.revive()


def test_a_handshake_that_does_not_come_is_given_up(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        timings = pd.Timings(first_pause_s=0.02, answer_s=0.3)
        made = pd.PymesosDriver(
            FRAMEWORK,
            f"127.0.0.1:{silent.getsockname()[1]}",
            Inbox(),
            timings=timings,
            tls=client_context(Trust(ca.cert)),
        )
        made.start()
        try:
            wait_until("it tries again", lambda: "no data for 0.3 s" in caplog.text)
        finally:
            made.stop(teardown=False)


def test_mesos_tls_options_are_heeded(ca: Authority) -> None:
    assert MesosTlsOptions().context("m:5050") is None
    assert MesosTlsOptions(mesos_tls=True, mesos_cacert=ca.cert).context("zk://a/mesos") is not None
    assert MesosTlsOptions(mesos_cacert=ca.cert).context("https://m:5050") is not None
    with pytest.raises(BadConfiguration, match="without --mesos-tls"):
        MesosTlsOptions(mesos_cacert=ca.cert).context("m:5050")
    context = client_context(Trust(ca.cert))
    for address, tls in (("http://m:5050", context), ("https://m:5050", None)):
        with pytest.raises(BadConfiguration, match="the scheduler uses"):
            pd.PymesosDriver(FRAMEWORK, address, Inbox(), tls=tls)


def _says(caplog: pytest.LogCaptureFixture, why: str) -> bool:
    return why in caplog.text


# --- the agent, read by the scheduler


@contextmanager
def agent_of(made: Made) -> Iterator[Agent]:
    agent = Agent()
    agent.server.socket = context_of(made).wrap_socket(agent.server.socket, server_side=True)
    try:
        yield agent
    finally:
        agent.close()


def task_at(agent: Agent, hostname: str = "h1") -> Task:
    """A task as a master of 1.11 tells of it: it says http whatever the agent speaks."""
    return Task(
        TaskId("j.1"), AgentId("S0"), "e1", JobId("j"), TaskState.RUNNING, 0.0, hostname=hostname,
        agent_url=agent.url,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_logs_are_read_from_an_agent_by_its_address_or_its_name(ca: Authority, name: str) -> None:
    with agent_of(ca.server("agent", name)) as agent:
        reader = Reader(client_context(Trust(ca.cert)))
        agent.files[f"{VIRTUAL}/stdout"] = b"hello"
        for _ in range(2):
            assert reader.read(task_at(agent, "localhost"), "fw", "stdout", 0, 100).data == "hello"


def test_an_agent_that_is_not_believed_is_not_read(ca: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "Other CA")
    for made, why in (
        (other.server(), "unable to get local issuer"),
        (ca.server("late", life=-DAY), "expired"),
        (ca.server("named", "agent.example.com"), "mismatch"),
    ):
        with agent_of(made) as agent:
            reader = Reader(client_context(Trust(ca.cert)))
            agent.files[f"{VIRTUAL}/stdout"] = b"hello"
            with pytest.raises(Unavailable, match=why) as caught:
                reader.read(task_at(agent, "localhost"), "fw", "stdout", 0, 100)
            assert "--mesos-cacert" in caught.value.remedy


@pytest.mark.parametrize("orderly", [True, False])
def test_error_says_that_the_agent_speaks_no_tls_whichever_way_it_ends_the_handshake(
    ca: Authority, orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether OpenSSL takes the end for an orderly one depends on its version."""

    def failing(_: ssl.SSLSocket) -> None:
        ended = ssl.SSLZeroReturnError if orderly else ssl.SSLEOFError
        raise ended(1, "TLS/SSL connection has been closed (EOF)")

    with agent_of(ca.server("agent")) as agent:
        monkeypatch.setattr(client_context(Trust(ca.cert)).sslsocket_class, "do_handshake", failing)
        with pytest.raises(Unavailable, match="ended the handshake, as a server without TLS does"):
            Reader(client_context(Trust(ca.cert))).read(task_at(agent, "localhost"), "fw", "stdout", 0, 100)


# --- the agent, from its executors

IDS = {"MESOS_FRAMEWORK_ID": "fw", "MESOS_EXECUTOR_ID": "e1"}


class Launched:
    """Handler that ends its connection at the first task."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.connection: Connection | None = None

    def launch(self, task: Any) -> None:
        self.tasks.append(task)
        assert self.connection is not None
        self.connection.update(task["task_id"]["value"], "TASK_FINISHED", message="x" * 100_000)

    def acknowledged(self, task_id: str, state: str) -> None:
        assert self.connection is not None
        self.connection.finish()

    def kill(self, task_id: str, grace_s: float | None) -> None: ...
    def shutdown(self) -> None: ...
    def message(self, data: bytes) -> None: ...


@pytest.mark.parametrize(
    "variables",
    [
        {"MESOS_GPU_AGENT_TLS": "on", "MESOS_GPU_AGENT_CACERT": "CA"},
        {"LIBPROCESS_SSL_ENABLED": "1", "LIBPROCESS_SSL_CA_FILE": "CA"},
        {"LIBPROCESS_SSL_ENABLED": "true", "MESOS_GPU_AGENT_CACERT": "CA"},
    ],
)
def test_an_executor_lives_over_tls(ca: Authority, variables: dict[str, str]) -> None:
    env = {name: str(ca.cert) if value == "CA" else value for name, value in variables.items()}
    with scripted_agent(context_of(ca.server())) as agent:
        handler = Launched()
        settings = Settings.from_environment({**IDS, **env, "MESOS_AGENT_ENDPOINT": agent.endpoint})
        handler.connection = Connection(settings, handler)
        agent.send({"type": "LAUNCH", "launch": {"task": {"task_id": {"value": "t"}, "data": "x" * 100_000}}})
        assert handler.connection.run() == 0
        assert [update["state"] for update in agent.updates] == ["TASK_FINISHED"]


def test_an_agent_s_certificate_may_have_the_host_s_name_or_one_that_is_told(ca: Authority) -> None:
    for name, told in ((socket.gethostname(), ""), ("agent.example.com", "agent.example.com")):
        with scripted_agent(context_of(ca.server("agent", name))) as agent:
            host, _, port = agent.endpoint.rpartition(":")
            AgentTls(str(ca.cert), name=told).connect(host, int(port), 30).close()
            with pytest.raises(OSError, match="mismatch"):
                AgentTls(str(ca.cert), name="other").connect(host, int(port), 30)


def test_an_executor_speaks_to_nobody_else(
    ca: Authority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither to an impostor, nor in plain HTTP, nor with a file that is not there."""
    (tmp_path / "other").mkdir()
    impostor = Authority(tmp_path / "other", "Other CA").server()
    for served, cacert, why in (
        (context_of(impostor), ca.cert, "is not believed: unable to get local issuer"),
        (None, ca.cert, "WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"),
        (None, tmp_path / "none", "No such file"),
    ):
        with scripted_agent(served) as agent:
            host, _, port = agent.endpoint.rpartition(":")
            with pytest.raises(OSError, match=why):
                AgentTls(str(cacert)).connect(host, int(port), 30)
            assert agent.subscribes == []


@pytest.mark.parametrize(
    ("env", "on"),
    [
        ({}, False),
        ({"LIBPROCESS_SSL_ENABLED": "false"}, False),
        ({"LIBPROCESS_SSL_ENABLED": "0"}, False),
        ({"MESOS_GPU_AGENT_TLS": "off", "LIBPROCESS_SSL_ENABLED": "1"}, False),
        ({"MESOS_GPU_AGENT_TLS": "on", "LIBPROCESS_SSL_ENABLED": "0"}, True),
        ({"LIBPROCESS_SSL_ENABLED": "something"}, True),  # what is not understood is not read as no
    ],
)
def test_mesos_tls_of_an_executor_follows_its_environment(env: dict[str, str], on: bool) -> None:
    assert (AgentTls.from_environment(env) is not None) is on


def test_tasks_do_not_see_what_their_executor_shows_its_agent() -> None:
    own = {f"MESOS_GPU_AGENT_{name}": "x" for name in ("TLS", "CACERT", "CERT", "KEY", "NAME")}
    seen = task_environment({**own, "MESOS_SANDBOX": "/s"}, "t", Assignment("j", 1), {})
    assert not own.keys() & seen.keys()
