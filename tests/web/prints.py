"""A scheduler whose jobs have printed something."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import requests

from tests.web.scene import Scene


class Prints(ThreadingHTTPServer):
    """A scheduler whose jobs have printed this, by stream."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.daemon_threads = True
        self.scene = scene
        self.printed = {"stdout": "epoch 1\n", "stderr": ""}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Relay(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Prints)
        parts = urlsplit(self.path)
        if parts.path.endswith("/logs"):
            self._answer(200, "application/json", _piece(server.printed, parse_qs(parts.query)))
            return
        answer = requests.get(server.scene.url + self.path, timeout=60)
        self._answer(answer.status_code, answer.headers["Content-Type"], answer.content)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _piece(printed: dict[str, str], query: dict[str, list[str]]) -> bytes:
    text, offset = printed[query["stream"][0]], int(query["offset"][0])
    begin = max(0, len(text) + offset) if offset < 0 else offset
    data = text[begin : begin + int(query["length"][0])]
    said = {"data": data, "offset": begin, "next_offset": begin + len(data), "task_id": query["task_id"][0]}
    return json.dumps(said).encode()
