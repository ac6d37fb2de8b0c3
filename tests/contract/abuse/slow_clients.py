"""Clients of an HTTP server that keep it waiting: many connections, on each of which hardly anything goes on."""

import contextlib
import multiprocessing as mp
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum
from multiprocessing.connection import Connection
from typing import Final, Self

PAUSE_S: Final = 0.5  # between two bytes
AGAIN_S: Final = 5.0  # after its end
CONNECT_S: Final = 30.0
_RECEIVE: Final = 4096  # bytes that the kernel takes for a client that reads nothing
_HOST: Final = b"Host: 127.0.0.1\r\n"


class Slowness(Enum):
    """What such a client is slow with, and how it begins."""

    HEAD = b"GET /v1/jobs HTTP/1.1\r\n" + _HOST + b"X-Slow: "
    BODY = (
        b"POST /v1/jobs HTTP/1.1\r\n"
        + _HOST
        + b"Content-Type: application/json\r\nContent-Length: 99999\r\n\r\n{"
    )
    READER = (b"GET /v2/apps HTTP/1.1\r\n" + _HOST + b"\r\n") * 15  # it reads none of them


class SlowClients:
    """So many at once, on a thread; one that the server ends comes again.

    Attributes:
        ended: How often the server ended one.
    """

    def __init__(
        self,
        port: int,
        count: int,
        slowness: Slowness,
        source: str = "127.0.0.1",
        *,
        again_s: float = AGAIN_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Connect them all. `again_s`: after its end; `pause_s`: between two bytes."""
        self._again_s, self._pause_s = again_s, pause_s
        self._port, self._slowness, self._source, self.ended = port, slowness, source, 0
        self._over, self._later = threading.Event(), dict[int, float]()  # when each comes again
        self._clients = [self._connected() for _ in range(count)]
        self._thread = threading.Thread(target=self._run, name="slow clients")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self._clients:
            each.close()

    def _connected(self) -> socket.socket:
        client = socket.socket()
        client.settimeout(CONNECT_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE)
        client.bind((self._source, 0))
        try:
            client.connect(("127.0.0.1", self._port))
            client.sendall(self._slowness.value)
        except OSError:
            client.close()
            raise
        client.setblocking(False)
        return client

    def _run(self) -> None:
        while not self._over.is_set():
            for i, client in enumerate(self._clients):
                if self._over.is_set():
                    return
                if i in self._later:
                    if time.monotonic() >= self._later[i]:
                        del self._later[i]
                        with contextlib.suppress(OSError):
                            self._clients[i] = self._connected()
                elif not self._goes_on(client):
                    client.close()
                    self.ended += 1
                    self._later[i] = time.monotonic() + self._again_s
            self._over.wait(self._pause_s)

    def _goes_on(self, client: socket.socket) -> bool:
        """Send a byte, if that is what it does; whether the server is still there, and waits."""
        try:
            if self._slowness is Slowness.READER:
                return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            client.send(b" ")
            client.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # an answer: it waits no more


@contextlib.contextmanager
def flooded(port: int, count: int, slowness: Slowness, source: str) -> Iterator[list[int]]:
    """Such clients in a process of their own, which come again at once; afterwards the list has how often the server
    ended one."""
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_flood, args=(there, port, count, slowness, source))
    child.start()
    there.close()
    ended: list[int] = []
    try:
        assert here.recv() == "all are connected"
        yield ended
        here.send("stop")
        ended.append(here.recv())
        child.join(CONNECT_S)
    finally:
        child.kill()
        child.join()
        here.close()


def _flood(pipe: Connection, port: int, count: int, slowness: Slowness, source: str) -> None:
    with SlowClients(port, count, slowness, source, again_s=0.0, pause_s=0.05) as clients:
        pipe.send("all are connected")
        pipe.recv()
    pipe.send(clients.ended)
