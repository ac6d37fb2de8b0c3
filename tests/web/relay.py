"""What stands between a page and its scheduler, and hands on what it does not answer itself."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import requests

from tests.web.scene import Scene


class Answer(NamedTuple):
    """What a page gets."""

    status: int
    kind: str  # the type of the body
    body: bytes


class Relay(ThreadingHTTPServer):
    """Hands everything on."""

    def __init__(self, target: str) -> None:
        """`target`: the scheduler's address."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.daemon_threads = True
        self.target = target

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str) -> Answer | None:
        """What is answered to a GET; None: nothing."""
        answer = requests.get(self.target + path, timeout=60)
        return Answer(answer.status_code, answer.headers["Content-Type"], answer.content)

    def hand_on(self, path: str, body: bytes) -> Answer:
        """Return the scheduler's answer to a POST of JSON."""
        answer = requests.post(
            self.target + path, data=body, headers={"Content-Type": "application/json"}, timeout=60
        )
        return Answer(answer.status_code, answer.headers["Content-Type"], answer.content)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Relay)
        self._send(self.server.answer(self.path))

    def do_POST(self) -> None:
        assert isinstance(self.server, Relay)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(self.server.hand_on(self.path, body))

    def _send(self, answer: Answer | None) -> None:
        if answer is None:
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class Prints(Relay):
    """A scheduler whose jobs have printed this, by stream."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.url)
        self.scene = scene
        self.printed = {"stdout": "epoch 1\n", "stderr": ""}

    def answer(self, path: str) -> Answer | None:
        parts = urlsplit(path)
        if parts.path.endswith("/logs"):
            return Answer(200, "application/json", _piece(self.printed, parse_qs(parts.query)))
        return super().answer(path)


def _piece(printed: dict[str, str], query: dict[str, list[str]]) -> bytes:
    text, offset = printed[query["stream"][0]], int(query["offset"][0])
    begin = max(0, len(text) + offset) if offset < 0 else offset
    data = text[begin : begin + int(query["length"][0])]
    said = {"data": data, "offset": begin, "next_offset": begin + len(data), "task_id": query["task_id"][0]}
    return json.dumps(said).encode()
