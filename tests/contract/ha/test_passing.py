"""Requests that a standby sends on: the leader sees them as they came, believes nobody else, and is not waited for."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.websockets import WebSocket

from mesos_gpu.access.rate import Limits
from mesos_gpu.api.http.rate import UnauthenticatedLimit
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.login.vouched import vouched_in
from mesos_gpu.api.standby.heard import ForwardedRequests, target_of
from mesos_gpu.api.standby.lines import Lines
from mesos_gpu.api.standby.passing import Forwarder, Leader
from mesos_gpu.api.standby.standby import MAX_AGE_S, Copy, Standby
from mesos_gpu.api.standby.word import HEADER, Signer, Verifier
from mesos_gpu.model.access.caller import Caller, Proof
from tests.conftest import wait_until
from tests.raw import connect, rest_of

KEY = b"k" * 32
RUN = "run-of-the-leader"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
ANN = Caller("ann", frozenset({"staff"}), Proof.CERTIFICATE, "10.1.2.3", proof_id="ab")


class Leading:
    """Answers by what it was asked; `held` are requests that wait, `asked` all that it is told of."""

    def __init__(self) -> None:
        self.held = self.asked = 0

    async def told(self, request: Request) -> Response:
        self.asked += 1
        body = await request.body()
        callers = [each.name for each in vouched_in(request.scope)]
        said = {
            "method": request.method,
            "target": target_of(request.scope),
            "headers": dict(request.headers.items()),
            "client": list(request.scope["client"] or ()),
            "callers": callers,
            "body": len(body),
        }
        return JSONResponse(
            said, 201 if request.method == "POST" else 200, {"Location": "/v1/made", "Keep-Alive": "9"}
        )

    async def broken(self, _request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"a part"
            raise RuntimeError("the leader dies")

        return StreamingResponse(pieces(), headers={"Content-Length": "1000"})

    async def stream(self, _request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            self.held += 1
            try:
                yield b"data: 1\n\n"
                await asyncio.sleep(600)
            finally:
                self.held -= 1

        return StreamingResponse(pieces(), media_type="text/event-stream")


class Who:
    """Proves what a test says."""

    def __init__(self) -> None:
        self.address, self.callers = "10.1.2.3", [ANN]

    async def of_connection(self, _scope: object) -> tuple[str, list[Caller]]:
        return self.address, self.callers

    def shows_more(self, _scope: object) -> bool:
        return False


@dataclass
class Both:
    """A leader, and a standby before it."""

    leading: Leading
    leader: Server
    standby: Server
    known: list[Leader | None]
    who: Who
    age_s: list[float | None]

    def ask(
        self, verb: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Mapping[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.standby.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(verb, path, body, headers)  # type: ignore[arg-type]
            response = connection.getresponse()
            data = response.read()
            got = {name.lower(): value for name, value in response.getheaders()}
            return response.status, got, json.loads(data) if data[:1] == b"{" else data


def served(app: Starlette) -> Server:
    app.state.changes = app.state.events = SimpleNamespace(close=lambda: None)
    app.state.unnamed = UnauthenticatedLimit(Limits(), [], lambda _scope: False)
    return Server(app, listen("127.0.0.1", 0))


@pytest.fixture
def both() -> Iterator[Both]:
    leading, who = Leading(), Who()
    known: list[Leader | None] = [None]
    age_s: list[float | None] = [1.5]
    routes = [
        Route("/broken", leading.broken),
        Route("/stream", leading.stream),
        Route("/{path:path}", leading.told, methods=METHODS),
    ]
    leader = served(
        Starlette(routes=routes, middleware=[Middleware(ForwardedRequests, verifier=Verifier(KEY, RUN))])
    )
    known[0] = Leader(leader.url, RUN)

    async def local(_request: Request) -> Response:
        return JSONResponse({"local": True}, headers={"X-Marathon-Leader": "x"})

    standby = Middleware(
        Standby,
        passing=Forwarder(lambda: known[0], Signer(lambda: KEY), who, None, ["X-Forwarded-User"]),  # type: ignore[arg-type]
        lines=Lines(lambda: known[0], ()),
        copy=Copy(lambda: age_s[0], lambda id: id == "0" * 12),
        leader=lambda: known[0],
        names=(),
        asks_names=True,
    )
    before = served(Starlette(routes=[Route("/{path:path}", local, methods=METHODS)], middleware=[standby]))
    yield Both(leading, leader, before, known, who, age_s)
    before.stop()
    leader.stop()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_change_arrives_as_it_was_sent_and_its_answer_as_it_was_given(both: Both, method: str) -> None:
    sent = json.dumps({"a": "ü" * 300_000}).encode()
    status, headers, told = both.ask(
        method,
        "/v1/jobs/a%2Fb?x=1&y=%20",
        sent,
        Authorization="Bearer t",
        **{"Content-Type": "application/json"},
    )
    assert status == (201 if method == "POST" else 200)
    assert (told["method"], told["target"]) == (method, "/v1/jobs/a%2Fb?x=1&y=%20")
    assert (told["body"], told["headers"]["authorization"]) == (len(sent), "Bearer t")
    assert (headers["location"], headers["mesos-gpu-standby"]) == ("/v1/made", both.leader.url)
    assert headers.get("keep-alive") != "9", "that is of the connection to the leader"


def test_a_body_in_chunks_arrives_whole(both: Both) -> None:
    pieces = [b"[", b"1," * 100_000, b"1]"]
    status, _, told = both.ask("PUT", "/v1/queues", iter(pieces), **{"Content-Type": "application/json"})
    assert (status, told["body"]) == (200, sum(map(len, pieces)))


def test_the_leader_is_told_where_it_came_from_and_nothing_that_anybody_could_say(both: Both) -> None:
    given = {
        "X-Forwarded-For": "6.6.6.6", "X-Forwarded-User": "root", "Forwarded": "for=6.6.6.6", "X-Real-Ip": "6.6.6.6",
        "Via": "1.0 me", "Connection": "X-Secret", "X-Secret": "s", "Origin": both.standby.url, "TE": "trailers",
    }  # fmt: skip
    _, _, told = both.ask("GET", "/v1/nodes", **given)
    assert told["client"][0] == "10.1.2.3"
    assert told["callers"] == ["ann"]
    names = {name.lower() for name in given} - {"via", "connection"}
    assert not names & set(told["headers"])
    assert HEADER not in told["headers"]
    assert (told["headers"]["via"], told["headers"]["connection"]) == ("1.1 mesos-gpu", "close")


def test_forwarding_proof_is_good_for_one_request_and_needs_the_key() -> None:
    verifier = Verifier(KEY, RUN)
    signer = Signer(lambda: KEY)

    def sign(of: Signer = signer, to: str = RUN) -> str:
        return of.sign(to, "GET", "/v1/nodes", "10.0.0.1", 7, (ANN,))

    text = sign()
    word = verifier.read(text, "GET", "/v1/nodes")
    assert word is not None
    assert (word.address, word.port, word.callers) == ("10.0.0.1", 7, (ANN,))
    assert verifier.read(text, "GET", "/v1/nodes") is None, "it was there already"
    assert verifier.read(sign(), "DELETE", "/v1/nodes") is None
    assert verifier.read(sign(), "GET", "/v1/gpus") is None
    assert verifier.read(sign(to="another run"), "GET", "/v1/nodes") is None
    assert verifier.read(sign(Signer(lambda: b"x" * 32)), "GET", "/v1/nodes") is None
    payload, _, mac = sign().partition(".")
    assert verifier.read(f"{payload[:-4]}AAAA.{mac}", "GET", "/v1/nodes") is None
    assert verifier.read("ü.ü", "GET", "/v1/nodes") is None
    assert verifier.read("", "GET", "/v1/nodes") is None
    early, late = sign(), [sign() for _ in range(5000)]
    assert all(verifier.read(each, "GET", "/v1/nodes") for each in late)
    assert verifier.read(early, "GET", "/v1/nodes") is None, "it is too long ago to be known"


def test_forwarded_request_of_a_false_standby_is_refused_by_both(both: Both) -> None:
    text = Signer(lambda: b"x" * 32).sign(RUN, "GET", "/v1/nodes", "127.0.0.1", 1, (ANN,))
    status, headers, told = both.ask("GET", "/v1/nodes", **{HEADER: text})
    assert (status, int(headers["retry-after"]) > 0) == (503, True)
    assert "was forwarded already" in told["error"]["message"]
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", both.leader.port, timeout=20)
    ) as connection:
        connection.request("GET", "/v1/nodes", headers={HEADER: text})
        assert connection.getresponse().status == 403


def test_standby_without_a_leader_refuses_changes_with_a_time(both: Both) -> None:
    both.known[0] = None
    status, headers, told = both.ask("DELETE", "/v1/jobs/j")
    assert (status, int(headers["retry-after"]) > 0, told["error"]["code"]) == (503, True, "unavailable")
    status, _, told = both.ask("DELETE", "/v2/apps/a")
    assert (status, "no scheduler leads" in told["message"]) == (503, True)


def test_a_leader_that_does_not_answer_is_reported_to_the_client(both: Both) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        both.known[0] = Leader(f"http://127.0.0.1:{deaf.getsockname()[1]}", RUN)
        status, _, told = both.ask("DELETE", "/v1/jobs/j")
    assert (status, "does not answer" in told["error"]["message"]) == (503, True)


def test_a_leader_that_goes_before_it_answers_a_change_may_have_done_it(both: Both) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        both.known[0] = Leader(f"http://127.0.0.1:{mute.getsockname()[1]}", RUN)
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", both.standby.port, timeout=20)
        ) as asked:
            asked.request("DELETE", "/v1/jobs/j")
            line, _ = mute.accept()
            assert line.recv(65536).startswith(b"DELETE /v1/jobs/j HTTP/1.1\r\n")
            line.close()
            response = asked.getresponse()
            assert (response.status, b"not known" in response.read()) == (502, True)


def test_a_part_of_an_answer_is_not_taken_for_all_of_it(both: Both) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        both.ask("GET", "/broken")


def test_a_stream_ends_with_the_leader_and_the_leaders_with_the_client(both: Both) -> None:
    raw = b"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(both.standby.port) as one:
        one.sendall(raw)
        assert b"data: 1" in _until(one, b"data: 1")
        assert both.leading.held == 1
    wait_until("the leader's ends with its client", lambda: both.leading.held == 0, 20)
    with connect(both.standby.port) as one:
        one.sendall(raw)
        _until(one, b"data: 1")
        both.leader.stop()
        rest_of(one)  # it ends


def _until(line: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data and (more := line.recv(4096)):
        data += more
    return data


def test_reads_of_the_copy_are_marked_and_what_waits_or_is_new_is_the_leaders(both: Both) -> None:
    status, headers, told = both.ask("GET", "/v1/jobs")
    assert (status, told, headers["age"]) == (200, {"local": True}, "1")
    assert headers["x-marathon-leader"] == headers["mesos-gpu-standby"] == both.leader.url
    assert both.ask("GET", "/v1/jobs/j")[2] == {"local": True}
    token = "mgpu_{}_" + "s" * 43
    assert both.ask("GET", "/v1/jobs", Authorization="Bearer " + token.format("0" * 12))[2] == {"local": True}
    for path, more in (
        ("/v1/jobs/j/logs", {}),
        ("/v1/jobs/j?after_version=1", {}),
        ("/v1/nodes", {}),
        ("/v1/jobs", {"Cookie": "s=1"}),
        ("/v1/jobs", {"Authorization": "Bearer " + token.format("1" * 12)}),
    ):
        assert both.ask("GET", path, **more)[2].get("method") == "GET", path
    both.age_s[0] = 60.0  # older than this test can be
    both.ask("DELETE", "/v1/jobs/j")
    assert both.ask("GET", "/v1/jobs")[2].get("method") == "GET", "the copy may be older than the change"
    both.age_s[0] = 0.0
    assert both.ask("GET", "/v1/jobs")[2] == {"local": True}


def test_a_copy_that_is_too_old_is_not_shown_where_names_are_asked_for(both: Both) -> None:
    both.known[0] = None
    assert both.ask("GET", "/v1/jobs")[2] == {"local": True}
    for age_s in (MAX_AGE_S + 1, None):
        both.age_s[0] = age_s
        assert both.ask("GET", "/v1/jobs")[0] == 503
        assert both.ask("GET", "/ping")[0] == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_standby_does_not_forward_requests_of_another_origin(both: Both, headers: dict[str, str]) -> None:
    assert both.ask("DELETE", "/v1/jobs/j", **headers)[0] == 403


def test_a_websocket_elsewhere_than_at_channels_is_refused(both: Both) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect as line_to

    with pytest.raises(InvalidStatus):
        line_to(both.standby.url.replace("http", "ws") + "/v1/jobs")


def test_frames_of_a_channel_are_carried_both_ways() -> None:
    from starlette.routing import WebSocketRoute
    from websockets.sync.client import connect as line_to

    async def echo(line: WebSocket) -> None:
        assert line.headers["authorization"] == "Bearer p"
        assert "origin" not in line.headers
        await line.accept()
        await line.send_bytes(await line.receive_bytes() + b" back")
        await line.close(1000)

    leader = served(Starlette(routes=[WebSocketRoute("/v1/channels/{id}", echo)]))
    lines = Lines(lambda: Leader(leader.url, RUN), ())
    standby = served(Starlette(routes=[WebSocketRoute("/{path:path}", lines)]))
    try:
        url = standby.url.replace("http", "ws") + "/v1/channels/c"
        with line_to(url, additional_headers={"Authorization": "Bearer p"}, proxy=None) as line:
            line.send(b"there and")
            assert line.recv(timeout=20) == b"there and back"
    finally:
        standby.stop()
        leader.stop()
