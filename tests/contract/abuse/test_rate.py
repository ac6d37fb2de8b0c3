"""Who asks for too much is told when to ask again, and nobody else notices."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from starlette.types import Message, Receive, Scope, Send

from mesos_gpu.access.decide import Rights
from mesos_gpu.access.rate import Limits
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http import rights
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.rate import Rate
from mesos_gpu.api.http.server import serve
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.cli.client import Client
from mesos_gpu.model.access.caller import ANYBODY, Caller, Proof
from mesos_gpu.model.access.document import AccessDocument
from tests.conftest import wait_until
from tests.contract.rig import Rig


@contextmanager
def limited(limits: Limits) -> Iterator[Rig]:
    rig = Rig()
    rig.server.stop()
    rig.app = create_app(rig.daemon, ApiSettings("http://w", "0.1.0", limits=limits))
    rig.server = serve(rig.app, "127.0.0.1", 0)
    rig.url = rig.server.url
    try:
        yield rig
    finally:
        rig.close()


def from_address(port: int, address: str, path: str) -> int:
    """The status that another address of loopback is answered with."""
    with socket.create_connection(("127.0.0.1", port), 30, source_address=(address, 0)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return int(client.recv(65536).split()[1])


def test_too_many_requests_are_told_when_to_come_again() -> None:
    with limited(Limits(rate_per_s=0.01, burst=3)) as rig:
        before = REFUSED.read()[Reason.RATE]
        assert [rig.call("GET", "/v1/status").status_code for _ in range(3)] == [200] * 3
        refused = rig.call("GET", "/v1/status")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], refused.headers["Retry-After"]) == (429, "rate", "100")
        assert error["message"] == "127.0.0.1 sends more than 0.01 requests/s, and 3 at once after a pause"
        marathon = rig.call("GET", "/v2/apps")
        assert (marathon.status_code, set(marathon.json())) == (429, {"message", "remedy"})
        assert marathon.headers["Retry-After"] == "100"
        assert "Content-Security-Policy" in marathon.headers
        assert from_address(rig.server.port, "127.0.0.2", "/v1/status") == 200  # another caller
        text = rig.call("GET", "/metrics/prometheus").text  # counted apart
        assert f'mesos_gpu_requests_refused_total{{reason="rate"}} {before + 2}\n' in text


@pytest.mark.parametrize("path", ["/ping", "/metrics", "/metrics/prometheus", "/v1/health"])
def test_health_routes_have_a_rate_of_their_own(path: str) -> None:
    with limited(Limits(rate_per_s=0.01, burst=1)) as rig:
        assert [rig.call("GET", "/v1/status").status_code for _ in range(2)] == [200, 429]
        assert [rig.call("GET", path).status_code for _ in range(2)] == [200, 429]


def test_a_header_makes_nobody_another_caller() -> None:
    with limited(Limits(rate_per_s=0.01, burst=1)) as rig:
        statuses = [
            rig.call("GET", "/v1/status", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code
            for n in range(2)
        ]
    assert statuses == [200, 429]


def test_answers_that_wait_have_a_count_of_their_own() -> None:
    with limited(Limits(streams=2)) as rig:
        job = rig.submit()
        wait = f"/v1/jobs/{job['id']}?after_version={job['version']}&timeout_s=60"
        answers: list[int] = []
        waiting = [
            threading.Thread(
                target=lambda: answers.append(requests.get(rig.url + wait, timeout=60).status_code)
            )
            for _ in range(2)
        ]
        for each in waiting:
            each.start()
        changes = rig.app.state.changes
        wait_until("both wait", lambda: len(changes.waiting.get(job["id"], ())) == 2)
        refused = rig.call("GET", wait)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "streams")
        assert refused.headers["Retry-After"] == "1"
        listening = rig.call("GET", "/v2/events", headers={"Accept": "text/event-stream"})
        assert listening.status_code == 429
        assert rig.call("GET", f"/v1/jobs/{job['id']}").status_code == 200
        assert rig.call("DELETE", f"/v1/jobs/{job['id']}").status_code == 202
        for each in waiting:
            each.join(60)
        assert answers == [200, 200]
        assert rig.call("GET", wait).status_code == 200  # those that ended are forgotten


class Slow:
    """An application whose answers are held back."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})


async def ask(rate: Rate, caller: Caller, address: str = "10.0.0.1", path: str = "/v1/jobs") -> int:
    statuses: list[int] = []

    async def send(message: Message) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    scope: Scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [],
                    "client": (address, 1)}  # fmt: skip
    rights.put(scope, lambda: Rights(AccessDocument(), caller))
    await rate(scope, receive, send)
    return statuses[0]


def test_a_name_is_counted_wherever_it_comes_from() -> None:
    async def at_once() -> None:
        slow = Slow()
        rate = Rate(slow, Limits(concurrency=2))
        ann, bob = Caller("ann", proof=Proof.TOKEN), Caller("bob", proof=Proof.TOKEN)
        held = [asyncio.create_task(ask(rate, ann, f"10.0.0.{n}")) for n in range(2)]
        await asyncio.sleep(0)
        assert await ask(rate, ann, "10.0.0.9") == 429
        held.append(asyncio.create_task(ask(rate, bob)))
        held.append(asyncio.create_task(ask(rate, ANYBODY)))  # of the same address as bob and ann
        slow.go.set()
        assert await asyncio.gather(*held) == [200] * 4
        assert await ask(rate, ann) == 200

    asyncio.run(at_once())


def test_addresses_of_one_network_of_ipv6_count_together() -> None:
    async def in_turn() -> None:
        slow = Slow()
        slow.go.set()
        rate = Rate(slow, Limits(rate_per_s=0.1, burst=1), clock=lambda: 0.0)
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1")
        assert [await ask(rate, ANYBODY, each) for each in addresses] == [200, 429, 200, 200, 429]

    asyncio.run(in_turn())


def test_a_request_that_fails_is_forgotten() -> None:
    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("defect")

    async def twice() -> None:
        rate = Rate(fails, Limits(concurrency=1))
        for _ in range(3):
            with pytest.raises(RuntimeError, match="defect"):
                await ask(rate, ANYBODY)

    asyncio.run(twice())


def test_the_command_line_comes_again_when_it_is_told() -> None:
    with limited(Limits(rate_per_s=1.0, burst=1)) as rig, Client(rig.url) as client:
        assert [client.status()["version"] for _ in range(3)] == ["0.1.0"] * 3
