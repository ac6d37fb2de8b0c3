"""A scheduler that stands by, asked what a leader is asked: what it answers itself, what it sends on, and what not."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.e2e.ha.test_switch import other_than
from tests.e2e.ha.test_switch import pytestmark as pytestmark
from tests.e2e.test_jobs import end_of, submit
from tests.web.browser import NEEDED, Browser

LEADER = "mesos-gpu-standby"


def ask(
    one: SchedulerProcess, verb: str, path: str, body: object = None, **headers: str
) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers by names in lower case, and the JSON of an answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)) as connection:
        sent = None if body is None else json.dumps(body)
        connection.request(verb, path, sent, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        data = response.read()
        got = {name.lower(): value for name, value in response.getheaders()}
        return (
            response.status,
            got,
            json.loads(data) if data and "json" in got.get("content-type", "") else data,
        )


def test_standby_answers_reads_with_their_age_and_the_leader(
    leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    with Client(leader.url) as client:
        job = end_of(client, submit(client, "true"))

    def has_it() -> bool:
        status, headers, body = ask(standby, "GET", f"/v1/jobs/{job['id']}")
        return status == 200 and body["state"] == "finished" and "age" in headers

    # After a change that this standby sent on, it answers itself only once its copy is younger than that.
    wait_until("the standby has it", has_it, 10)
    for path in (f"/v1/jobs/{job['id']}", f"/v1/jobs/{job['id']}/tasks", "/v1/jobs", "/v2/apps", "/v2/groups",
                 "/v1/services", "/v1/queues", "/v1/tokens", "/v1/usage", "/v1/events"):  # fmt: skip
        status, headers, _ = ask(standby, "GET", path)
        assert (status, headers[LEADER]) == (200, leader.url), path
        assert 0 <= int(headers["age"]) <= 30, path
        if path not in ("/v1/usage", "/v1/jobs"):
            wait_until(f"{path} is the same", partial(are_same, standby, leader, path), 20)


def are_same(one: SchedulerProcess, other: SchedulerProcess, path: str) -> bool:
    """Whether both answer alike."""
    return bool(ask(one, "GET", path)[2] == ask(other, "GET", path)[2])


def test_standby_sends_on_reads_that_the_leader_alone_can_answer(
    leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    for path in ("/v1/nodes", "/v1/gpus", "/v1/cards", "/v1/queue", "/v2/info", "/v1/plan/nothing"):
        here, there = ask(standby, "GET", path), ask(leader, "GET", path)
        assert (here[0], "age" in here[1], here[1][LEADER]) == (there[0], False, leader.url), path
    status, headers, _ = ask(standby, "GET", "/metrics", Accept="text/plain")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    status, headers, body = ask(standby, "HEAD", "/v1/nodes")
    assert (status, body) == (200, b"")


def test_standby_sends_on_changes_and_reads_them_at_once(standby: SchedulerProcess) -> None:
    with Client(standby.url) as client:
        job = submit(client, "echo from here; sleep 60", gpus=1)
        assert client.job(job["id"])["id"] == job["id"]  # who made it reads it, at once
        wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
        wait_until(
            "it has said so",
            lambda: "here" in client.logs(job["id"], stream="stdout", offset=0, length=100)["data"],
        )
        command = [
            sys.executable,
            "-m",
            "mesos_gpu",
            "--url",
            standby.url,
            "exec",
            job["id"],
            "--",
            "echo",
            "in it",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stdout) == (0, "in it\n"), ran
        client.kill(job["id"])
        assert end_of(client, job)["state"] == "killed"
        refused = ask(standby, "POST", "/v1/jobs", {"name": "-", "gpus": -1})
        assert (refused[0], refused[2]["error"]["code"]) == (422, "invalid")


def test_standby_refuses_forged_words_of_standbys_and_loops(
    leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    status, _, body = ask(leader, "GET", "/v1/nodes", **{"Mesos-Gpu-Standby-Word": "e30=.00"})
    assert (status, "standby" in body["error"]["message"]) == (403, True)
    status, headers, body = ask(standby, "GET", "/v1/nodes", **{"Mesos-Gpu-Standby-Word": "e30=.00"})
    assert (status, "was forwarded already" in body["error"]["message"]) == (503, True)
    assert int(headers["retry-after"]) > 0


def test_leader_is_named_by_leader_and_standby(
    stack: Stack, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    told = leader.get("/v1/leader")
    assert (told["leader"], told["leads"], told["age_s"], told["candidates"]) == (leader.url, True, None, 2)
    wait_until(
        "both have said how far they are",
        lambda: {each["url"] for each in leader.get("/v1/leader")["schedulers"]} == {leader.url, standby.url},
        20,
    )
    here = standby.get("/v1/leader")
    assert (here["leader"], here["here"], here["leads"]) == (leader.url, standby.url, False)
    assert here["age_s"] < 30


def test_event_streams_end_with_the_leader_and_none_is_left(
    stack: Stack, leader: SchedulerProcess, standby: SchedulerProcess
) -> None:
    """Directly, and through a standby that leads next."""
    streams = [listening(each) for each in (leader, standby)]
    try:
        wait_until("both listen", lambda: listeners(leader) >= 2, 20)
        leader.kill(signal.SIGTERM)
        for stream in streams:
            stream.settimeout(30)
            while stream.recv(4096):
                pass
    finally:
        for stream in streams:
            stream.close()
    assert other_than(stack, leader) is standby
    wait_until("none is left", lambda: listeners(standby) == 0, 20)
    leader.start().wait()


@NEEDED
@pytest.mark.long
def test_page_of_a_standby_shows_that_it_is_a_copy_until_that_one_leads(
    stack: Stack, leader: SchedulerProcess, standby: SchedulerProcess, tmp_path: Path
) -> None:
    with contextlib.closing(Browser(tmp_path)) as browser:
        page = browser.page(f"{standby.url}/#/jobs")
        page.when("This scheduler stands by", f"{leader.url} leads", "are shown from a copy")
        leader.kill()
        assert other_than(stack, leader) is standby
        hidden = "document.getElementById('standby').hidden"
        wait_until("the same page says that it leads", lambda: page.run(hidden), 60)
        with Client(standby.url) as client:
            job = end_of(client, submit(client, "true"))
        page.when(f"#/jobs/{job['id']}")
    leader.start().wait()


def listening(one: SchedulerProcess) -> socket.socket:
    """A connection that is sent events of apps."""
    stream = socket.create_connection(("127.0.0.1", one.port), timeout=20)
    stream.sendall(b"GET /v2/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
    assert b" 200 " in stream.recv(4096)
    return stream


def listeners(one: SchedulerProcess) -> int:
    """Return the number of connections that clients have to a scheduler."""
    connections = psutil.Process(one.pid).net_connections("tcp")
    return sum(each.laddr.port == one.port and each.status == psutil.CONN_ESTABLISHED for each in connections)
