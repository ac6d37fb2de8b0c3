"""Somebody who takes webhooks: a real HTTP server that answers as a test says."""

import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from mesos_gpu.adapters.hooks.send import signature


@dataclass(frozen=True, slots=True)
class Taken:
    path: str
    headers: dict[str, str]
    body: bytes

    def is_signed(self, secret: bytes) -> bool:
        id, at = self.headers["webhook-id"], int(self.headers["webhook-timestamp"])
        return self.headers.get("webhook-signature") == signature(secret, id, at, self.body)


class Receiver:
    """`status`: of the answers; `held`: they wait until it is set."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.taken: list[Taken] = []
        self.status, self.held = 204, threading.Event()
        self.held.set()
        self.more: dict[str, str] = {}  # headers of the answers
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def of(self, path: str) -> list[Taken]:
        return [each for each in list(self.taken) if each.path == path]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.taken.append(
                Taken(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
            )
            receiver.held.wait(60)
            self.send_response(receiver.status)
            for key, value in receiver.more.items():
                self.send_header(key, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def setup(self) -> None:
            if isinstance(self.request, ssl.SSLSocket):
                self.request.do_handshake()
            super().setup()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that does not believe the certificate goes."""


def told(receiver: Receiver, path: str) -> list[tuple[str, str]]:
    """Kinds and jobs of what came at a path, each once, in order."""
    bodies = {each.headers["webhook-id"]: json.loads(each.body) for each in receiver.of(path)}
    return [(body["type"], body["data"].get("job_id", "")) for body in bodies.values()]
