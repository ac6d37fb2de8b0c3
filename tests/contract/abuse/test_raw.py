"""Bytes that are no request, or could be read as another one than a proxy before us has read."""

import re
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from mesos_gpu.api.http import bounds, door
from mesos_gpu.api.http import requests as body_requests
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.wire import body, checking
from tests.conftest import wait_until
from tests.contract.rig import Rig, skip
from tests.raw import answer_to, connect, rest_of

HOST: Final = b"Host: localhost\r\n"
LOOK: Final = b"GET /v1/health HTTP/1.1\r\n" + HOST
POST: Final = b"POST /v1/jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED: Final = POST + b"Transfer-Encoding: chunked\r\n\r\n"
JOB: Final = b'{"command":"true"}'


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def jobs(rig: Rig) -> int:
    return int(rig.call("GET", "/v1/jobs").json()["total"])


REFUSALS: Final = {
    "a target of another host": (b"GET http://evil/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "of another port": (b"GET http://localhost:1/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "of another scheme": (b"GET ftp://localhost/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "with a user": (b"GET http://me@localhost/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "without a path": (b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a tunnel": (b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a fragment": (b"GET /v1/health#x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "Host twice": (LOOK + b"Host: evil\r\n\r\n", 400),
    "the same Host twice": (LOOK + HOST + b"\r\n", 400),
    "no Host": (b"GET /v1/health HTTP/1.1\r\n\r\n", 400),
    "no Host before 1.1": (b"GET /v1/health HTTP/1.0\r\n\r\n", 403),
    "HTTP 0.9": (b"GET /v1/health\r\n\r\n", 505),
    "HTTP 2 in words": (b"GET /v1/health HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    "HTTP 1.2": (b"GET /v1/health HTTP/1.2\r\n" + HOST + b"\r\n", 400),
    "HTTP 2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "length and chunks": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks and length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "length twice": (POST + b"Content-Length: 18\r\nContent-Length: 18\r\n\r\n" + JOB, 400),
    "a list of lengths": (POST + b"Content-Length: 18, 18\r\n\r\n" + JOB, 400),
    "a signed length": (POST + b"Content-Length: +18\r\n\r\n" + JOB, 400),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n" + JOB, 400),
    "a length beyond all": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + JOB, 400),
    "a space before the colon": (POST + b"Content-Length : 18\r\n\r\n" + JOB, 400),
    "another coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "chunks not last": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "chunks twice": (POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "two codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "chunks before 1.1": (CHUNKED.replace(b"1.1", b"1.0") + b"12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "a chunk that ends in LF": (CHUNKED + b"12\n" + JOB + b"\n0\n\n", 400),
    "a chunk of less than nothing": (CHUNKED + b"-12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "a chunk's size in C": (CHUNKED + b"0x12\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "a chunk beyond all": (CHUNKED + b"f" * 17 + b"\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "a chunk longer than it says": (CHUNKED + b"2\r\n" + JOB + b"\r\n0\r\n\r\n", 400),
    "bare LF": (b"GET /v1/health HTTP/1.1\nHost: localhost\n\n", 400),
    "bare LF in a header": (b"GET /v1/health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400),
    "bare CR in a header": (LOOK + b"X: a\rY: b\r\n\r\n", 400),
    "a folded header": (LOOK + b"X: a\r\n b\r\n\r\n", 400),
    "a first header that is folded": (b"GET /v1/health HTTP/1.1\r\n " + HOST + b"\r\n", 400),
    "NUL in a header": (LOOK + b"X: a\0b\r\n\r\n", 400),
    "NUL in a target": (b"GET /v1/\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a space in a target": (b"GET /v1/ x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a long target": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a long header": (LOOK + b"X: " + b"a" * 17000 + b"\r\n\r\n", 431),
    "a long name of a header": (LOOK + b"X" * 17000 + b": a\r\n\r\n", 431),
    "many headers": (LOOK + b"X: a\r\n" * 101 + b"\r\n", 431),
    "a large head": (LOOK + (b"X: " + b"a" * 15000 + b"\r\n") * 5 + b"\r\n", 431),
}  # fmt: skip


@pytest.mark.parametrize("raw", REFUSALS)
def test_ambiguous_request_is_refused_and_the_connection_closed(rig: Rig, raw: str) -> None:
    sent, status = REFUSALS[raw]
    before, counted = jobs(rig), sum(REFUSED.read().values())
    said = answer_to(rig.server.port, sent)
    assert said.startswith(b"HTTP/1.1 %d " % status), said
    assert b'"message":' in said
    assert b'"remedy":' in said
    assert said.count(b"\r\n\r\n") == 1
    assert jobs(rig) == before
    assert sum(REFUSED.read().values()) > counted  # of a body also by who reads it


def test_refusals_of_v2_have_marathons_shape(rig: Rig) -> None:
    said = answer_to(rig.server.port, b"GET /v2/apps HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'\r\n\r\n{"message":"Host must be given once, not 2 times"' in said


@pytest.mark.parametrize(
    "head", [b"GET http://localhost/v1/health HTTP/1.1\r\n" + HOST, b"GET http://LOCALHOST:80/v1/health HTTP/1.1\r\n"
             b"Host: localhost:80\r\n", LOOK + b"X: a\r\n" * 97, LOOK + b"X: " + b"a" * 16000 + b"\r\n"])  # fmt: skip
def test_request_within_the_limits_is_taken(rig: Rig, head: bytes) -> None:
    assert answer_to(rig.server.port, head + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_another_protocol_is_not_switched_to(rig: Rig, protocol: bytes) -> None:
    """Answer in HTTP/1.1, and read nothing of what follows."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\n\r\n"
    said = answer_to(rig.server.port, LOOK + upgrade + LOOK + b"\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_headers_behind_a_body_are_none(rig: Rig) -> None:
    """Else a client could add what a proxy before us takes out, as X-Forwarded-For."""
    seen = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        while (await receive()).get("more_body"):
            pass
        seen.append([name for name, _ in scope["headers"]])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    inner = rig.app.middleware_stack
    rig.app.middleware_stack = app
    try:
        with connect(rig.server.port) as client:
            client.sendall(CHUNKED + b"12\r\n" + JOB + b"\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        rig.app.middleware_stack = inner
    assert seen == [[b"host", b"content-type", b"transfer-encoding"]]


def test_requests_are_not_piled_up_before_one_that_waits(rig: Rig) -> None:
    job = rig.submit()
    wait = b"GET /v1/jobs/%s?after_version=%d&timeout_s=60 HTTP/1.1\r\n" % (
        job["id"].encode(),
        job["version"],
    )
    before = REFUSED.read()[Reason.PIPELINE]
    said = answer_to(rig.server.port, wait + HOST + b"\r\n" + (LOOK + b"\r\n") * 2000)
    assert said == b""  # nothing of ours goes into another request's answer
    assert REFUSED.read()[Reason.PIPELINE] == before + 1


def test_pipelined_requests_are_answered_in_their_order(rig: Rig) -> None:
    paths = [b"/v1/health", b"/ping", b"/v1/none", b"/v1/health"]
    raw = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths)
    said = answer_to(rig.server.port, raw + LOOK + b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1\.1 (\d+) ", said) == [b"200", b"200", b"404", b"200", b"200"]


@pytest.mark.parametrize("second", [b"GET /v1/health HTTP/1.1\r\nX-", b"\x16\x03\x01"])
def test_request_that_is_wrong_says_nothing_into_the_answer_before(rig: Rig, second: bytes) -> None:
    job = rig.submit()
    wait = b"GET /v1/jobs/%s?after_version=%d&timeout_s=60 HTTP/1.1\r\n" % (
        job["id"].encode(),
        job["version"],
    )
    with connect(rig.server.port) as client:
        client.sendall(wait + HOST + b"\r\n" + second)
        wait_until("it is read", lambda: rig.app.state.changes.waiting or has_ended(client))
        skip(rig.server, bounds.HEAD_S)
        assert rest_of(client) == b""


def has_ended(client: socket.socket) -> bool:
    """Return whether the server has closed the connection, or sent something."""
    return bool(select.select([client], [], [], 0)[0])


def test_empty_lines_do_not_keep_a_connection(rig: Rig) -> None:
    with connect(rig.server.port) as client:
        client.sendall(LOOK + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"\r\n")
        skip(rig.server, bounds.KEEP_S)
        assert b"HTTP/1.1" not in rest_of(client)


def test_an_unrequested_body_does_not_keep_a_connection(rig: Rig) -> None:
    """Let it trickle behind the answer."""
    with connect(rig.server.port) as client:
        client.sendall(LOOK + b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        client.sendall(b"x" * (HIGH_WATER_LIMIT + 1))  # what is less is awaited
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        for _ in range(3):
            skip(rig.server, bounds.KEEP_S / 2)
            if has_ended(client):
                break
            client.sendall(b"x")
        assert has_ended(client)


def test_a_body_without_end_is_not_read_for_ever(rig: Rig) -> None:
    with connect(rig.server.port) as client, pytest.raises(OSError, match=r"Broken pipe|reset"):
        client.sendall(CHUNKED + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 30)


def test_client_that_goes_before_its_body_is_whole_is_no_defect(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (b"/v1/jobs", b"/v2/apps"):
        with connect(rig.server.port) as client:
            client.sendall(
                POST.replace(b"/v1/jobs", path) + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"
            )
            assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wait_until("both are forgotten", lambda: not rig.server.connections)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [(b"[", 400, Reason.JSON), (b'{"a":1,"a":2}', 400, Reason.JSON), (b" " * 1_100_000, 413, Reason.BODY)],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v2/tasks/delete"])
def test_refusals_of_bodies_are_counted(
    rig: Rig, path: str, sent: bytes, status: int, reason: Reason
) -> None:
    before = REFUSED.read()[reason]
    answer = rig.call("POST", path, data=sent, headers={"Content-Type": "application/json"})
    assert (answer.status_code, REFUSED.read()[reason]) == (status, before + 1)


def test_the_limits_are_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/rest.md").read_text(encoding="utf-8")
    for figure in (
        f"{door.MAX_TARGET} bytes of path and query",
        f"{door.MAX_QUERY} fields of a query",
        f"{door.MAX_HEADERS} headers",
        f"{door.MAX_LINE} bytes each",
        f"{door.MAX_HEAD} bytes together",
        f"nested {body.MAX_DEPTH} deep",
        f"{body.MAX_VALUES} values, {body.MAX_ITEMS} in one",
        f"{body.MAX_APP_VALUES} values of `/v2/apps`",
        f"{body_requests.MAX_APPS >> 20} MiB of `/v2/apps`",
        f"{body.MAX_KEY} characters of a field's name, {body.MAX_TEXT} of a string",
        f"{body.MAX_DIGITS} digits",
        f"{checking.MAX_ENTRIES} entries, names of {checking.MAX_NAME} characters",
        f"{checking.MAX_CHARACTERS} characters in all",
    ):
        assert figure in page, figure
