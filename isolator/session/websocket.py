"""A WebSocket to the scheduler, as RFC 6455 has it for a client: binary messages, no extension, no fragments.

Executors run with nothing but Python's own library, so this is here: the least of it. Who is at the other end sends a
ping every 20 s; who sends nothing for `SILENT_S` is gone.
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

CACERT: Final = "MESOS_GPU_SCHEDULER_CACERT"  # the operator's word on which authorities
SILENT_S: Final = 50.0
OPEN_S: Final = 20.0  # for the connection and its handshakes
_MAX_HEAD: Final = 1 << 14
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE, _PING, _PONG = 0x2, 0x8, 0x9, 0xA
_FINAL: Final = 0x80
_MASKED: Final = 0x80


class Lost(OSError):
    """The connection is over, whoever ended it."""


class WebSocket:
    """A connection. One thread may receive, several may send."""

    def __init__(self, line: socket.socket | SharedTls, most: int) -> None:
        """Over what is connected, after its handshake. `most`: bytes of a message that is received."""
        self._line, self._most = line, most
        self._turn = threading.Lock()  # to send
        self._kept = b""  # what came and was not asked for yet

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            Lost: It cannot be sent.
        """
        self._send(_BINARY, message)

    def receive(self) -> bytes:
        """Wait for a message.

        Raises:
            Lost: There will be none.
            ValueError: What comes is no message of a server that keeps to the above.
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
                raise Lost("it was closed by the scheduler")
            elif opcode != _PONG:
                raise ValueError(f"the scheduler sent a frame of kind {opcode}")

    def close(self) -> None:
        """Say that it is over, and end it."""
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
                raise Lost(f"it cannot be sent to: {error}") from error

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
            raise Lost("it was ended by the scheduler")
        return piece


def masked(body: bytes, key: bytes) -> bytes:
    """Bytes as clients send them (RFC 6455, section 5.3), and back."""
    size = len(body)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(body, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


def dial(url: str, path: str, proof: str, pin: str, most: int) -> WebSocket:
    """Connect, see who is there, and prove who comes.

    Args:
        url: Of the scheduler.
        path: Of the channel.
        proof: Of who comes.
        pin: The SHA-256 of the certificate to see there; "": one that the authorities of this
            host, or those of `CACERT`, vouch for.
        most: As of `WebSocket`.

    Raises:
        OSError: Nobody is there, or another one, or it refuses.
        ValueError: What is there speaks no HTTP.
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
    if pin:  # that very certificate, whoever signed it and whatever its names are
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    line = context.wrap_socket(plain, server_hostname=host)
    shown = hashlib.sha256(line.getpeercert(binary_form=True) or b"").hexdigest()
    if pin and shown != pin:
        line.close()
        raise OSError(f"{host} shows another certificate than the scheduler's: {shown}")
    return line


def _shake_hands(line: socket.socket, place: str, path: str, proof: str) -> None:
    key = base64.b64encode(os.urandom(16))
    head = (
        f"GET {path} HTTP/1.1\r\nHost: {place}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\nAuthorization: Bearer {proof}\r\n\r\n"
    )
    line.sendall(head.encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):  # byte by byte: what follows is not of the head
        byte = line.recv(1)
        if not byte or len(answer) > _MAX_HEAD:
            raise OSError("the scheduler ended the connection before it answered")
        answer += byte
    status, *fields = answer.decode("latin-1").split("\r\n")
    if status.split(" ")[1:2] != ["101"]:
        raise OSError(f"the scheduler answers {status[9:60]!r}: the channel is taken, or its time is over")
    accept = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest()).decode()
    said = {
        name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)
    }
    if said.get("sec-websocket-accept") != accept:
        raise ValueError("what answers is no WebSocket")
