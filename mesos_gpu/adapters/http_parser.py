"""`HttpParser` with the part of http-parser 0.9's interface that pymesos uses, on top of httptools.

The parser deliberately has no attribute `errno`: pymesos takes one as the sign of the original's pure-Python parser,
and then imports that. Errors are queried by `get_errno()`, as with the original's C parser.
"""

from typing import Final, Protocol

import httptools

HTTP_REQUEST: Final = 0
HTTP_RESPONSE: Final = 1
HTTP_BOTH: Final = 2


class _Engine(Protocol):
    """Common interface of both parsers of httptools."""

    def feed_data(self, data: bytes) -> None: ...
    def get_http_version(self) -> str: ...
    def should_keep_alive(self) -> bool: ...


class HttpParser:
    """A parser of one HTTP/1 message, fed in pieces of any size.

    Args:
            kind: `HTTP_REQUEST`, `HTTP_RESPONSE`, or `HTTP_BOTH` to decide by the first bytes.
        decompress: Must be false.
        header_only: Drop the body instead of keeping it for `recv_body`.

    Raises:
            NotImplementedError: `decompress` is true, which pymesos never requests.
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

    # --- callbacks of httptools

    def on_message_begin(self) -> None:
        """Record that the message has begun."""
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """Add a piece of a request's URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Record that all headers were read."""
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        """Add a piece of the body, without chunk framing."""
        if not self._header_only:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Record that the message is complete."""
        self._done = True

    # --- feeding

    def execute(self, data: bytes, length: int) -> int:
        """Parse `data[:length]`. Return the number of bytes taken: less than `length` after an error."""
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
        """Return the parser, created once the kind is known; until then `piece` is buffered."""
        engine = self._response or self._request
        if engine is not None:
            return engine
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
        """Return 0, or 1 after a syntax error."""
        return self._errno

    def recv_body(self) -> bytes:
        """Return the part of the body that was received since the last call."""
        body, self._body = b"".join(self._body), []
        return body

    def get_headers(self) -> dict[str, str]:
        """Return headers by their names as written; repeated ones are joined with a comma."""
        headers: dict[str, str] = {}
        for name, value in self._headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def get_status_code(self) -> int:
        """Return the status of a response whose headers are complete, else 0."""
        return self._response.get_status_code() if self._response and self._head_done else 0

    def get_method(self) -> str:
        """Return the method of a request, else the empty string."""
        return self._request.get_method().decode("ascii") if self._request else ""

    def get_url(self) -> str:
        """Return the URL of a request as it was written, else the empty string."""
        return self._url.decode("latin-1")

    def get_version(self) -> tuple[int, int]:
        """Return major and minor version of HTTP; (0, 0) before the first byte."""
        engine = self._response or self._request
        major, _, minor = engine.get_http_version().partition(".") if engine else ("0", "", "0")
        return int(major), int(minor)

    def should_keep_alive(self) -> bool:
        """Return whether the connection may carry another message after this one."""
        engine = self._response or self._request
        return engine is not None and engine.should_keep_alive()

    def is_message_begin(self) -> bool:
        """Return whether the message has begun."""
        return self._begun

    def is_headers_complete(self) -> bool:
        """Return whether all headers were read."""
        return self._head_done

    def is_partial_body(self) -> bool:
        """Return whether `recv_body` would return data."""
        return bool(self._body)

    def is_message_complete(self) -> bool:
        """Return whether the message is complete."""
        return self._done

    def is_chunked(self) -> bool:
        """Return whether the body is sent in chunks."""
        return any(n.lower() == "transfer-encoding" and "chunked" in v.lower() for n, v in self._headers)
