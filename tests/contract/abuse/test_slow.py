"""Clients that are slow: with what they ask for, with what they are answered; and others beside them."""

import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from starlette.types import Receive, Scope, Send

from mesos_gpu.api.http import bounds, door
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.marathon import events
from tests.conftest import wait_until
from tests.contract.abuse.slow_clients import SlowClients, Slowness, flooded
from tests.contract.rig import Rig, skip
from tests.raw import connect, rest_of

MIB: Final = 1 << 20
LONGER_S: Final = 45.0  # than the time for a body
OTHER: Final = "127.0.0.2"  # an address of theirs
SERVER: Final = """
import sys
from tests.contract.rig import Rig
from tests.raw import connect, rest_of
rig = Rig()
for n in range(20):
    rig.submit()
    assert rig.call("PUT", f"/v2/apps/a{n}", json={"cmd": "x" * 100_000, "instances": 0}).ok
print(rig.server.port, flush=True)
sys.stdin.read()
rig.close()
"""


@contextmanager
def answering(rig: Rig, app: Callable[[Scope, Receive, Send], Any]) -> Iterator[None]:
    """Let all requests be answered so."""
    inner = rig.app.middleware_stack
    rig.app.middleware_stack = app
    try:
        yield
    finally:
        rig.app.middleware_stack = inner


