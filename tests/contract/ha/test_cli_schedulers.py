"""Commands that know several schedulers of a cluster: the first that answers is used, and when it goes the next."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.locate import normal_urls
from mesos_gpu.cli.reach.reach import Choice, find_reach
from mesos_gpu.errors import BadConfiguration
from tests.contract.cli.cli_rig import call
from tests.doubles.fake_rest import FakeRest


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody else will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def two() -> Iterator[tuple[FakeRest, FakeRest]]:
    with FakeRest() as one, FakeRest() as other:
        yield one, other


def test_client_uses_the_first_scheduler_that_answers(nobody: str, two: tuple[FakeRest, FakeRest]) -> None:
    one, other = two
    one.add("here")
    other.add("there")
    assert (
        call("--url", f"{nobody},{one.url},{other.url}", "ps", "-q").stdout
        == call("--url", one.url, "ps", "-q").stdout
    )
    refused = call("--url", nobody, "ps")
    assert (refused.exit_code, "does not answer" in refused.stderr) == (69, True)


def test_client_goes_on_with_the_next_scheduler_and_comes_back(two: tuple[FakeRest, FakeRest]) -> None:
    one, other = two
    id = one.add("job")
    other.jobs = one.jobs
    with Client(find_reach(f"{one.url},{other.url}")) as client:
        assert (client.job(id)["id"], client.url) == (id, one.url)
        one.stop()
        assert (client.job(id)["id"], client.url) == (id, other.url)
        one.start()
        other.stop()
        assert (client.job(id)["id"], client.url) == (id, one.url)
        other.start()


def test_a_job_is_never_sent_twice(two: tuple[FakeRest, FakeRest]) -> None:
    one, other = two
    one.fixed["POST /v1/jobs"] = (503, {"error": {"code": "unavailable", "message": "no scheduler leads"}})
    assert call("--url", f"{one.url},{other.url}", "run", "-d", "--", "true").exit_code == 69
    assert not other.asked


def test_addresses_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert normal_urls("a:1, http://b:2/,a:1") == "http://a:1,http://b:2"
    for wrong in ("http://a:1,https://b:2", "unix:/a,unix:/b", "http://a:1,", "http://a:1,ftp://b"):
        with pytest.raises(ValueError, match=r"address|must all use"):
            normal_urls(wrong)
    assert call("--url", "http://a:1,https://b:2", "ps").exit_code == 2
    monkeypatch.setenv("MESOS_GPU_TOKEN", "t")
    with pytest.raises(BadConfiguration, match="could be read on the network"):
        find_reach(Choice("http://127.0.0.1:1,http://192.0.2.1:1"))


def test_a_token_for_several_is_shown_to_each_of_them_and_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch, two: tuple[FakeRest, FakeRest]
) -> None:
    one, other = two
    monkeypatch.setenv("MESOS_GPU_URL", f"{one.url},{other.url}")
    monkeypatch.setenv("MESOS_GPU_TOKEN", "t")
    assert find_reach().token == find_reach(other.url).token == "t"
    assert find_reach("http://127.0.0.2:1").token == ""


def test_leader_command_shows_the_leader(two: tuple[FakeRest, FakeRest]) -> None:
    one, _ = two
    told = {
        "leader": "http://s2:1", "here": one.url, "leads": False, "age_s": 2.0, "batch": 9, "candidates": 2,
        "schedulers": [
            {"url": "http://s1:1", "leads": False, "here": True, "applied": 7},
            {"url": "http://s2:1", "leads": True, "here": False, "applied": 9},
        ],
        "zookeeper": None,
    }  # fmt: skip
    one.fixed["GET /v1/leader"] = (200, told)
    text = call("--url", one.url, "leader").stdout
    assert "http://s2:1 (leads)" in text
    assert "http://s1:1 (stands by, 2 batches behind)" in text
    assert "its copy is 2 s old" in text
    assert json.loads(call("--url", one.url, "leader", "--json").stdout) == {"url": one.url, **told}
    one.fixed["DELETE /v2/leader"] = (200, {"message": "Leadership abdicated"})
    assert "hands over to another" in call("--url", one.url, "leader", "--abdicate").stderr


class _Standby(BaseHTTPRequestHandler):
    """A standby whose copy lacks a job that its leader knows."""

    def do_GET(self) -> None:
        is_latest = self.headers.get("Cache-Control") == "no-cache"
        self.send_response(200 if is_latest else 404)
        self.send_header("Content-Type", "application/json")
        if not is_latest:
            self.send_header("Age", "0")
        self.end_headers()
        error = {"error": {"code": "not-found", "message": "there is no job"}}
        self.wfile.write(json.dumps("known to the leader" if is_latest else error).encode())

    def log_message(self, *_: object) -> None:
        """Keep requests out of the output of tests."""


def test_client_asks_the_leader_for_what_a_copy_of_a_standby_lacks() -> None:
    with HTTPServer(("127.0.0.1", 0), _Standby) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with Client(find_reach(f"http://127.0.0.1:{server.server_port}")) as client:
            assert client.call("GET", "/v1/jobs/new", str) == "known to the leader"
        server.shutdown()
        thread.join()
