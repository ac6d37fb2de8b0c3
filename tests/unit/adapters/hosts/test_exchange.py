"""Requests to hosts: refused responses, and common limits of time and bytes."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from mesos_gpu.adapters.hosts import exchange as module
from mesos_gpu.adapters.hosts.exchange import Bounds, Exchange, Host
from mesos_gpu.adapters.hosts.reply import MAX_HEAD, NotAnswered, Silent
from tests.answers import answering, closes, floods, hangs, says, slow_body

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
BOUNDS = Bounds(seconds=1.0, max_bytes=1 << 20)


def drips(connection: socket.socket, over: threading.Event) -> None:
    """Send single bytes of a header, without end."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not over.wait(0.05):
        connection.sendall(b"x")


@contextmanager
def exchange(port: int, bounds: Bounds = BOUNDS) -> Iterator[Exchange]:
    with closing(Exchange(Host("127.0.0.1", port), bounds)) as made:
        yield made


def why_not(behaviour: Callable[[socket.socket, threading.Event], None], most: int = 1000) -> str:
    with (
        answering(behaviour) as server,
        exchange(server.port) as asking,
        pytest.raises(NotAnswered) as refused,
    ):
        asking.get("/x", {}, max_bytes=most)
    return str(refused.value)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
            "redirect (302), which is not followed",
        ),
        (OK + b"Content-Encoding: gzip\r\n\r\nab", "encoded as 'gzip'"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "encoded as 'gzip, chunked'",
        ),
        (OK + b"\r\na", "ends the connection before the end"),
        (OK + b"\r\nabc", "does not answer by HTTP/1.1"),
        (b"hello", "does not answer by HTTP/1.1"),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "version 2.0"),
        (b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n", "status 0"),
        (b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "another protocol"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
            "does not answer by HTTP/1.1",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"1001\r\n\r\n", "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MAX_HEAD + 1), "bytes of headers"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
            "more than 1000 bytes",
        ),
        (b"", "ends the connection before the end"),
    ],
)
def test_host_exchange_refuses_unacceptable_answers(answer: bytes, why: str) -> None:
    assert why in why_not(says(answer))


@pytest.mark.parametrize("behaviour", [hangs, drips, slow_body])
def test_host_exchange_deadline_holds_for_the_whole_answer(
    behaviour: Callable[[socket.socket, threading.Event], None],
) -> None:
    """A host that ends by itself would give another reason."""
    assert why_not(behaviour, 1 << 21) == "does not answer within 1 s"


def test_host_exchange_counts_pauses_between_reads_against_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte is there when it is asked for: by this clock, reads take no time."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        assert sum(pauses) < 1.5, "the deadline has passed"
        time.sleep(seconds)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=pause))

    def a_byte_each_pause(connection: socket.socket, over: threading.Event) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not over.wait(0.0005):
            connection.sendall(b"x")

    assert why_not(a_byte_each_pause, 1 << 20) == "does not answer within 1 s"
    assert pauses


def test_host_exchange_refuses_chunks_of_a_byte_each() -> None:
    """Each chunk is a call into the interpreter, which would delay other requests."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000
    assert "chunks that are too small" in why_not(says(answer), 1 << 20)


def test_host_exchange_refuses_interim_answers_without_end() -> None:
    assert "interim answers" in why_not(floods)
    assert why_not(closes) == "ends the connection before the end of its answer"


def test_host_exchange_bounds_hold_for_all_requests_together() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000
    with answering(says(answer)) as server, exchange(server.port) as asking:
        assert asking.get("/", {}, max_bytes=400_000) == (200, b"x" * 400_000)
        assert asking.get("/", {}, max_bytes=400_000)[0] == 200
        with pytest.raises(NotAnswered, match="more than 1048576 bytes"):
            asking.get("/", {}, max_bytes=400_000)


def test_host_exchange_skips_interim_answers_and_reads_bodies_to_the_close() -> None:
    answer = b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nhello"
    with answering(says(answer)) as server, exchange(server.port) as asking:
        assert asking.get("/", {}, max_bytes=5) == (200, b"hello")


def test_cancelled_exchange_ends_at_once_and_sends_no_more() -> None:
    with answering(hangs) as server, exchange(server.port, Bounds(3600, 1000)) as asking:
        timer = threading.Timer(0.2, asking.cancel)
        timer.start()
        for _ in range(2):
            with pytest.raises(Silent, match="was cancelled"):
                asking.get("/", {}, max_bytes=1)
        timer.join()
