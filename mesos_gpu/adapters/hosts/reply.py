"""HTTP/1.1 response of a host, parsed strictly and limited in bytes."""

from collections.abc import Callable, Iterator
from typing import Final

import httptools

MAX_HEAD: Final = 1 << 16  # bytes of status line and headers, interim responses (1xx) included
_BODILESS: Final = (204, 304)  # RFC 9112, section 6.3


class NotAnswered(Exception):
    """A request without an acceptable response. Its text follows the host's name: "does not answer within 10 s"."""


class Silent(NotAnswered):
    """A host that did not answer at all, or not in time."""


class Reply:
    """A response: the constructor reads status and headers, `pieces` the body as it arrives.

    Redirects, encoded bodies, endless interim responses, bodies of another length than announced, and everything that
    is not HTTP/1.1 are refused.
    """

    def __init__(self, receive: Callable[[], bytes], max_bytes: int) -> None:
        """Read status and headers.

        Args:
            receive: Function that returns the next bytes of the connection, b"" at its end.
            max_bytes: Largest body that is accepted, in bytes.

        Raises:
            NotAnswered: Status and headers are not acceptable.
        """
        self._receive, self._max_bytes = receive, max_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._raw_bytes = self._body_bytes = self._status = 0
        self._has_head = self._is_whole = self._closed = False
        while not self._has_head:
            self._feed()
        self._check_head()

    @property
    def status(self) -> int:
        """The HTTP status code; never an interim response (1xx) or a redirect (3xx)."""
        return self._status

    @property
    def keeps_connection(self) -> bool:
        """Whether the response has been read to its end and its connection can be used for another request."""
        return self._is_whole and not self._closed and self._parser.should_keep_alive()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body in pieces, as they arrive.

        Raises:
            NotAnswered: The body is longer than accepted, or differs from what was announced.
        """
        while True:
            if self._body:
                piece, self._body = bytes(self._body), bytearray()
                yield piece
            elif self._is_whole:
                return
            else:
                self._feed()

    def body(self) -> bytes:
        """Return the whole body.

        Raises:
            NotAnswered: The body is longer than accepted, or differs from what was announced.
        """
        return b"".join(self.pieces())

    # --- called by the parser

    def on_message_begin(self) -> None:
        """Refuse a second response to one request."""
        if self._is_whole:
            raise ValueError("there is more after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header in lower case; trailers are dropped."""
        if not self._has_head:
            self._headers[name.lower()] = value.strip().lower()

    def on_headers_complete(self) -> None:
        """Handle the end of the headers of the response, or of an interim response (RFC 9110, section 15.2)."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._headers.clear()
        else:
            self._status, self._has_head = status, True

    def on_body(self, piece: bytes) -> None:
        """Append a piece of the body to the buffer."""
        self._body += piece
        self._body_bytes += len(piece)

    def on_message_complete(self) -> None:
        """Handle the end of the response."""
        self._is_whole = self._has_head

    # --- reading

    def _feed(self) -> None:
        """Receive and parse more bytes, within the limits."""
        data = self._receive()
        if not data:
            self._end()
            return
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise NotAnswered("switches to another protocol, which was not requested") from error
        except httptools.HttpParserError as error:
            raise NotAnswered(f"does not answer by HTTP/1.1: {error.__context__ or error}") from error
        if self._raw_bytes > MAX_HEAD and not self._has_head:
            raise NotAnswered(f"sends more than {MAX_HEAD} bytes of headers and interim answers")
        if self._body_bytes > self._max_bytes:
            raise self._too_long()
        # Each chunk costs a call of `on_body`: 1 MiB in chunks of one byte would hold the GIL for about a second.
        if self._raw_bytes - self._body_bytes > MAX_HEAD + self._body_bytes // 4:
            raise NotAnswered(
                "sends its answer in chunks that are too small, or with headers that are too long"
            )

    def _end(self) -> None:
        """Handle the end of the connection, which ends a body without a length (RFC 9112, section 6.3)."""
        has_end = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if not self._has_head or has_end:
            raise NotAnswered("ends the connection before the end of its answer")
        self._is_whole = self._closed = True

    def _check_head(self) -> None:
        """Refuse status and headers that are not acceptable."""
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1") or self._status < 200:
            raise NotAnswered(f"does not answer by HTTP/1.1: version {version}, status {self._status}")
        if 300 <= self._status < 400:
            raise NotAnswered(f"answers with a redirect ({self._status}), which is not followed")
        for name in (b"content-encoding", b"transfer-encoding"):
            coding = self._headers.get(name, b"")
            if coding not in (b"", b"identity" if name == b"content-encoding" else b"chunked"):
                shown = coding[:40].decode("latin-1")
                raise NotAnswered(
                    f"answers with a body encoded as {shown!r}, although a plain one was requested"
                )
        # Digits alone, as the parser has seen; Python converts no more than 4,300 of them, leading zeros included.
        length = self._headers.get(b"content-length", b"").lstrip(b"0") or b"0"
        if self._status not in _BODILESS and int(length) > self._max_bytes:
            raise self._too_long()

    def _too_long(self) -> NotAnswered:
        return NotAnswered(f"answers with more than {self._max_bytes} bytes, the most that is accepted")
