"""Scenarios of Marathon's suite of Jepsen: apps are scaled and destroyed, and the leader abdicates, under faults."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.e2e.ha.test_switch import other_than
from tests.e2e.ha.test_switch import pytestmark as pytestmark


@pytest.fixture(scope="module")
def running(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(4)], schedulers=2) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Stack:
    for each in running.schedulers:
        if not each.running:
            each.start()
        each.wait()
    with Client(running.await_leader().url) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 4)
    return running


def ask(one: SchedulerProcess, verb: str, path: str, body: object = None) -> Any:
    """The JSON of an answer that is a success."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)) as connection:
        sent = None if body is None else json.dumps(body)
        connection.request(verb, path, sent, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        assert response.status < 300, (response.status, data)
        return json.loads(data)


def runs(stack: Stack, app: str, count: int) -> None:
    """Wait until the leader, and the master, have so many tasks of an app, and no more."""

    def counts() -> tuple[int, int]:
        leader = stack.await_leader()
        tasks = ask(leader, "GET", f"/v2/apps{app}/tasks")["tasks"]
        frameworks = stack.cluster.await_leader().state()["frameworks"]
        prefix = app.strip("/") + "-"
        of_master = [
            each for one in frameworks for each in one["tasks"] if each["name"].startswith(prefix[:-1])
        ]
        return len(tasks), len(of_master)

    wait_until(f"{app} has {count} tasks", lambda: counts() == (count, count), 60)


def test_scale_an_app_while_the_leader_is_killed(stack: Stack) -> None:
    first = stack.await_leader()
    ask(
        first,
        "POST",
        "/v2/apps",
        {"id": "/scaled", "cmd": "sleep 600", "instances": 1, "cpus": 0.1, "mem": 32},
    )
    runs(stack, "/scaled", 1)
    wait_until("it is deployed", lambda: not ask(first, "GET", "/v2/deployments"), 60)
    ask(first, "PUT", "/v2/apps/scaled", {"instances": 6})
    first.kill()
    other_than(stack, first)
    runs(stack, "/scaled", 6)


def test_destroy_an_app_while_the_leader_is_killed(stack: Stack) -> None:
    first = stack.await_leader()
    app = {"id": "/gone", "cmd": "sleep 600", "instances": 3, "cpus": 0.1, "mem": 32}
    ask(first, "POST", "/v2/apps", app)
    runs(stack, "/gone", 3)
    ask(first, "DELETE", "/v2/apps/gone")
    first.kill()
    second = other_than(stack, first)

    def is_gone() -> bool:
        frameworks = stack.cluster.await_leader().state()["frameworks"]
        tasks = [each["name"] for one in frameworks for each in one["tasks"]]
        apps = [each["id"] for each in ask(second, "GET", "/v2/apps")["apps"]]
        return "/gone" not in apps and not [name for name in tasks if name.startswith("gone")]

    wait_until("nothing of it is left", is_gone, 60)


def test_leader_abdication_loses_no_app_and_no_task(stack: Stack) -> None:
    first = stack.await_leader()
    app = {"id": "/kept", "cmd": "sleep 600", "instances": 3, "cpus": 0.1, "mem": 32}
    ask(first, "POST", "/v2/apps", app)
    runs(stack, "/kept", 3)
    before = {each["id"] for each in ask(first, "GET", "/v2/apps/kept/tasks")["tasks"]}
    [standby] = stack.standbys()
    ask(standby, "DELETE", "/v2/leader")  # whom it is asked of does not matter
    assert other_than(stack, first) is standby
    after = {each["id"] for each in ask(standby, "GET", "/v2/apps/kept/tasks")["tasks"]}
    assert after == before
