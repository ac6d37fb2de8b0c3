"""Two schedulers on hosts of their own, with names and secrets: cut off from each other, and from ZooKeeper, while each
reaches Mesos.
"""

import contextlib
import http.client
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.reach.unix_http import BASE, UnixAdapter
from mesos_gpu.local.network import Host
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.e2e.ha.pairs import await_schedulers
from tests.e2e.ha.test_switch import framework_of, other_than
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.starts.needs import NAMESPACES, ZOOKEEPER

pytestmark = [
    pytest.mark.cluster,
    *NAMESPACES,
    ZOOKEEPER,
]
ZOOKEEPER_PORT = 2181  # beside the master, on one host


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(2)], schedulers=2, hosts=True, secure=True) as stack:
        yield stack


@pytest.fixture
def leader(stack: Stack) -> SchedulerProcess:
    """The scheduler that leads; the other one stands by, whatever a test before did to one."""
    return await_schedulers(stack)


@pytest.fixture
def standby(stack: Stack, leader: SchedulerProcess) -> SchedulerProcess:
    return next(each for each in stack.schedulers if each is not leader)


@pytest.fixture
def client(leader: SchedulerProcess) -> Iterator[Client]:
    """Asks the leader by its socket, as root of its host."""
    with Client(leader.reach) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield client


def host_of(one: SchedulerProcess) -> Host:
    assert one.host is not None
    return one.host


@contextlib.contextmanager
def cut_off(one: SchedulerProcess, peers: list[str], port: int | None = None) -> Iterator[None]:
    host_of(one).cut(peers, port=port)
    try:
        yield
    finally:
        host_of(one).heal()


def ask(one: SchedulerProcess, verb: str, path: str, body: object = None) -> tuple[int, int | None, Any]:
    """Status, age in seconds (None: it does not say) and document of an answer."""
    with requests.Session() as session:
        session.mount(BASE, UnixAdapter(Path(one.reach.removeprefix("unix:"))))
        answer = session.request(verb, BASE + path, json=body, timeout=60)
        age = answer.headers.get("Age")
        return answer.status_code, None if age is None else int(age), answer.json()


def leading(stack: Stack) -> list[str]:
    """The schedulers that say that they lead, and can write."""
    said = []
    for each in stack.schedulers:
        with contextlib.suppress(OSError, http.client.HTTPException):  # it ends, or has ended
            said.append(each.get("/v1/leader"))
    return [each["here"] for each in said if each["leads"] and not each["zookeeper"]]


def zookeepers_of(stack: Stack) -> list[str]:
    return [each.ip for each in stack.cluster.zookeepers]


