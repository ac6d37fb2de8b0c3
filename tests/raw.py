"""Bytes to a server, and those that it answers."""

import socket
from typing import Final

PATIENCE_S: Final = 30.0


def connect(port: int) -> socket.socket:
    """A connection to a port of this host."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    rest = b""
    try:
        while more := connection.recv(65536):
            rest += more
    except ConnectionResetError:
        return rest  # closed with bytes of ours unread
    return rest


def answer_to(port: int, raw: bytes) -> bytes:
    """All that is answered; the server must close, or be asked to."""
    with connect(port) as client:
        client.sendall(raw)
        return rest_of(client)
