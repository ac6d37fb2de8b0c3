"""Ends of TLS connections: the server's end sends its records in pieces, and calls at the client's end are watched."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mesos_gpu.adapters.tls.trust import Trust, client_context
from tests.certificates import Authority, context_of

T = TypeVar("T")


class ServerEnd:
    """The server's end of a connection."""

    def __init__(self, line: socket.socket, context: ssl.SSLContext) -> None:
        self.line = line
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=True)

    def shake_hands(self) -> None:
        """Make the handshake, at the end of which session tickets are sent."""
        self._done(self._tls.do_handshake)

    def read(self) -> bytes:
        return self._done(lambda: self._tls.read(1 << 16))

    def records(self, data: bytes) -> bytes:
        """Return data as it is to be sent."""
        self._tls.write(data)
        return self._goes.read()

    def send(self, data: bytes) -> None:
        self.line.sendall(self.records(data))

    def _done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self.line.sendall(self._goes.read())
                piece = self.line.recv(1 << 16)
                assert piece, "the client has gone"
                self._came.write(piece)
            else:
                self.line.sendall(self._goes.read())
                return result


class Calls:
    """Calls of OpenSSL by all connections of the class `ssl.SSLSocket`.

    Attributes:
        overlaps: Names of those that began while another one was under way.
        read_begun: Set when a call has begun to read.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.overlaps: list[str] = []
        self.read_begun = threading.Event()
        self._turn = threading.Lock()
        for name in ("read", "send"):
            patch.setattr(ssl.SSLSocket, name, self._watched(name, getattr(ssl.SSLSocket, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(line: ssl.SSLSocket, *arguments: Any) -> Any:
            is_alone = self._turn.acquire(blocking=False)
            if not is_alone:
                self.overlaps.append(name)
            if name == "read":
                self.read_begun.set()
            try:
                return call(line, *arguments)
            finally:
                if is_alone:
                    self._turn.release()

        return watched


@contextlib.contextmanager
def tls_ends(directory: Path) -> Iterator[tuple[ssl.SSLSocket, ServerEnd]]:
    """Two ends of a connection after its handshake; session tickets wait at the client's."""
    authority = Authority(directory)
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        plain = held.enter_context(socket.create_connection(listener.getsockname(), 60))
        end = ServerEnd(held.enter_context(listener.accept()[0]), context_of(authority.server()))
        end.line.settimeout(60)
        thread = threading.Thread(target=end.shake_hands)
        thread.start()
        client = client_context(Trust(authority.cert)).wrap_socket(plain, server_hostname="localhost")
        thread.join()
        yield held.enter_context(client), end
