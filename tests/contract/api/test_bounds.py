"""What one client may take of the server, and under which names it answers."""

import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http import bounds, door
from mesos_gpu.api.http.bounds import Crowd
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.settings import ApiSettings
from tests.conftest import wait_until
from tests.contract.rig import Rig, code_of, skip
from tests.raw import connect, rest_of

# --- time, bytes, connections


@pytest.mark.parametrize("said", [b"", b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-"])
def test_request_head_that_does_not_come_is_not_waited_for(rig: Rig, said: bytes) -> None:
    with connect(rig.server.port) as slow:
        slow.sendall(said)
        wait_until("it is connected", lambda: rig.server.connections)
        skip(rig.server, bounds.HEAD_S)
        assert b"408" in rest_of(slow)


def test_request_head_of_a_further_request_is_not_waited_for(rig: Rig) -> None:
    """A byte at a time, so that the pause between requests is none."""
    with connect(rig.server.port) as slow:
        slow.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = b""
        while not first.endswith(b"}"):
            first += slow.recv(65536)
        assert b"200 OK" in first
        slow.setblocking(False)
        answer = b""
        for byte in b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-Y: " + b"z" * 1000:
            slow.sendall(bytes([byte]))
            skip(rig.server, bounds.HEAD_S / 20)
            with contextlib.suppress(BlockingIOError):
                answer = slow.recv(65536)
                break
        assert b"408" in answer


def test_request_that_is_answered_late_is_not_slow(rig: Rig) -> None:
    job = rig.submit()
    with connect(rig.server.port) as patient:
        path = f"/v1/jobs/{job['id']}?after_version={job['version']}&timeout_s=60"
        patient.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        wait_until("it waits", lambda: rig.app.state.changes.waiting)
        skip(rig.server, 3 * bounds.HEAD_S)
        rig.call("DELETE", f"/v1/jobs/{job['id']}")
        assert b" 200 OK" in rest_of(patient)


def test_request_body_that_does_not_come_is_not_waited_for(rig: Rig) -> None:
    with connect(rig.server.port) as slow:
        slow.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 100\r\n\r\n")  # fmt: skip
        assert slow.recv(4096).startswith(b"HTTP/1.1 100 ")
        slow.sendall(b"{")
        skip(rig.server, door.BODY_S)
        answer = rest_of(slow)
    assert b"408" in answer
    assert f"did not come within {door.BODY_S:g} s".encode() in answer


def test_a_head_without_end_is_refused(rig: Rig) -> None:
    with connect(rig.server.port) as greedy, pytest.raises(OSError, match=r"Broken pipe|reset"):
        greedy.sendall(b"GET / HTTP/1.1\r\n" + b"X-Y: zzzzzzzzzz\r\n" * 10_000_000)


def test_connections_are_counted_and_come_free_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.server.stop()
    rig.server = Server(rig.app, listen("127.0.0.1", 0), crowd=Crowd(5))
    rig.url = rig.server.url
    held = [listening(rig) for _ in range(5)]
    assert requests.get(f"{rig.url}/v1/health", timeout=20).status_code == 503
    assert "more than 5 connections" in caplog.text
    held.pop().close()
    wait_until("one is free", lambda: requests.get(f"{rig.url}/v1/health", timeout=20).status_code == 200)
    for each in held:
        each.close()
    rig.close()


def listening(rig: Rig) -> socket.socket:
    """Hold a connection that is being answered."""
    connection = connect(rig.server.port)
    connection.sendall(b"GET /v2/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    assert b"200 OK" in connection.recv(65536)
    return connection


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /v1/health HTTP/1.1\r\nX-",
        b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_who_makes_the_server_wait_gives_way_to_who_comes(said: bytes) -> None:
    rig = Rig()
    rig.server.stop()
    rig.server = Server(rig.app, listen("127.0.0.1", 0), crowd=Crowd(5))
    rig.url, before = rig.server.url, REFUSED.read()[Reason.CONNECTIONS]
    held = []
    for _ in range(5):
        held.append(connect(rig.server.port))
        held[-1].sendall(said)
    for _ in range(3):
        assert requests.get(f"{rig.url}/v1/health", timeout=20).status_code == 200
    assert REFUSED.read()[Reason.CONNECTIONS] > before
    with contextlib.suppress(ConnectionResetError):
        rest_of(held[0])  # ends: the first is the first to go
    for each in held:
        each.close()
    rig.close()


CROWD = """
import os, resource, subprocess, sys, threading, time
import logging; logging.basicConfig(format="LOG %(message)s")
from tests.contract.rig import KEPT, Rig
rig = Rig()
rig.session.headers.update(KEPT)
assert rig.call("GET", "/v1/health").status_code == 200
highest = max(map(int, os.listdir("/proc/self/fd")))
crowd = subprocess.Popen([sys.executable, "-c", "import socket, sys\\nheld = [socket.create_connection(('127.0.0.1', "
    f"{rig.server.port})) for _ in range(60)]\\nprint('in', flush=True)\\nsys.stdin.read()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=())
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 12, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
crowd.stdout.readline()
time.sleep(3)  # asyncio tries again each second
assert rig.call("GET", "/v1/health").status_code == 200, "who is connected is served"
crowd.stdin.close(); crowd.wait()
deadline = time.monotonic() + 30
while True:
    try:
        rig.session.close()
        assert rig.call("GET", "/v1/health").status_code == 200
        break
    except Exception:
        assert time.monotonic() < deadline
        time.sleep(0.1)
rig.close()
"""


def test_without_descriptors_it_says_so_in_a_line_and_serves_on() -> None:
    """In a process of its own, whose limit is lowered while others connect."""
    done = subprocess.run(
        [sys.executable, "-c", CROWD], capture_output=True, text=True, timeout=100, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert 1 <= done.stderr.count("LOG connections cannot be taken: Too many open files") <= 2, done.stderr


def test_as_many_as_there_are_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    assert bounds.connections() == bounds.MOST_CONNECTIONS
    assert limits[-1] == (4096, 4096)
    limits.append((256, 256))
    assert bounds.connections() == 128


# --- names


@pytest.fixture
def open_rig() -> Iterator[Rig]:
    """Start a server that listens on every address."""
    rig = Rig()
    rig.server.stop()
    settings = ApiSettings("http://w", "0.1.0", host_names=("gpu.example.com",))
    rig.server = Server(create_app(rig.daemon, settings), listen("0.0.0.0", 0))
    rig.url = f"http://127.0.0.2:{rig.server.port}"
    yield rig
    rig.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 201),
        ("localhost", 201),
        ("evil.example", 403),
        ("gpu.example.com", 201),
        ("GPU.example.com.", 201),
        ("10.1.2.3", 403),
    ],
)
def test_a_name_that_is_not_this_host_s_is_refused(open_rig: Rig, host: str, status: int) -> None:
    """Ask as a page does whose own name was made to resolve to this address."""
    open_rig.url = f"http://127.0.0.1:{open_rig.server.port}"
    headers = {"Host": f"{host}:{open_rig.server.port}"}
    answer = open_rig.call("POST", "/v1/jobs", json={"command": "true"}, headers=headers)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert code_of(answer) == (403, "forbidden")
        assert f"--allowed-host {host}" in answer.json()["error"]["remedy"]


def test_it_is_not_open_to_all_without_a_word(tmp_path: Path) -> None:
    host = "0.0.0.0"
    command = [
        sys.executable,
        "-m",
        "mesos_gpu.scheduler",
        "--master",
        "127.0.0.1:1",
        "--port",
        "0",
        "--host",
        host,
    ]
    done = subprocess.run(
        [*command, "--state", str(tmp_path / "s" / "state")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 78, done.stderr
    assert "there is no authentication" in done.stderr
    assert "--insecure-no-authentication" in done.stderr
    assert not (tmp_path / "s").exists()


def test_its_log_says_where_it_listens(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mesos_gpu.scheduler", "--master", "127.0.0.1:1", "--port", "0"]
    more = ["--host", "0.0.0.0", "--insecure-no-authentication", "--state", str(tmp_path / "s" / "state")]
    with (tmp_path / "log").open("w") as log, subprocess.Popen([*command, *more], stderr=log) as process:
        try:
            open_to_all = "whoever reaches that address can do everything"
            said = wait_until(
                "it listens", lambda: open_to_all in (t := (tmp_path / "log").read_text()) and t, 60
            )
        finally:
            process.terminate()
    assert "every address of this host, port " in str(said)
    assert "127.0.0.1:0" not in str(said)
