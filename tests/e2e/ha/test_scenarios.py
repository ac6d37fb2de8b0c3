"""Scenarios of Marathon's suite of Jepsen: apps are scaled and destroyed, and the leader abdicates, under faults."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from mesos_gpu.errors import Unavailable
from mesos_gpu.local.stack import SchedulerProcess, Stack
from mesos_gpu.scheduler.ha.part import DEPOSED
from tests.conftest import wait_until
from tests.e2e.ha.test_switch import other_than
from tests.e2e.ha.test_switch import pytestmark as pytestmark

HELD_S: Final = 2.0  # for so long what was reached stays
LIVE: Final = ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")


def ask(one: SchedulerProcess, verb: str, path: str, body: object = None) -> Any:
    """The JSON of an answer that is a success."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)) as connection:
        sent = None if body is None else json.dumps(body)
        connection.request(verb, path, sent, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        assert response.status < 300, (response.status, data)
        return json.loads(data)


def tasks_of(stack: Stack, app: str) -> list[str]:
    """The tasks of an app that have not ended, as the master says."""
    frameworks = stack.cluster.await_leader().state()["frameworks"]
    prefix = app.strip("/")
    tasks = [task for one in frameworks for task in one["tasks"] if task["name"].startswith(prefix)]
    return [task["id"] for task in tasks if task["state"] in LIVE]


def counts(stack: Stack, app: str) -> tuple[int, int]:
    """Return the numbers of tasks of an app that the leader and the master have."""
    tasks = ask(stack.await_leader(), "GET", f"/v2/apps{app}/tasks")["tasks"]
    return len(tasks), len(tasks_of(stack, app))


def runs(stack: Stack, app: str, count: int) -> None:
    """Wait until the leader, and the master, have so many tasks of an app."""
    wait_until(f"{app} has {count} tasks", lambda: counts(stack, app) == (count, count), 60)


def stays(stack: Stack, app: str, count: int) -> None:
    """Wait for so many tasks, and see that neither has more or fewer for some time."""
    runs(stack, app, count)
    until = time.monotonic() + HELD_S
    while time.monotonic() < until:
        assert counts(stack, app) == (count, count)
        time.sleep(0.25)


@contextlib.contextmanager
def never_more(stack: Stack, app: str, count: int) -> Iterator[None]:
    """Assert that the master has at no moment more tasks of an app, whichever scheduler leads."""
    seen, done = list[int](), threading.Event()

    def look() -> None:
        while not done.wait(0.25):
            # There is no master now.
            with contextlib.suppress(OSError, http.client.HTTPException, Unavailable):
                seen.append(len(tasks_of(stack, app)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert seen, "nobody has looked"
    assert max(seen) <= count, seen


def test_scaling_of_an_app_goes_on_when_the_leader_is_killed(stack: Stack) -> None:
    first = stack.await_leader()
    ask(
        first,
        "POST",
        "/v2/apps",
        {"id": "/scaled", "cmd": "sleep 600", "instances": 1, "cpus": 0.1, "mem": 32},
    )
    runs(stack, "/scaled", 1)
    wait_until("it is deployed", lambda: not ask(first, "GET", "/v2/deployments"), 60)
    with never_more(stack, "/scaled", 6):
        ask(first, "PUT", "/v2/apps/scaled", {"instances": 6})
        first.kill()
        other_than(stack, first)
        stays(stack, "/scaled", 6)


def test_deletion_of_an_app_goes_on_when_the_leader_is_killed(stack: Stack) -> None:
    first = stack.await_leader()
    app = {"id": "/gone", "cmd": "sleep 600", "instances": 3, "cpus": 0.1, "mem": 32}
    ask(first, "POST", "/v2/apps", app)
    runs(stack, "/gone", 3)
    ask(first, "DELETE", "/v2/apps/gone")
    first.kill()
    second = other_than(stack, first)

    def is_gone() -> bool:
        apps = [each["id"] for each in ask(second, "GET", "/v2/apps")["apps"]]
        return "/gone" not in apps and not tasks_of(stack, "/gone")

    wait_until("nothing of it is left", is_gone, 60)
    with never_more(stack, "/gone", 0):
        time.sleep(HELD_S)
    assert is_gone()


def test_abdication_while_the_master_is_killed_loses_no_app_and_no_task(stack: Stack) -> None:
    """The next leader finds no master, and then one that has just started and does not know all agents."""
    first = stack.await_leader()
    app = {"id": "/kept", "cmd": "sleep 600", "instances": 3, "cpus": 0.1, "mem": 32}
    ask(first, "POST", "/v2/apps", app)
    runs(stack, "/kept", 3)
    before = {each["id"] for each in ask(first, "GET", "/v2/apps/kept/tasks")["tasks"]}
    assert set(tasks_of(stack, "/kept")) == before
    [standby] = stack.standbys()
    with never_more(stack, "/kept", 3):
        ask(standby, "DELETE", "/v2/leader")  # whom it is asked of does not matter
        stack.cluster.master.kill()
        wait_until("the first has ended", lambda: not first.running)
        assert first.exit_code == DEPOSED
        wait_until("the standby leads", lambda: standby.get("/v1/leader")["leads"])
        stack.cluster.master.start().wait()
        assert other_than(stack, first) is standby
        for agent in stack.cluster.agents:
            agent.wait()
        stays(stack, "/kept", 3)
    after = {each["id"] for each in ask(standby, "GET", "/v2/apps/kept/tasks")["tasks"]}
    assert after == before == set(tasks_of(stack, "/kept"))
