"""What one client may take of the server, and under which names it answers."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from resource import RLIMIT_NOFILE as NOFILE

import pytest
import requests

from mesos_gpu.api.app import create_app
from mesos_gpu.api.http import bounds, door
from mesos_gpu.api.http.bounds import ConnectionLimits
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.settings import ApiSettings
from tests.conftest import wait_until
from tests.contract.rig import KEPT, Rig, code_of, skip
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
    rig.server = Server(rig.app, listen("127.0.0.1", 0), crowd=ConnectionLimits(5))
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
def test_connection_that_the_server_waits_for_gives_way_to_a_new_one(said: bytes) -> None:
    rig = Rig()
    rig.server.stop()
    rig.server = Server(rig.app, listen("127.0.0.1", 0), crowd=ConnectionLimits(5))
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
import socket, sys
sys.stdin.readline()
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(60)]
print("all are connected", flush=True)
sys.stdin.read()
"""


def highest_descriptor() -> int:
    """Return the highest descriptor of this process."""
    return max(map(int, os.listdir("/proc/self/fd")))


@pytest.fixture
def no_gaps() -> Iterator[None]:
    """Let all descriptors below the highest be in use: a limit counts those."""
    highest, held = highest_descriptor(), list[int]()
    while not held or held[-1] < highest:
        held.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for each in held:
        os.close(each)


def takes_a_connection(rig: Rig) -> bool:
    """Return whether a new connection is served; there may be no descriptor for it, at either end."""
    try:
        with connect(rig.server.port) as client:
            client.settimeout(1.0)
            client.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return client.recv(4096).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


@pytest.mark.usefixtures("no_gaps")
def test_server_without_descriptors_says_so_once_and_serves_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "_said", {})
    rig.session.headers.update(KEPT)
    assert rig.call("GET", "/v1/health").status_code == 200
    words, limits = [sys.executable, "-c", CROWD, str(rig.server.port)], resource.getrlimit(NOFILE)
    said = "cannot accept connections: Too many open files"
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        resource.setrlimit(NOFILE, (highest_descriptor() + 13, limits[1]))
        try:
            print("go", file=crowd.stdin, flush=True)
            assert crowd.stdout.readline()
            wait_until("it is said", lambda: said in caplog.text)
            for _ in range(3):
                skip(rig.server, 1.0)  # asyncio tries again each second
            assert rig.call("GET", "/v1/health").status_code == 200, "the connection is served"
            crowd.stdin.close()
            assert crowd.wait(60) == 0
            skip(rig.server, 1.0)
            wait_until("it takes a connection", lambda: takes_a_connection(rig))
        finally:
            resource.setrlimit(NOFILE, limits)
    assert caplog.text.count(said) == 1
    assert "Traceback" not in caplog.text


def test_connection_limit_follows_the_limit_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    assert bounds.connections() == bounds.MAX_CONNECTIONS
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
