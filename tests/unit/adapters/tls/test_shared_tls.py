"""A TLS connection that one thread reads while another one writes."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from mesos_gpu.adapters.tls.shared import SharedTls
from tests.tls_ends import Calls, ServerEnd, tls_ends

MUCH = bytes(range(256)) * (1 << 14)
begin = ThreadPoolExecutor(2).submit  # begins work on a thread of its own


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[SharedTls, ServerEnd]]:
    with tls_ends(tmp_path) as (client, server):
        shared = SharedTls(client)
        yield shared, server
        shared.close()


def all_of(read: Callable[[], bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += read()
    return data


def test_shared_connection_is_written_to_while_a_read_waits(
    ends: tuple[SharedTls, ServerEnd], calls: Calls
) -> None:
    shared, server = ends
    got = begin(shared.recv, 100)
    assert calls.read_begun.wait(60), "session tickets are there"
    shared.sendall(b"question")
    assert server.read() == b"question"
    server.send(b"answer")
    assert got.result(60) == b"answer"
    assert calls.overlaps == []


def test_shared_connection_carries_much_both_ways_at_once(
    ends: tuple[SharedTls, ServerEnd], calls: Calls
) -> None:
    shared, server = ends
    sent, answered = begin(shared.sendall, MUCH), begin(server.send, MUCH)
    assert all_of(lambda: shared.recv(1 << 16), len(MUCH)) == MUCH
    answered.result(60)
    assert all_of(server.read, len(MUCH)) == MUCH
    sent.result(60)
    assert calls.overlaps == []


def test_shared_connection_keeps_the_timeout_that_it_had(tmp_path: Path) -> None:
    with tls_ends(tmp_path) as (client, _):
        client.settimeout(0.01)
        shared = SharedTls(client)
        with pytest.raises(TimeoutError, match="in time"):
            shared.recv(1)


def test_shared_connection_waits_no_longer_than_its_timeout(ends: tuple[SharedTls, ServerEnd]) -> None:
    shared, server = ends
    shared.settimeout(0.01)
    with pytest.raises(TimeoutError, match="in time"):
        shared.recv(1)
    with pytest.raises(TimeoutError, match="in time"):
        shared.sendall(MUCH * 4)
    shared.settimeout(None)
    server.send(b"late")
    assert shared.recv(10) == b"late"


def test_shared_connection_tells_what_is_decrypted_already(ends: tuple[SharedTls, ServerEnd]) -> None:
    shared, server = ends
    server.send(b"0123456789")
    assert shared.recv(4) == b"0123"
    assert shared.pending() == 6


def test_shared_connection_tells_the_end_of_its_peer(ends: tuple[SharedTls, ServerEnd]) -> None:
    shared, server = ends
    server.line.close()
    assert shared.recv(10) == b""


def test_shared_connection_reads_by_tls_after_its_last_write(ends: tuple[SharedTls, ServerEnd]) -> None:
    shared, server = ends
    shared.shutdown(socket.SHUT_WR)
    assert server.line.recv(10) == b""
    server.send(b"still secret")
    assert shared.recv(100) == b"still secret"


def test_shared_connection_wakes_who_waits_when_it_is_closed(
    ends: tuple[SharedTls, ServerEnd], calls: Calls
) -> None:
    shared, _ = ends
    shared.settimeout(None)
    got = begin(shared.recv, 1)
    assert calls.read_begun.wait(60), "session tickets are there"
    shared.close()
    assert got.exception(60) or got.result() == b""
    assert shared.fileno() == -1
    for call in (lambda: shared.recv(1), lambda: shared.sendall(b"x")):
        with pytest.raises(OSError, match=r"."):
            call()
    shared.close()


class Scripted:
    """A connection that first wants the other direction of its socket."""

    def __init__(self, line: socket.socket, wants: type[ssl.SSLError]) -> None:
        self._line, self._wants = line, [wants]
        self.refused = threading.Event()

    def gettimeout(self) -> float:
        return 60.0

    def settimeout(self, timeout_s: float | None) -> None:
        assert timeout_s == 0

    def fileno(self) -> int:
        return self._line.fileno()

    def send(self, data: memoryview) -> int:
        self._refuse()
        return self._line.send(data)

    def recv(self, size: int) -> bytes:
        self._refuse()
        return self._line.recv(size)

    def _refuse(self) -> None:
        if self._wants:
            self.refused.set()
            raise self._wants.pop()


def test_shared_connection_sends_after_a_message_of_tls_whose_part_has_come() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        scripted = Scripted(ours, ssl.SSLWantReadError)
        shared = SharedTls(cast(ssl.SSLSocket, scripted))
        sent = begin(shared.sendall, b"after it")
        assert scripted.refused.wait(60)
        got = begin(shared.recv, 10)
        assert not sent.done()
        theirs.sendall(b"the rest")
        sent.result(60)
        assert theirs.recv(100) == b"after it"
        assert got.result(60) == b"the rest"


def test_shared_connection_reads_after_what_tls_has_to_send() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"data")
        shared = SharedTls(cast(ssl.SSLSocket, Scripted(ours, ssl.SSLWantWriteError)))
        assert shared.recv(10) == b"data"


def test_shared_connection_that_is_closed_meanwhile_is_an_error_of_the_system() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        shared = SharedTls(cast(ssl.SSLSocket, Scripted(ours, ssl.SSLWantReadError)))
        ours.close()
        with pytest.raises(OSError, match="is closed"):
            shared.recv(10)
