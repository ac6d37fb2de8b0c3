"""`HttpParser` with the part of http-parser 0.9's interface that pymesos uses, on top of httptools.

There is no name `errno` on the parser, on purpose: pymesos takes one for the sign of the original's
pure-Python parser, and then imports that. This one is asked by `get_errno()`, as the original's C parser is.
"""

from typing import Final, Protocol

import httptools

HTTP_REQUEST: Final = 0
HTTP_RESPONSE: Final = 1
HTTP_BOTH: Final = 2


class _Engine(Protocol):
    """What both parsers of httptools have."""

    def feed_data(self, data: bytes) -> None: ...
    def get_http_version(self) -> str: ...
    def should_keep_alive(self) -> bool: ...


class HttpParser:
    """A parser of one HTTP/1 message, fed in pieces of any size.

    Args:
        kind: `HTTP_REQUEST`, `HTTP_RESPONSE`, or `HTTP_BOTH`: then the first bytes tell.
        decompress: Must be false.
        header_only: Drop the body instead of keeping it for `recv_body`.

    Raises:
        NotImplementedError: `decompress` is asked for: pymesos never does.
    """

    def __init__(self, kind: int = HTTP_BOTH, decompress: bool = False, header_only: bool = False) -> None:
        if decompress:
            raise NotImplementedError("decompress is not supported")
        self._kind, self._header_only = kind, header_only
        self._request: httptools.HttpRequestParser | None = None
        self._response: httptools.HttpResponseParser | None = None
        self._start = b""
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._errno = 0
        self._begun = self._head_done = self._done = False

    # --- what httptools calls

    def on_message_begin(self) -> None:
        """The first byte of the message."""
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """A piece of the URL of a request."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header."""
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The empty line after the headers."""
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        """A piece of the body, chunk framing removed."""
        if not self._header_only:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The end of the message."""
        self._done = True

    # --- feeding

    def execute(self, data: bytes, length: int) -> int:
        """Parse `data[:length]`; returns the count of bytes taken: less than `length` after an error."""
        piece = bytes(data[:length])
        engine = self._engine(piece)
        if engine is None or not piece:
            return length
        piece, self._start = self._start + piece, b""
        try:
            engine.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return length
        except httptools.HttpParserError:
            self._errno = 1
            return 0
        return length

    def _engine(self, piece: bytes) -> _Engine | None:
        """The parser, made once the kind is known; until then `piece` is put aside."""
        made = self._response or self._request
        if made is not None:
            return made
        start = self._start + piece
        if self._kind == HTTP_REQUEST or (self._kind == HTTP_BOTH and not b"HTTP/".startswith(start[:5])):
            self._request = httptools.HttpRequestParser(self)
        elif self._kind == HTTP_RESPONSE or len(start) >= len(b"HTTP/"):
            self._response = httptools.HttpResponseParser(self)
        else:
            self._start = start
        return self._response or self._request

    # --- reading

    def get_errno(self) -> int:
        """0, or 1 after an error of syntax."""
        return self._errno

    def recv_body(self) -> bytes:
        """Take what has come of the body since the last call."""
        body, self._body = b"".join(self._body), []
        return body

    def get_headers(self) -> dict[str, str]:
        """Headers by name as it was written; a repeated one is joined with a comma."""
        headers: dict[str, str] = {}
        for name, value in self._headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def get_status_code(self) -> int:
        """Status of a response whose headers are complete, else 0."""
        return self._response.get_status_code() if self._response and self._head_done else 0

    def get_method(self) -> str:
        """Method of a request, else the empty string."""
        return self._request.get_method().decode("ascii") if self._request else ""

    def get_url(self) -> str:
        """URL of a request as it was written, else the empty string."""
        return self._url.decode("latin-1")

    def get_version(self) -> tuple[int, int]:
        """(major, minor) of HTTP; (0, 0) before the first byte."""
        engine = self._response or self._request
        major, _, minor = engine.get_http_version().partition(".") if engine else ("0", "", "0")
        return int(major), int(minor)

    def should_keep_alive(self) -> bool:
        """Whether the connection may carry another message after this one."""
        engine = self._response or self._request
        return engine is not None and engine.should_keep_alive()

    def is_message_begin(self) -> bool:
        """Whether the message began."""
        return self._begun

    def is_headers_complete(self) -> bool:
        """Whether all headers are known."""
        return self._head_done

    def is_partial_body(self) -> bool:
        """Whether `recv_body` would give something."""
        return bool(self._body)

    def is_message_complete(self) -> bool:
        """Whether the message ended."""
        return self._done

    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return any(n.lower() == "transfer-encoding" and "chunked" in v.lower() for n, v in self._headers)
