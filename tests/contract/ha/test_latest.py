"""Reads that must not be old: a standby sends them on, and a leader that may have been deposed refuses them."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mesos_gpu.api.http.server import Server
from mesos_gpu.api.standby.led import Led
from tests.contract.ha.test_passing import Both, both, served

__all__ = ["both"]
LATEST = {"Cache-Control": "no-cache"}


class Leading:
    """A leader that is deposed while it reads, if it is to be."""

    def __init__(self) -> None:
        self.unsure_s: float | None = None
        self.then_s: float | None = None  # when it has read
        self.asked: list[str] = []

    async def told(self, request: Request) -> Response:
        self.asked.append(request.method)
        self.unsure_s = self.then_s
        return JSONResponse({"jobs": []}, 200 if request.method == "GET" else 201, {"Location": "/x"})


@pytest.fixture
def leading() -> Leading:
    return Leading()


@pytest.fixture
def server(leading: Leading) -> Iterator[Server]:
    routes = [Route("/{path:path}", leading.told, methods=["GET", "POST"])]
    led = Middleware(Led, unsure_s=lambda _: leading.unsure_s, clock=lambda: 0.0)
    server = served(Starlette(routes=routes, middleware=[led]))
    yield server
    server.stop()


def ask(
    server: Server, verb: str, path: str, headers: Mapping[str, str]
) -> tuple[int, Mapping[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with contextlib.closing(connection):
        connection.request(verb, path, headers=dict(headers))
        response = connection.getresponse()
        got = {name.lower(): value for name, value in response.getheaders()}
        return response.status, got, json.loads(response.read())


def test_a_leader_that_leads_answers_as_ever(server: Server) -> None:
    for headers in ({}, LATEST):
        status, got, body = ask(server, "GET", "/v1/jobs", headers)
        assert (status, body) == (200, {"jobs": []})
        assert "age" not in got


def test_latest_state_of_a_possibly_deposed_leader_tells_its_age(server: Server, leading: Leading) -> None:
    leading.then_s = 7.9
    status, got, body = ask(server, "GET", "/v1/jobs", {})
    assert (status, got["age"], body) == (200, "7", {"jobs": []})


@pytest.mark.parametrize("given", ["no-cache", "max-age=0, no-cache", "No-Cache"])
def test_and_refuses_who_wants_the_latest(server: Server, leading: Leading, given: str) -> None:
    leading.then_s = 7.9
    status, got, body = ask(server, "GET", "/v1/jobs", {"Cache-Control": given})
    assert (status, body["error"]["code"]) == (503, "unavailable")
    assert int(got["retry-after"]) > 0


def test_latest_state_is_not_demanded_of_own_status_and_changes(server: Server, leading: Leading) -> None:
    """A change was written, for which the leader's word was looked at, or it is refused there."""
    leading.then_s = 7.9
    assert ask(server, "GET", "/v1/health", LATEST)[0] == 200
    assert ask(server, "POST", "/v1/jobs", LATEST)[0] == 201
    assert leading.asked == ["GET", "POST"]


def test_a_standby_sends_on_what_must_be_the_latest(both: Both) -> None:
    assert both.ask("GET", "/v1/jobs")[2] == {"local": True}
    status, _, told = both.ask("GET", "/v1/jobs", **LATEST)
    assert (status, told["target"]) == (200, "/v1/jobs")
    both.known[0] = None
    assert both.ask("GET", "/v1/jobs", **LATEST)[0] == 503
    assert both.ask("GET", "/v1/leader", **LATEST)[2] == {"local": True}
