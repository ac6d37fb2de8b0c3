"""WebSocket client for the scheduler (RFC 6455): binary messages, without extensions or fragments.

Executors have only Python's own library, hence this minimal implementation. The server sends a ping every 20
s; a server that is silent for `SILENT_S` is treated as gone.
"""

import base64
import hashlib
import os
import select
import socket
import ssl
import struct
import threading
from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.adapters.tls.shared import SharedTls

CACERT: Final = "MESOS_GPU_SCHEDULER_CACERT"  # file of certificate authorities that the operator trusts
SILENT_S: Final = 50.0
OPEN_S: Final = 20.0  # time limit for the connection and its handshakes
_MAX_HEAD: Final = 1 << 14
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE, _PING, _PONG = 0x2, 0x8, 0x9, 0xA
_FINAL: Final = 0x80
_MASKED: Final = 0x80


class Lost(OSError):
    """Error: the connection has ended, whichever side ended it."""


class WebSocket:
    """A connection. One thread may receive, several may send.

    Args:
        line: Connected socket, after the handshake.
        most: Most bytes of a message that is received.
    """

    def __init__(self, line: socket.socket | SharedTls, most: int) -> None:
        self._line, self._most = line, most
        self._turn = threading.Lock()  # held while sending
        self._kept = b""  # bytes that were received, but not used yet

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            Lost: It cannot be sent.
        """
        self._send(_BINARY, message)

    def receive(self) -> bytes:
        """Wait for a message.

        Raises:
            Lost: The connection has ended.
            ValueError: The frame is invalid, or not supported.
        """
        while True:
            first, second = self._exactly(2)
            size = second & 0x7F
            if first & 0x70 or second & _MASKED or not first & _FINAL:
                raise ValueError("a frame of the scheduler is masked, extended or a fragment")
            if size >= 126:
                size = int.from_bytes(self._exactly(2 if size == 126 else 8), "big")
            if size > self._most:
                raise ValueError(f"a frame of the scheduler has {size} bytes; at most {self._most}")
            body = self._exactly(size)
            opcode = first & 0xF
            if opcode == _BINARY:
                return body
            if opcode == _PING:
                self._send(_PONG, body)
            elif opcode == _CLOSE:
                raise Lost("the scheduler closed the connection")
            elif opcode != _PONG:
                raise ValueError(f"the scheduler sent a frame of kind {opcode}")

    def close(self) -> None:
        """Send a close frame, and close the connection."""
        try:
            self._send(_CLOSE, struct.pack("!H", 1000))
        except Lost:
            return
        finally:
            self._line.close()

    def _send(self, opcode: int, body: bytes) -> None:
        key = os.urandom(4)
        size = len(body)
        if size < 126:
            head = struct.pack("!BB", _FINAL | opcode, _MASKED | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", _FINAL | opcode, _MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", _FINAL | opcode, _MASKED | 127, size)
        with self._turn:
            try:
                self._line.sendall(head + key + masked(body, key))
            except OSError as error:
                raise Lost(f"the connection cannot be written: {error}") from error

    def _exactly(self, size: int) -> bytes:
        pieces, left = [self._kept[:size]], size - len(self._kept[:size])
        self._kept = self._kept[size:]
        while left:
            piece = self._some()
            pieces.append(piece[:left])
            self._kept = piece[left:]
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _some(self) -> bytes:
        try:
            waits = isinstance(self._line, SharedTls) and self._line.pending()
            if not waits and not select.select([self._line], [], [], SILENT_S)[0]:
                raise Lost(f"the scheduler was silent for {SILENT_S:g} s")
            piece = self._line.recv(1 << 17)
        except (OSError, ValueError) as error:  # ValueError: another thread has closed it
            raise Lost(str(error)) from error
        if not piece:
            raise Lost("the scheduler ended the connection")
        return piece


def masked(body: bytes, key: bytes) -> bytes:
    """Mask or unmask bytes of a client (RFC 6455, section 5.3)."""
    size = len(body)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(body, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


def dial(url: str, path: str, proof: str, pin: str, most: int) -> WebSocket:
    """Connect, verify the server, and authenticate this client.

    Args:
        url: URL of the scheduler.
        path: Path of the channel.
        proof: Token of this client.
        pin: SHA-256 of the expected certificate; "" for any that the authorities of this host, or those in
            `CACERT`, have signed.
        most: Most bytes of a message that is received.

    Raises:
        OSError: No server answers, it is another one, or it refuses.
        ValueError: The server does not speak HTTP.
    """
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    line = socket.create_connection((host, parts.port or (443 if secure else 80)), OPEN_S)
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secure:
            line = _secured(line, host, pin)
        _shake_hands(line, parts.netloc, path, proof)
        line.settimeout(None)
    except BaseException:
        line.close()
        raise
    return WebSocket(SharedTls(line) if isinstance(line, ssl.SSLSocket) else line, most)


def _secured(plain: socket.socket, host: str, pin: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=None if pin else os.environ.get(CACERT) or None)
    if pin:  # exactly this certificate, whatever its issuer and names
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    line = context.wrap_socket(plain, server_hostname=host)
    shown = hashlib.sha256(line.getpeercert(binary_form=True) or b"").hexdigest()
    if pin and shown != pin:
        line.close()
        raise OSError(f"{host} shows another certificate than the scheduler's: SHA-256 {shown}")
    return line


def _shake_hands(line: socket.socket, place: str, path: str, proof: str) -> None:
    key = base64.b64encode(os.urandom(16))
    head = (
        f"GET {path} HTTP/1.1\r\nHost: {place}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\nAuthorization: Bearer {proof}\r\n\r\n"
    )
    line.sendall(head.encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):  # byte by byte, so that no byte after the head is consumed
        byte = line.recv(1)
        if not byte or len(answer) > _MAX_HEAD:
            raise OSError("the scheduler ended the connection before it answered")
        answer += byte
    status, *fields = answer.decode("latin-1").split("\r\n")
    if status.split(" ")[1:2] != ["101"]:
        raise OSError(f"the scheduler answers {status[9:60]!r}: the session is taken already, or has expired")
    accept = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest()).decode()
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)
    }
    if headers.get("sec-websocket-accept") != accept:
        raise ValueError("the server does not speak WebSocket")
