"""Requests to an issuer end in time, however slowly it answers."""

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesos_gpu.adapters.oidc import fetching
from mesos_gpu.adapters.oidc.fetching import Fetcher, IssuerError
from tests.answers import answering, says
from tests.certificates import Authority, context_of

BEGINNINGS = {
    "a header": b"HTTP/1.1 200 OK\r\nX: ",
    "a body with its length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "a body without": b"HTTP/1.1 200 OK\r\n\r\n",
}


@contextmanager
def dripping(beginning: bytes, tls: ssl.SSLContext | None) -> Iterator[int]:
    """Serve an answer with this beginning that goes on by a byte at a time, without end; return the port."""
    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):  # who asked has gone
            connection, _ = listener.accept()
            with tls.wrap_socket(connection, server_side=True) if tls else connection as client:
                client.recv(65536)
                client.sendall(beginning)
                while not over.wait(0.02):
                    client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("what", BEGINNINGS)
def test_issuer_answer_that_drips_is_ended(
    ca: Authority, monkeypatch: pytest.MonkeyPatch, what: str, scheme: str
) -> None:
    monkeypatch.setattr(fetching, "WHOLE_S", 0.3)
    tls = context_of(ca.server()) if scheme == "https" else None
    too_long = pytest.raises(IssuerError, match=r"takes longer than 0\.3 s")
    with dripping(BEGINNINGS[what], tls) as port, too_long:
        Fetcher(ca.cert).get(f"{scheme}://127.0.0.1:{port}/")


def test_issuer_answer_that_is_encoded_is_refused(ca: Authority) -> None:
    body = gzip.compress(bytes(1 << 20))
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(says(answer + body)) as server, pytest.raises(IssuerError, match="encoded as 'gzip'"):
        Fetcher(ca.cert).get(f"http://127.0.0.1:{server.port}/")


def test_issuer_answer_in_time_is_whole(ca: Authority, tmp_path: Path) -> None:
    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        answer = Fetcher(ca.cert).get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()
    assert (answer.status, answer.body) == (200, b"whole")
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