def test_standby_that_does_not_reach_the_leader_reads_on_and_changes_nothing(
    stack: Stack, client: Client, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    """Both reach ZooKeeper and Mesos: no other scheduler is elected, and the log goes on to the standby."""
    [framework] = framework_of(stack)
    with cut_off(standby, [leader.ip]):
        status, _, refused = ask(standby, "POST", "/v1/jobs", {"name": "refused", "command": "true"})
        assert status == 503, refused
        assert (
            f"the leader {leader.url} does not answer: no connection within 3 s"
            in refused["error"]["message"]
        )
        assert "try again" in refused["error"]["remedy"]
        assert ask(standby, "GET", "/v1/nodes")[0] == 503, "the leader's alone to say"
        job = submit(client, "true", gpus=1)
        assert end_of(client, job)["state"] == "finished"

        def has_it() -> bool:
            status, age, told = ask(standby, "GET", f"/v1/jobs/{job['id']}")
            return status == 200 and age is not None and told["state"] == "finished"

        wait_until("the standby has read of it, by ZooKeeper", has_it, 20)
        assert leading(stack) == [leader.url]
        assert framework_of(stack) == [framework]
    wait_until("it sends on again", lambda: ask(standby, "GET", "/v1/nodes")[0] == 200, 20)
    status, _, made = ask(standby, "POST", "/v1/jobs", {"name": "taken", "command": "true", "gpus": 1})
    assert status == 201, made
    assert end_of(client, made)["state"] == "finished"
    assert [each["name"] for each in client.jobs() if each["name"] in ("refused", "taken")] == ["taken"]


def test_change_whose_answer_is_lost_is_reported_as_unknown_and_done_once(
    stack: Stack, client: Client, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    def is_connected() -> bool:
        words = ["ss", "-Htn", "state", "established", "dst", leader.ip, "dport", "=", str(leader.port)]
        return bool(subprocess.run(host_of(standby).inside(words), capture_output=True, check=True).stdout)

    with ThreadPoolExecutor(1) as pool:
        leader.send(signal.SIGSTOP)
        try:
            body = {"name": "unknown", "command": "true", "gpus": 1}
            asked = pool.submit(ask, standby, "POST", "/v1/jobs", body)
            wait_until("its kernel has taken the connection", is_connected, 3)
            host_of(leader).cut([standby.ip], "to")
        finally:
            leader.send(signal.SIGCONT)
        status, _, told = asked.result(60)
        host_of(leader).heal()
    assert status == 502, told
    assert "it is not known whether the request was carried out" in told["error"]["message"]
    assert "check whether the change was made before you repeat the request" in told["error"]["remedy"]
    wait_until(
        "it is done",
        lambda: [each["state"] for each in client.jobs() if each["name"] == "unknown"] == ["finished"],
    )


def test_standby_without_zookeeper_shows_its_age_and_never_leads(
    stack: Stack, client: Client, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    """Requests for the leader are sent on: the standby reaches it."""
    # Until its copy is younger than the last change that it sent on, it asks the leader.
    wait_until("it answers itself", lambda: ask(standby, "GET", "/v1/jobs")[1] is not None, 20)
    with cut_off(standby, zookeepers_of(stack), ZOOKEEPER_PORT):
        wait_until("it is no candidate any more", lambda: leader.get("/v1/leader")["candidates"] == 1, 30)
        wait_until("its copy is old", lambda: (ask(standby, "GET", "/v1/jobs")[1] or 0) >= 4, 30)
        status, _, made = ask(standby, "POST", "/v1/jobs", {"name": "cut", "command": "true", "gpus": 1})
        assert status == 201, made
        status, age, told = ask(standby, "GET", f"/v1/jobs/{made['id']}")
        assert (status, age, told["name"]) == (200, None, "cut"), "who has just changed something reads it"
        assert end_of(client, made)["state"] == "finished"
        assert leading(stack) == [leader.url]
    wait_until("it stands again", lambda: leader.get("/v1/leader")["candidates"] == 2, 30)
    wait_until(
        "it has what was written", lambda: ask(standby, "GET", f"/v1/jobs/{made['id']}")[1] is not None, 30
    )
    assert leading(stack) == [leader.url]


def test_leader_without_zookeeper_changes_nothing_and_another_leads(
    stack: Stack, client: Client, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    """Mesos' masters hear it still."""
    [framework] = framework_of(stack)
    runs = submit(client, "sleep 8; echo done", gpus=1)
    wait_until("it runs", lambda: client.job(runs["id"])["state"] == "running")
    with cut_off(leader, zookeepers_of(stack), ZOOKEEPER_PORT):
        status, _, refused = ask(leader, "POST", "/v1/jobs", {"name": "refused", "command": "true"})
        assert (status, "ZooKeeper" in refused["error"]["message"]) == (507, True), refused
        assert other_than(stack, leader) is standby
        wait_until("one leads at most", lambda: leading(stack) == [standby.url], 20)
        wait_until("the first has ended", lambda: not leader.running, 30)
        assert framework_of(stack) == [framework]
        with Client(standby.reach) as other:
            job = submit(other, "true", gpus=1)
            assert end_of(other, job)["state"] == "finished"
            ended = end_of(other, runs)
            said = (ended["state"], ended["attempts"], ended["launches"], output_of(other, ended))
            assert said == ("finished", 1, 1, "done\n")
