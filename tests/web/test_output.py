"""A job's output on the dashboard, as it is printed."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.web.browser import NEEDED, Browser
from tests.web.scene import Scene

pytestmark = NEEDED


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


@pytest.fixture
def prints() -> Iterator[Prints]:
    scene = Scene()
    server = Prints(scene)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()
    scene.close()


def test_what_a_job_prints_appears_and_only_once(prints: Prints, browser: Browser) -> None:
    (job,) = prints.scene.call("GET", "/v1/jobs?named=train").json()["jobs"]
    page = browser.page(f"{prints.url}/#/jobs/{job['id']}")
    page.when("epoch 1")
    prints.printed["stdout"] += "epoch 2 <b>\n"
    page.when("epoch 2 &lt;b&gt;")
    assert page.run("document.querySelector('pre.logs').textContent") == "epoch 1\nepoch 2 <b>\n"
    prints.printed["stderr"] = "a warning\n"
    page.fill("#view select[aria-label=Stream]", "stderr")
    page.when("a warning")
    assert page.run("document.querySelector('pre.logs').textContent") == "a warning\n"


def test_of_much_output_the_end_is_shown(prints: Prints, browser: Browser) -> None:
    prints.printed["stdout"] = "x" * 70000 + "\nthe end\n"
    (job,) = prints.scene.call("GET", "/v1/jobs?named=train").json()["jobs"]
    page = browser.page(f"{prints.url}/#/jobs/{job['id']}")
    page.when("the end", "bytes before")
