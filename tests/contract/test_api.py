"""The REST interface as clients meet it: a real server, a real engine, a driver that only notes."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from mesos_gpu.api.app import ApiSettings, create_app
from mesos_gpu.api.logs import whole
from mesos_gpu.api.server import Server, serve
from mesos_gpu.cli.client import Client
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import Conflict
from mesos_gpu.model.gpu import Inventory
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.status import Status
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.testing.builders import gpu, offer
from mesos_gpu.testing.fake_driver import FakeClock, FakeDriver, MemoryStore
from mesos_gpu.wire import report


class Rig:
    def __init__(self) -> None:
        self.clock, self.driver = FakeClock(), FakeDriver()
        self.daemon = Daemon(MemoryStore(), self.driver, self.clock, Settings("e", "m"))
        self.server: Server = serve(create_app(self.daemon, ApiSettings("http://w", "0.1.0")), "127.0.0.1", 0)
        self.url = self.server.url
        self.session = requests.Session()
        self.session.trust_env = False
        self.daemon.start()
        self.daemon.put(ev.Registered("fw", "http://master"))

    def call(self, verb: str, path: str, **more: Any) -> requests.Response:
        return self.session.request(verb, self.url + path, timeout=20, **more)

    def submit(self, **fields: Any) -> dict[str, Any]:
        response = self.call("POST", "/v1/jobs", json={"command": "true", **fields})
        assert response.status_code == 201, response.text
        return dict(response.json())

    def node(self, agent: str = "a1") -> None:
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-1", agent, gpus=1),)))
        monitor = self.daemon.read(lambda view: view.nodes[AgentId(agent)].monitor).result(10)
        assert monitor is not None
        data = report.encode(Inventory((gpu("g0"),), "simulated", "535"))
        self.status(monitor, "TASK_RUNNING", agent, data)
        self.daemon.put(ev.OffersArrived((offer(f"{agent}-2", agent, gpus=1),)))

    def status(self, task: str, state: str, agent: str = "a1", data: bytes = b"") -> None:
        self.daemon.put(ev.StatusArrived(Status(TaskId(task), state, AgentId(agent), data=data, uuid="u")))

    def close(self) -> None:
        self.session.close()
        self.server.stop()
        self.daemon.stop()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def code_of(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_the_life_of_a_job(rig: Rig) -> None:
    rig.node()
    response = rig.call("POST", "/v1/jobs", json={"argv": ["train"], "gpus": 1, "labels": {"team": "a"}})
    job = response.json()
    assert (response.status_code, response.headers["Location"]) == (201, f"/v1/jobs/{job['id']}")
    rig.status(f"{job['id']}.1", "TASK_RUNNING")
    job = rig.call("GET", f"/v1/jobs/{job['id']}").json()
    assert (job["state"], job["gpu_ids"], job["hostname"]) == ("running", ["g0"], "a1.example")
    (held,) = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert (held["job_id"], held["task_id"], held["job_name"]) == (job["id"], job["task_id"], "train")
    assert rig.call("GET", "/v1/nodes").json()["nodes"][0]["gpus_used"] == 1
    assert {t["name"] for t in rig.call("GET", "/v1/tasks").json()["tasks"]} == {"gpu-monitor", "train"}
    assert rig.call("DELETE", f"/v1/jobs/{job['id']}").status_code == 202
    rig.status(job["task_id"], "TASK_KILLED")
    assert rig.call("GET", f"/v1/jobs/{job['id']}").json()["state"] == "killed"
    assert rig.call("DELETE", f"/v1/jobs/{job['id']}").status_code == 200
    assert rig.call("GET", f"/v1/jobs/{job['id']}/tasks").json()["tasks"][0]["state"] == "killed"


def test_every_shape_is_what_the_client_expects(rig: Rig) -> None:
    rig.node()
    job = rig.submit(gpus=1)
    with Client(rig.url) as client:
        assert client.job(job["id"])["id"] == job["id"]
        assert client.jobs()[0]["id"] == job["id"]
        assert client.tasks(job["id"])[0]["job_id"] == job["id"]
        assert client.why(job["id"])["state"] == "starting"
        assert client.gpus()[0]["uuid"] == "g0"
        assert client.nodes()[0]["hostname"] == "a1.example"
        assert client.status()["framework_id"] == "fw"


def test_all_problems_at_once(rig: Rig) -> None:
    response = rig.call("POST", "/v1/jobs", json={"cpus": -1, "colour": 1})
    assert code_of(response) == (422, "invalid")
    assert {p["path"] for p in response.json()["error"]["problems"]} == {"/cpus", "/colour", "/"}
    assert rig.call("GET", "/v1/jobs").json() == {"jobs": []}, "nothing is half-applied"


@pytest.mark.parametrize(
    ("verb", "path", "more", "status", "code"),
    [
        ("POST", "/v1/jobs", {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, "bad-json"),
        ("POST", "/v1/jobs", {"data": b"x" * 2_000_000, "headers": {"Content-Type": "application/json"}}, 413,
         "too-large"),
        ("POST", "/v1/jobs", {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, "media-type"),
        ("POST", "/v1/jobs", {"json": {}, "headers": {"Origin": "http://evil.example"}}, 403, "forbidden"),
        ("GET", "/v1/jobs", {"headers": {"Host": "evil.example"}}, 403, "forbidden"),
        ("GET", "/v1/jobs?state=odd", {}, 422, "invalid"),
        ("GET", "/v1/jobs?limit=0", {}, 422, "invalid"),
        ("GET", "/v1/jobs/nope", {}, 404, "not-found"),
        ("GET", "/v1/why/nope", {}, 404, "not-found"),
        ("GET", "/nope", {}, 404, "not-found"),
        ("PUT", "/v1/jobs", {}, 405, "method"),
        ("GET", "/static/../app.py", {}, 404, "not-found"),
    ],
)  # fmt: skip
def test_refusals(rig: Rig, verb: str, path: str, more: dict[str, Any], status: int, code: str) -> None:
    response = rig.call(verb, path, **more)
    assert code_of(response) == (status, code)
    assert response.json()["error"]["remedy"]


def test_a_prefix_is_enough_if_it_is_one(rig: Rig) -> None:
    one, two = rig.submit(name="train"), rig.submit(name="train")
    assert rig.call("GET", f"/v1/jobs/{one['id'][:-1]}").json()["id"] == one["id"]
    response = rig.call("GET", "/v1/jobs/train")
    assert code_of(response) == (409, "ambiguous")
    assert two["id"] in response.json()["error"]["message"]


def test_filters(rig: Rig) -> None:
    a, b = rig.submit(name="a", labels={"k": "1"}), rig.submit(name="b", labels={"k": "2"})
    rig.call("DELETE", f"/v1/jobs/{b['id']}")

    def ids(query: str) -> list[str]:
        return [job["id"] for job in rig.call("GET", f"/v1/jobs?{query}").json()["jobs"]]

    assert ids("") == [b["id"], a["id"]]
    assert ids("state=active") == ids("label=k=1") == ids("name=a") == [a["id"]]
    assert ids("state=killed&state=pending") == ids("label=k") == [b["id"], a["id"]]
    assert ids("limit=1") == [b["id"]]


def test_a_long_poll_answers_at_the_change(rig: Rig) -> None:
    job = rig.submit()
    found: list[dict[str, Any]] = []
    path = f"/v1/jobs/{job['id']}?after_version={job['version']}&timeout_s=20"
    waiter = threading.Thread(target=lambda: found.append(requests.get(rig.url + path, timeout=30).json()))
    began = time.monotonic()
    waiter.start()
    rig.call("DELETE", f"/v1/jobs/{job['id']}")
    waiter.join(15)
    assert found[0]["state"] == "killed"
    assert time.monotonic() - began < 10


def test_a_long_poll_without_a_change_answers_in_time(rig: Rig) -> None:
    job = rig.submit()
    response = rig.call("GET", f"/v1/jobs/{job['id']}?after_version=99&timeout_s=0.1")
    assert response.json()["version"] == job["version"]


def test_health_follows_the_master(rig: Rig) -> None:
    assert rig.call("GET", "/v1/health").json() == {"ok": True, "connected": True}
    rig.daemon.put(ev.Disconnected())
    assert rig.call("GET", "/v1/health").status_code == 503


def test_the_page_is_served_with_its_policy(rig: Rig) -> None:
    page = rig.call("GET", "/")
    assert "mesos_gpu" in page.text
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("app.js", "style.css", "favicon.svg"):
        assert rig.call("GET", f"/static/{name}").status_code == 200


def test_a_port_in_use_is_said(rig: Rig) -> None:
    with pytest.raises(Conflict, match=f"cannot listen on 127.0.0.1:{rig.server.port}"):
        serve(None, "127.0.0.1", rig.server.port)


def test_logs_before_the_first_launch(rig: Rig) -> None:
    assert code_of(rig.call("GET", f"/v1/jobs/{rig.submit()['id']}/logs")) == (409, "not-started")


class FilesApi(BaseHTTPRequestHandler):
    """The agent's /files/read: a file's bytes go into the JSON as they are; offset -1 asks for the size."""

    content = "zwölf\n".encode() + b"\xff\n"

    def do_GET(self) -> None:
        query = {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}
        known = query.get("path", "").startswith("/frameworks/fw/executors/")
        offset, length = int(query.get("offset", 0)), int(query.get("length", 0))
        data = b"" if offset < 0 else self.content[offset : offset + length]
        offset = len(self.content) if offset < 0 else offset
        body = b'{"data":"%s","offset":%d}' % (data.replace(b"\n", b"\\n"), offset)
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def files_api() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FilesApi)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def launched(rig: Rig, agent_url: str) -> str:
    from dataclasses import replace

    rig.daemon.put(ev.OffersArrived((replace(offer("o", "a1"), agent_url=agent_url),)))
    job = rig.submit()
    return str(job["id"])


def test_logs_count_bytes_and_keep_characters_whole(rig: Rig, files_api: str) -> None:
    job = launched(rig, files_api)

    def read(offset: int, length: int = 1000) -> tuple[str, int]:
        found = rig.call("GET", f"/v1/jobs/{job}/logs?offset={offset}&length={length}").json()
        return found["data"], found["next_offset"]

    assert read(0, 3) == ("zw", 2), "half a character is left for the next read"
    assert read(2) == ("ölf\n\ufffd\n", 9)
    assert read(9) == ("", 9)
    assert read(-2) == ("\ufffd\n", 9)


def test_logs_of_an_agent_that_is_away(rig: Rig) -> None:
    job = launched(rig, "http://127.0.0.1:9")
    response = rig.call("GET", f"/v1/jobs/{job}/logs")
    assert code_of(response) == (503, "unavailable")
    assert "a1.example" in response.json()["error"]["message"]


def test_the_last_bytes_of_an_ended_task_are_shown_whatever_they_are() -> None:
    assert whole(b"a\xc3", 0, last=False).next_offset == 1
    assert whole(b"a\xc3", 0, last=True).data == "a\ufffd"


def test_a_stopping_scheduler_says_so(rig: Rig) -> None:
    rig.daemon.stop()
    assert code_of(rig.call("GET", "/v1/status")) == (503, "unavailable")
