"""Two schedulers of one cluster: the leader is killed, paused or asked to go, and the other goes on with its work."""

import base64
import contextlib
import http.client
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.code.send import upload
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import SchedulerProcess, Stack
from mesos_gpu.scheduler.ha.part import DEPOSED
from tests.conftest import wait_until
from tests.contract.events.receiver import Receiver, told
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.starts.needs import ZOOKEEPER

SWITCH_S = 10.0  # that a switch may take where nothing else runs
pytestmark = [
    pytest.mark.cluster,
    ZOOKEEPER,
]


def other_than(stack: Stack, one: SchedulerProcess) -> SchedulerProcess:
    """The scheduler that leads in its place, as soon as it does."""

    def another() -> SchedulerProcess | None:
        leader = stack.leader()
        return leader if leader is not one else None

    return poll("another leads", another, 60)


def framework_of(stack: Stack) -> list[str]:
    """The ids of the frameworks that the master has connected."""
    frameworks = stack.cluster.await_leader().state()["frameworks"]
    return [each["id"] for each in frameworks if each["connected"]]


def command_line(urls: str, *words: str) -> "subprocess.Popen[str]":
    """`mesos-gpu` of its own process, which knows all schedulers by its environment."""
    environment = {**os.environ, "MESOS_GPU_URL": urls}
    command = [sys.executable, "-m", "mesos_gpu", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def is_connected(process: "subprocess.Popen[str]", scheduler: SchedulerProcess) -> bool:
    assert process.poll() is None, process.communicate()
    connections = psutil.Process(process.pid).net_connections("tcp")
    return any(each.raddr[1:] == (scheduler.port,) for each in connections)  # () of one that listens


def read_jobs(
    scheduler: SchedulerProcess, headers: Mapping[str, str], sent: threading.Semaphore
) -> tuple[str, bytes] | None:
    """Ask for jobs, and release `sent` once the kernel has the request; return age and body of a 200, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", scheduler.port, timeout=20)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/v1/jobs", headers=dict(headers))
            sent.release()
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        return (response.headers.get("Age", "0"), body) if response.status == 200 else None


def test_switch_after_a_kill_goes_on_with_the_tasks_of_the_leader(stack: Stack) -> None:
    first = stack.await_leader()
    [framework] = framework_of(stack)
    with Client(first.url) as client:
        runs = submit(client, "sleep 12", gpus=1)
        wait_until("it runs", lambda: client.job(runs["id"])["state"] == "running")
        waits = submit(client, "true", gpus=4)
    both = ",".join(each.url for each in (first, *stack.standbys()))
    follows = command_line(both, "wait", runs["id"])
    wait_until("it has asked the one that leads", lambda: is_connected(follows, first))
    first.kill()
    began = time.monotonic()
    second = other_than(stack, first)
    took_s = time.monotonic() - began
    assert framework_of(stack) == [framework]
    with Client(second.url) as client:
        for job in (runs, waits):
            ended = end_of(client, job)
            assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    said, _ = follows.communicate(timeout=60)
    assert (follows.returncode, runs["id"] in said) == (0, True), said
    anew = command_line(both, "run", "--", "echo", "by the other")
    said, _ = anew.communicate(timeout=60)
    assert (anew.returncode, "by the other" in said) == (0, True), "nobody answers at the first address now"
    print(f"\nanother led, and was connected, after {took_s:.1f} s")
    assert took_s < 3 * SWITCH_S  # on a machine that is busy, or three times slower


def test_switch_keeps_code_that_was_uploaded_to_the_killed_leader(stack: Stack, tmp_path: Path) -> None:
    first = stack.await_leader()
    [standby] = stack.standbys()
    (tmp_path / "said.txt").write_text("it came along\n")
    with Client(first.url) as client:
        blocks = submit(client, "sleep 600", gpus=4)
        wait_until("it runs", lambda: client.job(blocks["id"])["state"] == "running")
        waits = submit(client, "cat said.txt", gpus=4, upload=upload(client, tmp_path))
    archives = standby.directory / "uploads"
    wait_until("the standby has the code", lambda: any(each.is_file() for each in archives.rglob("*")), 30)
    first.kill()
    assert other_than(stack, first) is standby
    with Client(standby.url) as client:
        client.kill(blocks["id"])
        assert end_of(client, waits)["state"] == "finished"
        assert output_of(client, waits) == "it came along\n"


def test_switch_delivers_to_webhooks_what_the_killed_leader_had_not(stack: Stack) -> None:
    first = stack.await_leader()
    with Receiver() as receiver, Client(first.url) as client:
        hook = {"url": f"{receiver.url}/ops", "kinds": ["finished"]}
        made = client.call("PUT", "/v1/webhooks/ops", dict[str, Any], body=hook)
        secret = base64.b64decode(made["secret"].removeprefix("whsec_"))
        taken = submit(client, "true", gpus=1)
        wait_until("it is told", lambda: ("finished", taken["id"]) in told(receiver, "/ops"), 60)
        receiver.status = 503
        waits = submit(client, "true", gpus=1)
        wait_until("it was tried", lambda: ("finished", waits["id"]) in told(receiver, "/ops"), 60)
        first.kill()
        second = other_than(stack, first)
        before, receiver.status = len(receiver.of("/ops")), 204
        wait_until("the next leader tells it", lambda: len(receiver.of("/ops")) > before, 60)
        with Client(second.url) as other:
            last = submit(other, "true", gpus=1)
            wait_until("it goes on", lambda: ("finished", last["id"]) in told(receiver, "/ops"), 60)
            assert told(receiver, "/ops") == [("finished", job["id"]) for job in (taken, waits, last)]
            assert all(each.is_signed(secret) for each in receiver.of("/ops"))
            other.call("DELETE", "/v1/webhooks/ops", dict[str, object])


def test_switch_by_abdication_makes_the_leader_a_standby(stack: Stack) -> None:
    first = stack.await_leader()
    connection = http.client.HTTPConnection("127.0.0.1", first.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("DELETE", "/v2/leader")
        response = connection.getresponse()
        assert (response.status, b"abdicated" in response.read()) == (200, True)
    second = other_than(stack, first)
    wait_until("the first has ended", lambda: not first.running)
    assert first.exit_code == DEPOSED
    first.start().wait()
    assert stack.leader() is second
    assert first.get("/v2/leader") == {"leader": f"127.0.0.1:{second.port}"}


def launches_of(stack: Stack, job: Job) -> list[str]:
    """The ids of all tasks of a job that the master was ever asked to launch, those that have ended too."""
    frameworks = stack.cluster.await_leader().state()["frameworks"]
    kinds = ("tasks", "completed_tasks", "unreachable_tasks")
    ids = [task["id"] for each in frameworks for kind in kinds for task in each[kind]]
    return [id for id in ids if id.startswith(job["id"])]


def offered_gpus(stack: Stack) -> float:
    """Return the number of GPUs in offers that are neither accepted nor declined."""
    frameworks = stack.cluster.await_leader().state()["frameworks"]
    return sum(float(each["offered_resources"]["gpus"]) for each in frameworks)


def rows_of(scheduler: SchedulerProcess, directory: Path) -> dict[str, list[Any]]:
    """Return the rows of its own state by table, from a copy: it may be stopped while it holds a lock."""
    for path in scheduler.directory.glob("state.sqlite*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, directory)
    with contextlib.closing(sqlite3.connect(directory / "state.sqlite")) as copy:
        tables = [name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: copy.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


@pytest.fixture
def paused(stack: Stack) -> Iterator[list[SchedulerProcess]]:
    """Schedulers that a test stopped by SIGSTOP; they go on after it, whatever became of it."""
    stopped: list[SchedulerProcess] = []
    yield stopped
    for each in stopped:
        each.send(signal.SIGCONT)


def test_switch_ends_a_paused_leader_that_wakes_and_it_launches_nothing(
    stack: Stack, paused: list[SchedulerProcess], open_directory: Path, tmp_path: Path
) -> None:
    """A job waits, and what it needs is offered to the leader while that cannot move: when it wakes, the offer is the
    first that it reads."""
    first = stack.await_leader()
    [second] = stack.standbys()
    gate, said = open_directory / "gate", open_directory / "said"
    said.touch()
    said.chmod(0o666)
    with Client(first.url) as client:
        runs = submit(client, "sleep 600", gpus=3)
        blocks = submit(client, f"until [ -e {gate} ]; do sleep 0.2; done", gpus=1)
        for job in (runs, blocks):
            wait_until("it runs", lambda id=job["id"]: client.job(id)["state"] == "running")  # type: ignore[misc]
        waits = submit(client, f"echo $MESOS_TASK_ID >> {said}", gpus=1)
        assert client.job(waits["id"])["state"] == "pending"
    wait_until("the standby has all", lambda: batch(second) == batch(first))
    for each in (second, first):  # the other one, too: it would be elected before the card is offered
        each.send(signal.SIGSTOP)
        paused.append(each)
    [framework] = framework_of(stack)
    gate.touch()
    wait_until("a card is offered to who cannot take it", lambda: offered_gpus(stack) == 1)
    assert launches_of(stack, waits) == []
    had = rows_of(first, tmp_path)
    second.send(signal.SIGCONT)
    assert other_than(stack, first) is second
    with Client(second.url) as client:
        assert end_of(client, waits, 60)["state"] == "finished"
        with ThreadPoolExecutor(2) as readers:  # what is asked while it sleeps is read when it wakes
            sent = threading.Semaphore(0)
            kinds: tuple[dict[str, str], ...] = ({}, {"Cache-Control": "no-cache"})
            asked = [readers.submit(read_jobs, first, headers, sent) for headers in kinds]
            assert all(sent.acquire(timeout=60) for _ in kinds)
            first.send(signal.SIGCONT)
        old, latest = (each.result() for each in asked)
        assert latest is None, "the job whose end it does not know of is not said to wait"
        assert old is None or int(old[0]) > 0
        wait_until("the first has ended", lambda: not first.running, 20)
        assert first.exit_code == DEPOSED, first.tail()
        assert rows_of(first, tmp_path) == had, "it wrote after another led"
        [task] = client.tasks(waits["id"])
        assert launches_of(stack, waits) == said.read_text().split() == [task["id"]]
        assert [len(client.tasks(job["id"])) for job in (runs, blocks)] == [1, 1]
        assert end_of(client, submit(client, "true", gpus=1), 60)["state"] == "finished"
        assert second.get("/v1/leader")["leads"], "what the first wrote would have deposed it"
        client.kill(runs["id"])
        assert end_of(client, runs, 60)["state"] == "killed"
    assert framework_of(stack) == [framework]


def batch(scheduler: SchedulerProcess) -> int:
    """The number of the last batch of saves that its own state has."""
    return int(scheduler.get("/v1/leader")["batch"])
