"""Minimal HTTP/1.1 client for the agent and for a Docker Engine; bodies by length, in chunks, or to the end.

http.client would do; but with what it imports (email, ssl) it costs 24 ms of CPU, a third of an executor's
start, which is paid once for each task. `socket` costs 2 ms more than `_socket`, by enumerations that are not
needed here. Source: RFC 9112, sections 4 to 7.
"""

import _socket
from collections.abc import Mapping
from io import BufferedReader, RawIOBase
from typing import Any, Final

from isolator.agent.tls import AgentTls

MAX_LINE: Final = 65536


class ProtocolError(OSError):
    """Error: the server does not speak HTTP/1.1, or the connection broke off."""


class Response:
    """An answer, whose body is read in order by `read` and `readline`.

    Args:
        file: Stream at the status line; status line and header are read at once.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        words = _line(file).split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ProtocolError(f"not an answer of HTTP/1.1: {words!r}")
        self.status = int(words[1])
        header: dict[bytes, bytes] = {}
        while line := _line(file):
            name, _, value = line.partition(b":")
            header[name.strip().lower()] = value.strip()
        bodiless = self.status in (204, 304)  # RFC 9112, section 6.3: whatever the header says
        self._chunked = not bodiless and b"chunked" in header.get(b"transfer-encoding", b"").lower()
        length = header.get(b"content-length")
        empty = bodiless or self._chunked
        self._left: int | None = 0 if empty else None if length is None else int(length)
        self._ended = False

    def read(self, most: int | None = None) -> bytes:
        """Return `most` bytes, fewer only at the end; all that is left without `most`."""
        parts = []
        while most is None or most > 0:
            part = self._some(1 << 16 if most is None else most)
            if not part:
                break
            parts.append(part)
            most = None if most is None else most - len(part)
        return b"".join(parts)

    def readline(self) -> bytes:
        """Return the bytes up to and including the next newline; without one only at the end."""
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < MAX_LINE:
            byte = self._some(1)
            if not byte:
                break
            line += byte
        return bytes(line)

    def _some(self, most: int) -> bytes:
        if self._chunked and not self._left and not self._next_chunk():
            return b""
        if self._left is not None:
            most = min(most, self._left)
        data = self._file.read(most) if most else b""
        if self._left is not None:
            if len(data) < most:
                raise ProtocolError("the answer broke off")
            self._left -= len(data)
            if self._chunked and not self._left:
                _line(self._file)
        return data

    def _next_chunk(self) -> bool:
        if self._ended:
            return False
        try:
            self._left = int(_line(self._file).partition(b";")[0], 16)
        except ValueError as error:
            raise ProtocolError(f"not a chunk: {error}") from error
        if not self._left:
            self._ended = True
            while _line(self._file):
                pass  # trailers are not needed
        return not self._ended


class _Received(RawIOBase):
    """Stream of the bytes that a socket receives."""

    def __init__(self, connected: _socket.socket) -> None:
        self._connected = connected

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._connected.recv_into(buffer)


class HttpConnection:
    """Connection to HOST:PORT, or to a Unix socket by its path; it is opened by the first request.

    Args:
        address: HOST:PORT, or a path that begins with a slash.
        timeout_s: Seconds of each wait for the other side.
        tls: TLS settings; None for plain HTTP.
    """

    def __init__(self, address: str, timeout_s: float, tls: AgentTls | None = None) -> None:
        self._address, self._timeout_s, self._tls = address, timeout_s, tls
        self._socket: _socket.socket | None = None
        self._file: BufferedReader | None = None

    def connect(self) -> None:
        """Connect, unless connected.

        Raises:
            OSError: The other side does not answer.
        """
        if self._socket is None or self._file is None:
            self._socket = self._connected()
            self._file = BufferedReader(_Received(self._socket))

    def post(self, path: str, body: bytes, header: Mapping[str, str]) -> Response:
        """Send a POST request, see `request`."""
        return self.request("POST", path, body, header)

    def request(self, method: str, path: str, body: bytes, header: Mapping[str, str]) -> Response:
        """Send a request and read the head of its answer.

        Raises:
            OSError: The other side does not answer, breaks off, or does not speak HTTP.
        """
        self.connect()
        assert self._socket is not None
        assert self._file is not None
        host = "localhost" if self._address.startswith("/") else self._address
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in header.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return Response(self._file)

    def _connected(self) -> _socket.socket:
        if not self._address.startswith("/"):
            host, _, port = self._address.rpartition(":")
            if self._tls is not None:
                return self._tls.connect(host.strip("[]"), int(port), self._timeout_s)
            made = _to(host.strip("[]"), int(port), self._timeout_s)
            made.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            return made
        made = _socket.socket(_socket.AF_UNIX)
        try:
            made.settimeout(self._timeout_s)
            made.connect(self._address)
        except OSError:
            made.close()
            raise
        return made

    def wait_for_ever(self) -> None:
        """Set no time limit on reads from now on, as an agent promises its executors no heartbeats."""
        if self._socket is not None:
            self._socket.settimeout(None)

    def interrupt(self) -> None:
        """End a read in another thread."""
        connected = self._socket  # that thread may close it meanwhile
        if connected is not None:
            try:
                connected.shutdown(_socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._file is not None:
            self._file.close()
        if self._socket is not None:
            self._socket.close()
        self._socket, self._file = None, None


def _to(host: str, port: int, timeout_s: float) -> _socket.socket:
    """Connect by TCP. IPv4 addresses are not looked up, as that imports Unicode's rules for names."""
    if not host.replace(".", "").isdecimal():
        import socket

        return socket.create_connection((host, port), timeout_s)
    made = _socket.socket(_socket.AF_INET)
    try:
        made.settimeout(timeout_s)
        made.connect((host, port))
    except OSError:
        made.close()
        raise
    return made


def _line(file: BufferedReader) -> bytes:
    line = file.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        raise ProtocolError("the answer broke off")
    return line.rstrip(b"\r\n")
