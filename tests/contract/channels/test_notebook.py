"""The URL of a notebook is printed when its server is there, and not when something else answers."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mesos_gpu.cli import output
from mesos_gpu.cli.sessions.answering import asked
from mesos_gpu.cli.sessions.notebook import _Teller
from tests.conftest import wait_until

TOKEN = "the-token-of-the-notebook"
URL = f"http://127.0.0.1:1/?token={TOKEN}"


class _Jupyter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        proved = self.headers["Authorization"] == f"token {TOKEN}"
        body = json.dumps({"kernels": 0} if proved else {"message": "Forbidden"}).encode()
        self.send_response(200 if proved and self.path == "/api/status" else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Other(_Jupyter):
    server_version = "Other/1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome")


class _NoHttp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2p1\r\n")


@contextmanager
def serving(
    handler: type[socketserver.BaseRequestHandler], at: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[tuple[str, int]]:
    with ThreadingHTTPServer(at, handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield "127.0.0.1", server.server_port
        finally:
            server.shutdown()
            thread.join()


def teller(place: tuple[str, int], *, is_jupyter: bool = True) -> _Teller:
    return _Teller(place, TOKEN, "book-1", 9, URL, is_jupyter)


@pytest.mark.parametrize(
    ("handler", "token", "said"),
    [
        (_Jupyter, "another", "it refuses the token"),
        (_Other, TOKEN, "it answers 200 OK, server Other/1"),
        (_NoHttp, TOKEN, "does not use HTTP"),
    ],
)
def test_answer_of_a_server_that_is_no_notebook_says_so(
    handler: type[socketserver.BaseRequestHandler], token: str, said: str
) -> None:
    with serving(handler) as place:
        answer = asked(place, token)
    assert answer is not None
    assert not answer.is_notebook
    assert said in answer.said
    assert asked(place, token) is None, "nobody is there any more"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told on stderr and printed."""
    said: list[str] = []
    monkeypatch.setattr(output, "note", said.append)
    monkeypatch.setattr(output, "line", said.append)
    return said


def test_the_url_is_told_when_the_notebook_takes_its_token(told: list[str]) -> None:
    with serving(_Other) as place:
        telling = threading.Thread(target=teller(place).run, daemon=True)
        telling.start()
        wait_until("what is there is named", lambda: told)
        assert telling.is_alive()
    with serving(_Jupyter, place):
        telling.join(60)
    warning, url = told
    assert "the server at port 9 of job book-1 is not the job's Jupyter" in warning
    assert url == URL


def test_notebook_that_does_not_answer_for_long_is_told(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mesos_gpu.cli.sessions.notebook._PATIENCE_S", 0.0)
    with serving(_Jupyter) as place:
        pass
    telling = threading.Thread(target=teller(place).run, daemon=True)
    telling.start()
    wait_until("it is told", lambda: told)
    with serving(_Jupyter, place):
        telling.join(60)
    waits, url = told
    assert waits == "no server answers yet at port 9 of job book-1; for its output: mesos-gpu logs -f book-1"
    assert url == URL


def test_the_url_of_another_server_is_printed_with_its_kind(told: list[str]) -> None:
    with serving(_Other) as place:
        teller(place, is_jupyter=False).run()
    warning, url = told
    assert "is not Jupyter: it answers 200 OK" in warning
    assert "all users of its host" in warning
    assert url == URL
