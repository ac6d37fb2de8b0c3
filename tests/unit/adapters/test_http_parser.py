"""The replacement of http-parser: calls of pymesos, with bytes in one piece and in the smallest."""

import pytest

from mesos_gpu.adapters.http_parser import HTTP_BOTH, HTTP_REQUEST, HTTP_RESPONSE, HttpParser

RESPONSE = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMesos-Stream-Id: s-1\r\nVary: a\r\nVary: b\r\n\r\n"
    b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"
)
REQUEST = b"POST /api/v1/scheduler HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"


def feed(parser: HttpParser, data: bytes, step: int) -> bytes:
    """Feed `data` in pieces of `step` bytes; the body in the order that it came."""
    body = b""
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        assert parser.execute(piece, len(piece)) == len(piece)
        body += parser.recv_body()
    return body


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("kind", [HTTP_BOTH, HTTP_RESPONSE])
def test_http_parser_reads_a_response_in_pieces_of_any_size(kind: int, step: int) -> None:
    parser = HttpParser(kind)
    assert feed(parser, RESPONSE, step) == b"hello, world"
    assert parser.get_status_code() == 200
    assert parser.get_headers() == {
        "Transfer-Encoding": "chunked",
        "Mesos-Stream-Id": "s-1",
        "Vary": "a, b",
    }
    assert parser.is_chunked()
    assert parser.is_message_complete()
    assert parser.get_version() == (1, 1)
    assert (parser.get_method(), parser.get_url()) == ("", "")


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("kind", [HTTP_BOTH, HTTP_REQUEST])
def test_http_parser_reads_a_request_in_pieces_of_any_size(kind: int, step: int) -> None:
    parser = HttpParser(kind)
    assert feed(parser, REQUEST, step) == b"{}"
    assert (parser.get_method(), parser.get_url()) == ("POST", "/api/v1/scheduler")
    assert parser.get_version() == (1, 0)
    assert parser.get_status_code() == 0
    assert not parser.should_keep_alive()
    assert not parser.is_chunked()


def test_http_parser_takes_a_method_that_begins_like_a_response() -> None:
    parser = HttpParser()
    assert feed(parser, b"HEAD / HTTP/1.1\r\n\r\n", 1) == b""
    assert parser.get_method() == "HEAD"


def test_http_parser_state_grows_with_the_bytes() -> None:
    parser = HttpParser()
    assert not parser.is_message_begin()
    assert parser.get_version() == (0, 0)
    head, tail = RESPONSE.split(b"\r\n\r\n", 1)
    feed(parser, head, 1000)
    assert (parser.is_message_begin(), parser.is_headers_complete()) == (True, False)
    assert parser.get_status_code() == 0
    parser.execute(b"\r\n\r\n" + tail[:8], 12)
    assert parser.is_headers_complete()
    assert parser.should_keep_alive()
    assert parser.is_partial_body()
    assert parser.recv_body() == b"hello"
    assert not parser.is_partial_body()
    assert not parser.is_message_complete()


def test_http_parser_reads_no_more_than_the_length() -> None:
    parser = HttpParser()
    parser.execute(RESPONSE, RESPONSE.index(b"7\r\n"))
    assert parser.recv_body() == b"hello"


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\x03\x04\x05", b"HTTP/1.1 abc\r\n\r\n"])
def test_http_parser_refuses_garbage(garbage: bytes) -> None:
    parser = HttpParser()
    assert parser.execute(garbage, len(garbage)) < len(garbage)
    assert parser.get_errno() != 0


def test_http_parser_of_headers_drops_the_body() -> None:
    parser = HttpParser(header_only=True)
    assert feed(parser, RESPONSE, 1000) == b""
    assert not parser.is_partial_body()
    assert parser.is_message_complete()


def test_pymesos_does_not_take_it_for_the_pure_python_parser() -> None:
    assert not hasattr(HttpParser(), "errno")


def test_http_parser_refuses_decompression() -> None:
    with pytest.raises(NotImplementedError):
        HttpParser(decompress=True)
