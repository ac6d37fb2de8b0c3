"""Servers on real ports of the loopback that behave, and that do not: for tests of health checks."""

import contextlib
import functools
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

Behaviour = Callable[[socket.socket, threading.Event], None]


def says(text: bytes) -> Behaviour:
    """Answers that at once, then closes."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(text)

    return behave


def status(line: str) -> Behaviour:
    """Answers that status, with an empty body."""
    return says(f"HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n".encode())


def hangs(connection: socket.socket, over: threading.Event) -> None:
    """Takes the request, and says nothing."""
    over.wait(30)


def closes(connection: socket.socket, over: threading.Event) -> None:
    """Takes the request, and hangs up."""
    connection.recv(65536)


def drips(connection: socket.socket, over: threading.Event) -> None:
    """A byte of a status line now and then: something comes all the time, and never enough."""
    for byte in b"HTTP/1.1 2" + b"0" * 1000:
        with contextlib.suppress(OSError):
            connection.sendall(bytes([byte]))
        if over.wait(0.05):
            return


def slow_body(connection: socket.socket, over: threading.Event) -> None:
    """Answers 200 at once; the body never ends."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
    over.wait(30)


def floods(connection: socket.socket, over: threading.Event) -> None:
    """Interim answers, as fast as they are taken, and never the one that they precede."""
    connection.recv(65536)
    while not over.is_set():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 600)


class Server:
    """A server at a port. `requests` counts connections."""

    def __init__(self, behave: Behaviour, context: ssl.SSLContext | None, family: int) -> None:
        self.behave = behave
        self.requests = 0
        self._context = context
        self._over = threading.Event()
        self._listener = socket.create_server(
            ("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family
        )
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.requests += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with connection, contextlib.suppress(OSError):
            if self._context is None:
                self.behave(connection, self._over)
                return
            with self._context.wrap_socket(connection, server_side=True) as wrapped:
                self.behave(wrapped, self._over)

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)


@contextlib.contextmanager
def answering(
    behave: Behaviour, context: ssl.SSLContext | None = None, family: int = socket.AF_INET
) -> Iterator[Server]:
    """A server that behaves so."""
    server = Server(behave, context, family)
    try:
        yield server
    finally:
        server.close()


@functools.cache
def _bound() -> socket.socket:
    """Bind a socket that does not listen: its port refuses connections, and no other process gets it."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def closed_port() -> int:
    """Return a port that nothing listens on as long as this process runs."""
    return int(_bound().getsockname()[1])


def server_context(directory: Path) -> ssl.SSLContext:
    """Make a context with a certificate for another name, of no authority."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=other"
    )
    subprocess.run(
        [*words.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
