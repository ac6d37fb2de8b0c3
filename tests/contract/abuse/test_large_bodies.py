"""Large bodies: read beside the event loop, one of each caller at a time; without a name they are refused."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest
import requests

from mesos_gpu.api.http import requests as body_requests
from mesos_gpu.api.http.requests import MAX_APPS, MAX_BODY, MAX_CREDENTIALS, SMALL_BODY
from mesos_gpu.api.v1 import plan
from mesos_gpu.wire.body import MAX_ITEMS
from mesos_gpu.wire.checking import object_of
from tests.conftest import wait_until
from tests.contract.access.named import Rig

BOUND_S: Final = 0.1
ROUNDS: Final = 4
CHECK: Final = {"protocol": "COMMAND", "command": {"value": "true"}}
LARGE: Final[dict[str, Any]] = {
    "/v1/jobs": {"x": [[1] * (MAX_ITEMS - 1)] * 9},
    "/v2/apps": {"id": "/research/a", "cmd": "x", "healthChecks": [CHECK] * (MAX_ITEMS - 1)},
    "/v2/groups": {"id": "/research", "apps": [{"id": f"a{n}", "cmd": "x"} for n in range(4000)]},
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


class Gate(ThreadPoolExecutor):
    """A thread in which calls wait until it is opened."""

    def __init__(self) -> None:
        super().__init__(1)
        self.entered, self.opened = threading.Event(), threading.Event()

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        def gated() -> Any:
            self.entered.set()
            assert self.opened.wait(60)
            return call(*arguments, **more)

        return super().submit(gated)


@pytest.mark.parametrize("path", LARGE)
def test_large_body_is_read_beside_other_requests(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    body = {"id": "/research/a", "x": "y" * SMALL_BODY}
    with Gate() as gate, ThreadPoolExecutor(1) as sender:
        monkeypatch.setattr(body_requests, "_READERS", gate)
        answer = sender.submit(rig.call, "ann", "POST", path, json=body)
        try:
            assert gate.entered.wait(60)
            assert rig.call("bob", "GET", "/v1/health").status_code == 200
            assert not answer.done()
        finally:
            gate.opened.set()
        assert answer.result(60).status_code in (201, 422)


@pytest.mark.long
@pytest.mark.parametrize("path", LARGE)
def test_large_bodies_of_one_caller_delay_no_other_request(rig: Rig, path: str) -> None:
    took_s, begin = [0.0], time.monotonic()

    def send() -> list[int]:
        return [rig.call("ann", "POST", path, json=LARGE[path]).status_code for _ in range(ROUNDS)]

    with ThreadPoolExecutor(1) as sender, requests.Session() as beside:
        beside.trust_env = False  # its connection is kept: a new one takes several turns of the server
        answers = sender.submit(send)
        while not answers.done():
            asked = time.monotonic()
            health = beside.get(f"{rig.server.url}/v1/health", headers={"X-Name": "bob"}, timeout=60)
            assert health.status_code == 200
            took_s.append(time.monotonic() - asked)
    assert answers.result() == [422] * ROUNDS
    all_s = time.monotonic() - begin
    assert sum(each for each in took_s if each > BOUND_S) < all_s / 2, (max(took_s), all_s)


def test_large_bodies_of_a_caller_are_read_in_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    read, going_on, at_once, most = plan._spec, threading.Event(), list[str](), list[int]()

    def slow(body: bytes) -> Any:
        name = object_of(body)["name"]
        at_once.append(name)
        most.append(at_once.count("ann"))
        assert going_on.wait(60)
        at_once.remove(name)
        return read(body)

    monkeypatch.setattr(plan, "_spec", slow)

    def ask(name: str) -> int:
        body = {"name": name, "cpus": 1, "mem_mib": 1, "labels": {"large": "x" * SMALL_BODY}}
        return rig.call(name, "POST", "/v1/plan/defrag", json=body).status_code

    with ThreadPoolExecutor(6) as callers:
        answers = [callers.submit(ask, name) for name in ("ann", "ann", "ann", "ann", "bob")]
        wait_until("both are read", lambda: sorted(at_once) == ["ann", "bob"])
        assert rig.call("carl", "GET", "/v1/status").status_code == 200
        going_on.set()
        assert [each.result() for each in answers] == [200] * 5
    assert max(most) == 1


def sent(rig: Rig, name: str, verb: str, path: str, body: bytes) -> requests.Response:
    """Send a body that need not be JSON as a caller of a name, and return the answer."""
    headers = {"X-Name": name, "Content-Type": "application/json"}
    return rig.session.request(verb, rig.server.url + path, data=body, headers=headers, timeout=60)


@pytest.mark.parametrize("path", ["/v2/groups", "/v2/apps"])
def test_document_of_apps_beyond_its_bound_is_refused_with_the_bound(rig: Rig, path: str) -> None:
    answer = sent(rig, "ann", "PUT", path, b" " * (MAX_APPS + 1))
    assert answer.status_code == 413
    assert answer.json() == {
        "message": "the body is larger than 16 MiB (16777216 bytes)",
        "remedy": "send it in parts, such as one group in each request",
    }


def test_second_large_document_of_a_caller_is_refused_until_the_first_is_answered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b" " * (MAX_BODY + 1)

    def send(name: str) -> requests.Response:
        return sent(rig, name, "POST", "/v2/groups", body)

    with Gate() as gate, ThreadPoolExecutor(2) as senders, monkeypatch.context() as patched:
        patched.setattr(body_requests, "_READERS", gate)
        first = senders.submit(send, "ann")
        try:
            assert gate.entered.wait(60)
            second = send("ann")
            assert (second.status_code, second.headers["Retry-After"]) == (429, "1")
            assert second.json()["message"].startswith("'ann' is sending another body of more than 1 MiB")
            other = senders.submit(send, "bob")
            wait_until("both are under way", lambda: len(body_requests._LARGE) == 2)
            assert send("carl").status_code == 429
            assert rig.call("ann", "GET", "/v2/apps").status_code == 200
        finally:
            gate.opened.set()
        assert [first.result(60).status_code, other.result(60).status_code] == [400, 400]
    wait_until("their places are free", lambda: not len(body_requests._LARGE))
    assert send("ann").status_code == 400


@pytest.mark.parametrize("path", ["/v1/session", "/login"])
def test_large_body_of_a_nameless_caller_is_refused(rig: Rig, path: str) -> None:
    form = "application/x-www-form-urlencoded" if path == "/login" else "application/json"
    headers = {"Content-Type": form, "Origin": rig.server.url}
    body = b" " * (MAX_CREDENTIALS + 1)
    response = requests.post(rig.server.url + path, data=body, headers=headers, timeout=60)
    assert response.status_code == 413
