"""Mesos agents controlled by an attacker, with random responses from a seed."""

import asyncio
import gzip
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

HANG_S: Final = 3600.0  # seconds; longer than any request may wait
PAUSE_S: Final = 0.4  # seconds between two bytes of a slow response
MIB: Final = 1 << 20
PAGE: Final = b'{"data":"output of the job\\n","offset":0}'
END: Final = b'{"data":"","offset":18}'
JSON: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BOMB: Final = gzip.compress(bytes(64 * MIB), 9)
Kind = Callable[["Hostile", random.Random], AsyncIterator[bytes]]


def whole(body: bytes, head: bytes = JSON) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def honest(head: bytes) -> bytes:
    """Return the response of a real Mesos agent for a sandbox with one file."""
    return whole(PAGE if b"offset=0" in head else END)


class Hostile:
    """A hostile agent on a port of this host; the seed determines the order of the given kinds of responses.

    Attributes:
        answers: Number of started responses by kind.
        trap: Address of this host to which no redirect may lead a client.
        trapped: Number of connections to `trap`.
    """

    def __init__(self, seed: int, kinds: tuple[str, ...] = (), *, hang_s: float = HANG_S) -> None:
        self.answers, self.trapped, self.trap = Counter[str](), 0, ""
        self.hang_s = hang_s
        self._kinds = kinds or tuple(KINDS)
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hostile agent")
        self._over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Close all connections and the listening socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        agent = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=512)
        trap = await asyncio.start_server(self._trap, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{agent.sockets[0].getsockname()[1]}"
        self.trap = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/secret"
        self._ready.set()
        await self._over.wait()
        for each in (agent, trap):
            each.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)  # until all are closed

    async def _trap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.trapped += 1
        writer.write(whole(b'{"data":"CANARY","offset":0}'))
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                kind = self._random.choice(self._kinds)
                self.answers[kind] += 1
                if kind == "good":
                    writer.write(honest(head))
                    await writer.drain()
                    continue
                async for piece in KINDS[kind](self, self._random):
                    writer.write(piece)
                    await writer.drain()
                if kind == "reset":
                    linger = b"\1\0\0\0\0\0\0\0"
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            return  # the scheduler has closed the connection, or the test is over
        finally:
            writer.close()


async def redirect(agent: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    to = chance.choice([agent.trap, agent.url + "/again", "//127.0.0.1:1/", "file:///etc/passwd"])
    status = chance.choice([300, 301, 302, 303, 304, 305, 307, 308])
    yield whole(b"", b"HTTP/1.1 %d Found\r\nLocation: %s\r\n" % (status, to.encode()))


async def bomb(_: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    coding = chance.choice([b"gzip", b"deflate", b"x-gzip", b"gzip, gzip", b"GZIP", b"br"])
    name = chance.choice([b"Content-Encoding", b"content-encoding", b"Transfer-Encoding"])
    yield JSON + b"%s: %s\r\n\r\n" % (name, coding) + BOMB


async def drip(agent: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    answer = whole(PAGE)
    begin = chance.choice([0, 5, 30, answer.index(b"\r\n\r\n") + 4])
    yield answer[:begin]
    for at in range(begin, len(answer)):
        await asyncio.sleep(PAUSE_S)
        yield answer[at : at + 1]
    await asyncio.sleep(agent.hang_s)


async def hang(agent: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    yield chance.choice([b"", b"H", JSON, whole(PAGE)[:-1]])
    await asyncio.sleep(agent.hang_s)


async def endless(_: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    head, piece = chance.choice(
        [
            (JSON + b"\r\n", b"x" * 65536),
            (JSON + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536),
            (JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"[" * 65536 + b"\r\n"),
            (JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n[\r\n" * 9000),
            (JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: more\r\n" * 4000),
            (JSON, b"X-More: header\r\n" * 4000),
            (JSON + b"X-Long: ", b"y" * 65536),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
            (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2000),
            (b"HTTP/1.1 200 ", b"O" * 65536),
            (b"", b"\r\n" * 30000),
        ]
    )
    yield head
    for _times in range(4096):
        yield piece


async def wrong(_: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    short, size = PAGE[:-7], len(PAGE)
    yield chance.choice(
        [
            JSON + b"Content-Length: %d\r\n\r\n" % size + short,
            JSON + b"Content-Length: %d\r\n\r\n" % (size - 7) + PAGE,
            JSON + b"Content-Length: -1\r\n\r\n" + PAGE,
            JSON + b"Content-Length: 1e3\r\n\r\n" + PAGE,
            JSON + b"Content-Length: 99999999999999999999999\r\n\r\n" + PAGE,
            JSON + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + PAGE,
            JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
            JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + PAGE,
            JSON + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + PAGE,
            JSON + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n" + PAGE,
            JSON + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
            JSON + b"Transfer-Encoding: xchunked\r\n\r\n" + PAGE,
            PAGE,  # HTTP/0.9
            b"HTTP/0.9 200 OK\r\n\r\n" + PAGE,
            b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 999999 OK\r\n\r\n",
            b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + PAGE,
            b"HTTP/1.1 199 What\r\n\r\n",
            b"ICY 200 OK\r\n\r\n",
            b"",
            chance.randbytes(chance.randrange(1, 3000)),
            whole(PAGE) + whole(PAGE),
        ]
    )


async def nonsense(_: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    body = chance.choice(
        [
            b"[" * MIB,
            b'{"data":' * 100_000,
            b'{"data":"x","offset":%d}' % chance.choice([-1, 10**30, 2**63]),
            b'{"data":"x","offset":1e999}',
            b'{"data":null,"offset":null}',
            b'{"data":"\\ud800","offset":0}',
            b'{"data":"\\u20ac","offset":0}',
            b'{"data":"%s","offset":0}' % (b"x" * MIB),
            b'{"data":"%s","offset":0}' % (b"\\u0000" * 100_000),
            b'{"data":"[mesos-gpu] 99999999 bytes of this log were cut off here: ","offset":0}',
            b'[{"path":"/../..","mode":"-","mtime":1e308,"size":-5}]',
            b'{"frameworks":[{"id":"fw","executors":[{"id":"x","directory":7}]}]}',
            b"<html>" + b"x" * 1000,
            b"",
            b"7" * 100_000,
            chance.randbytes(chance.randrange(1, 3000)),
            json.dumps({"data": "x" * chance.randrange(1, 100_000), "offset": 0}).encode(),
        ]
    )
    yield whole(body)


async def status(_: Hostile, chance: random.Random) -> AsyncIterator[bytes]:
    code = chance.choice([200, 201, 204, 206, 400, 401, 403, 404, 404, 429, 500, 503, 599])
    yield whole(b"", b"HTTP/1.1 %d X\r\nWWW-Authenticate: Basic\r\nRetry-After: 99999\r\n" % code)


async def closed(_: Hostile, __: random.Random) -> AsyncIterator[bytes]:
    for piece in list[bytes]():
        yield piece


#: Kinds of responses; `good` is the response of a real Mesos agent.
KINDS: Final[dict[str, Kind]] = {
    "redirect": redirect,
    "bomb": bomb,
    "endless": endless,
    "wrong": wrong,
    "nonsense": nonsense,
    "status": status,
    "closed": closed,
    "reset": closed,
    "good": closed,
    "drip": drip,
    "hang": hang,
}
QUICK: Final = tuple(kind for kind in KINDS if kind not in ("drip", "hang"))
