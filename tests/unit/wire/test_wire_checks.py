"""Health checks on the way to an executor, and the HTTP of checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol, Protocol
from mesos_gpu.wire.mesos.checks import decode, encode, request, status_of

CHECKS = (
    HealthCheck(Protocol.COMMAND, command="curl -f 'http://x'"),
    HealthCheck(Protocol.MESOS_HTTPS, path="/é", port=443, ip_protocol=IpProtocol.IPV6, ignore_http_1xx=True),
)


def test_health_checks_come_back() -> None:
    assert decode(encode(CHECKS)) == CHECKS
    assert encode(()) == ""
    assert decode("") == ()


@pytest.mark.parametrize("text", ["{}", "[1]", "[{}]", "nonsense", encode(CHECKS).replace("COMMAND", "FTP")])
def test_health_checks_that_are_malformed_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"health check|Expecting value|FTP"):
        decode(text)


@pytest.mark.parametrize(
    ("path", "first"),
    [
        (None, b"GET / HTTP/1.1"),
        ("", b"GET / HTTP/1.1"),
        ("health?a=b", b"GET /health?a=b HTTP/1.1"),
        ("//x", b"GET //x HTTP/1.1"),
        ("/a b\r\nEvil: é", b"GET /a%20b%0D%0AEvil:%20%C3%A9 HTTP/1.1"),
    ],
)
def test_health_check_request_escapes_line_breaks(path: str | None, first: bytes) -> None:
    lines = request("agent1", 31000, path).split(b"\r\n")
    assert lines[0] == first
    assert lines[1] == b"Host: agent1:31000"
    assert lines[-2:] == [b"", b""]


def test_health_check_request_to_an_ipv6_address_has_brackets() -> None:
    assert b"Host: [::1]:80\r\n" in request("::1", 80, "/")


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", (None, False)),
        (b"HTT", (None, False)),
        (b"HTTP/1.1 20", (None, False)),
        (b"HTTP/1.1 200 OK\r\n", (200, False)),
        (b"HTTP/1.0 404\r\n", (404, False)),
        (b"HTTP/1.1 503 Busy\nServer: bare newlines\n\n", (503, False)),
        (b"HTTP/1.1 101 Switching Protocols\r\n", (101, False)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n", (None, True)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n", (204, True)),
    ],
)
def test_health_check_reads_the_status_of_an_http_answer(data: bytes, want: tuple[int | None, bool]) -> None:
    assert status_of(data) == want


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n", b"S", b"HTTP/1.1 OK\r\n", b"HTTP/" + b"1" * 70000, b"\r\n"]
)
def test_health_check_answer_that_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not an answer of HTTP|has no end"):
        status_of(data)


@given(st.binary(max_size=200))
def test_health_check_answer_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    for start in (data, b"HTTP/1.1 " + data, b"HTTP/1.1 100 Continue\r\n\r\n" + data):
        try:
            status, _ = status_of(start)
        except ValueError:
            continue
        assert status is None or 100 < status < 1000