def large(mib: int, ended: list[int]) -> Callable[[Scope, Receive, Send], Any]:
    """An answer of that size in pieces; `ended` gets how many of them were sent."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        sent = 0
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(mib):
                await send({"type": "http.response.body", "body": b"x" * MIB, "more_body": True})
                sent += 1
            await send({"type": "http.response.body"})
        finally:
            ended.append(sent)

    return app


def asking(rig: Rig, header: bytes = b"") -> socket.socket:
    client = socket.socket()
    client.settimeout(30)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", rig.server.port))
    client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n")
    return client


def read_all(client: socket.socket) -> None:
    while client.recv(MIB):
        pass


def is_cut_off(rig: Rig, before: int) -> bool:
    """Let the time pass in which a client must read something, and return whether one was cut off."""
    skip(rig.server, bounds.READ_S)
    return REFUSED.read()[Reason.SLOW_READER] > before


def test_reader_that_reads_nothing_is_cut_off_and_its_answer_forgotten(rig: Rig) -> None:
    before, ended = REFUSED.read()[Reason.SLOW_READER], list[int]()
    with answering(rig, large(64, ended)), asking(rig) as client:
        wait_until("it is cut off", lambda: is_cut_off(rig, before), 30)
        wait_until("its answer is over", lambda: ended, 30)
        with pytest.raises(ConnectionResetError):
            read_all(client)
    wait_until("its connection is gone", lambda: not rig.server.connections, 30)


def test_reader_that_does_not_read_a_complete_answer_is_cut_off(rig: Rig) -> None:
    before = REFUSED.read()[Reason.SLOW_READER]

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 16 * MIB})

    with answering(rig, app), asking(rig):
        wait_until("it is cut off", lambda: is_cut_off(rig, before), 30)


def test_reader_that_was_cut_off_between_two_answers_gets_no_more_writes(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio warns of each write to a connection that is gone."""
    before, ended = REFUSED.read()[Reason.SLOW_READER], list[int]()
    with answering(rig, large(64, ended)), asking(rig) as client:
        client.sendall(b"GET /more HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        wait_until("it is cut off", lambda: is_cut_off(rig, before), 30)
        wait_until("the answer is over", lambda: ended, 30)
    assert "socket.send() raised exception" not in caplog.text


def test_reader_that_reads_a_part_in_time_gets_all(rig: Rig) -> None:
    """Between two looks it reads more than half of what the kernel may keep for it."""
    before, got, part = REFUSED.read()[Reason.SLOW_READER], 0, 3 * MIB
    with answering(rig, large(16, [])), asking(rig, b"Connection: close\r\n") as client:
        skipped = 0
        while data := client.recv(MIB):
            got += len(data)
            if got > (skipped + 1) * part:
                skip(rig.server, 0.6 * bounds.READ_S)
                skipped += 1
    assert got > 16 * MIB
    assert skipped == 5
    assert REFUSED.read()[Reason.SLOW_READER] == before


def test_listener_that_does_not_read_events_is_cut_off(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 1 << 16)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(("127.0.0.1", rig.server.port))
        client.sendall(b"GET /v2/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        wait_until("it listens", lambda: rig.app.state.events.heard, 30)
        for n in range(200):
            app = {"id": "/large", "cmd": f"{n}" + "x" * 100_000, "instances": 0}
            answer = rig.call("PUT", "/v2/apps/large?force=true", json=app)
            assert answer.status_code in (200, 201), answer.text
            if not rig.app.state.events.heard:
                break
        assert not rig.app.state.events.heard
        before = REFUSED.read()[Reason.SLOW_READER]
        wait_until("it is cut off", lambda: is_cut_off(rig, before) or not rig.server.connections, 30)
        wait_until("its connection is gone", lambda: not rig.server.connections, 30)


def test_request_whose_body_does_not_come_whole_is_not_begun(rig: Rig) -> None:
    """Nor counted, authenticated and recorded: it costs its head alone."""
    begun: list[bytes] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        begun.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with answering(rig, app), connect(rig.server.port) as whole, connect(rig.server.port) as part:
        part.sendall(head % 4 + b"{")
        for piece in (head % 4, b"{", b"12", b"}"):
            whole.sendall(piece)
        assert whole.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert begun == [b"{12}"]
        whole.sendall(head % (1 << 20) + b"x" * (1 << 17))
        assert whole.recv(4096).startswith(b"HTTP/1.1 200 "), "too much to be kept until it is whole"
        skip(rig.server, door.BODY_S)
        assert rest_of(part).startswith(b"HTTP/1.1 408 ")
    assert len(begun) == 2


# --- others beside them


@contextmanager
def served() -> Iterator[int]:
    """A scheduler in a process of its own; its port."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def times_ms(port: int, count: int) -> list[float]:
    """How long another caller waits for each of so many answers, ordered."""
    took = []
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(count):
            began = time.perf_counter()
            assert session.get(f"http://127.0.0.1:{port}/v1/jobs", timeout=60).status_code == 200
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.01)
    return sorted(took)


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


@pytest.mark.parametrize("slowness", Slowness, ids=lambda each: each.name)
def test_callers_are_answered_beside_some_slow_clients(rig: Rig, slowness: Slowness) -> None:
    large = {"cmd": "x" * 100_000, "instances": 0}
    assert rig.call("PUT", "/v2/apps/large", json=large).ok
    with SlowClients(rig.server.port, 15, slowness, OTHER):
        assert len(times_ms(rig.server.port, 20)) == 20


@pytest.mark.long
@pytest.mark.parametrize("slowness", Slowness, ids=lambda each: each.name)
def test_others_are_answered_beside_slow_clients(slowness: Slowness) -> None:
    with served() as port, SlowClients(port, 200, slowness, OTHER):
        assert percentile(times_ms(port, 100), 50) < 1000  # three times slower machines, other tests beside


@pytest.mark.long
@pytest.mark.parametrize("slowness", Slowness, ids=lambda each: each.name)
def test_the_p99_of_another_caller_beside_500_slow_clients_that_come_again_at_once(
    slowness: Slowness, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as port:
        alone, kept, new = times_ms(port, 500), list[float](), list[float]()
        with flooded(port, 500, slowness, OTHER) as ended:
            deadline = time.monotonic() + LONGER_S
            while time.monotonic() < deadline:
                kept += times_ms(port, 20)
                new += [took for _ in range(5) for took in times_ms(port, 1)]
    kept.sort()
    new.sort()
    with capsys.disabled():
        print(
            f"\n500 clients, slow with {slowness.name.lower()}, {ended[0]} ended by the server; another caller"
        )
        for name, took in (("alone", alone), ("on one connection", kept), ("on new ones", new)):
            print(f"  {name:18}", ", ".join(f"p{n} {percentile(took, n):.1f} ms" for n in (50, 95, 99)))
    assert percentile(kept, 99) < 200
    assert percentile(new, 99) < 200


@pytest.mark.long
def test_twice_as_many_connections_as_there_may_be_shut_nobody_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with served() as port, SlowClients(port, 1000, Slowness.HEAD, OTHER):
        beside = times_ms(port, 1000)
    with capsys.disabled():
        print(f"\n1000 slow connections of another address: p99 {percentile(beside, 99):.1f} ms")
    assert percentile(beside, 99) < 1000
