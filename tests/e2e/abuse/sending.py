"""Fuzzing client of a scheduler, in a process of its own: random malformed requests from a seed."""

import asyncio
import json
import multiprocessing as mp
import random
import re
import socket
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

from starlette.routing import Route

from tests.contract.fuzz.making import RAW, Asked, Maker
from tests.contract.fuzz.test_fuzz_raw import WHOLE, spoilt
from tests.contract.rig import Rig

AT_ONCE: Final = 16  # connections
ADDRESSES: Final = [f"127.0.1.{n}" for n in range(1, 9)]
ANSWER_S: Final = 30.0  # for a request that is whole
QUIET_S: Final = 0.15  # without a further byte, an answer is taken to be complete
PAUSE_S: Final = 0.1  # of a slow client
HEAD: Final = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DEEP: Final = (
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b'{"env":' + b"[" * 70 + b"]" * 70 + b"}",
    b'{"a":"' + b"\\u0000" * 9000 + b'"}',
    '{"command":"\U0001f600"}'.encode("utf-16"),
    b'{"command":"\xed\xa0\x80"}',
    b'{"command":"\xc0\xaf\xff"}',
    b'{"command":["a",{"b":1}],"gpus":"many","cpus":[],"env":7,"name":{}}',
    b'{"gpus":1e400,"cpus":-0,"mem_mib":1e-400}',
    b'{"env":{' + b",".join(b'"k%d":"v"' % n for n in range(12_000)) + b"}}",
)
CHUNKS: Final = (
    b"zz\r\n{}\r\n0\r\n\r\n",
    b"-1\r\n{}\r\n",
    b"ffffffffffffffffff\r\n{}",
    b"2\r\n{}0\r\n\r\n",
    b"2;x=" + b"y" * 9000 + b"\r\n{}\r\n0\r\n\r\n",
    b"1\r\n{\r\n" * 200 + b"0\r\n\r\n",
    b"2\r\n{}\r\n0\r\nContent-Length: 5\r\nX: y\r\n\r\n",
    b"\r\n\r\n",
    b"0x2\r\n{}\r\n0\r\n\r\n",
    b"2\n{}\n0\n\n",
)
HEADS: Final = (
    b"X: " + b"x" * 100_000,
    b"\r\n".join(b"X-%d: y" % n for n in range(300)),
    b"X" * 20_000 + b": y",
    b"X : y",
    b": y",
    b"X\0: y",
    b"Content-Length: 2\r\nContent-Length: 3",
    b"Content-Length: 2\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 0x2",
    b"Cookie: " + b"a=b; " * 3000,
    b"Host: a\r\nHost: b",
    b" folded: x",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    + b"A" * 22
    + b"==",
    b"Authorization: Basic \xff\xfe",
    b"Authorization: Bearer " + b"x" * 15_000,
    b"X-Forwarded-For: " + b"1.2.3.4, " * 1000,
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Range: bytes=0-, -1, x",
    b'If-Match: "' + b"1" * 9000 + b'"',
)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Data for one connection: `parts`, sent with a pause between them, with `count` requests in all."""

    parts: tuple[bytes, ...]
    count: int = 1
    is_whole: bool = True  # an answer is certain


@dataclass(slots=True)
class Sender:
    """Generator and sender of requests.

    Attributes:
        statuses: Number of answers by status.
        defects: Answers with status 500 or that are not HTTP, each with the data that was sent.
    """

    port: int
    chance: random.Random
    maker: Maker
    statuses: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    sent: int = 0

    def make(self) -> Bytes:
        """Return the data for the next connection."""
        chance = self.chance
        match chance.choices(range(8), (52, 12, 4, 14, 6, 5, 5, 2))[0]:
            case 0:
                return Bytes((self._request(close=True),))
            case 1:
                raw = spoilt(chance) if chance.random() < 0.5 else self._cut(self._request(close=True))
                return Bytes((raw,), is_whole=False)
            case 2:
                return Bytes((chance.randbytes(chance.randint(1, 3000)),), is_whole=False)
            case 3:
                count = chance.randint(2, 20)
                each = [self._request(close=n == count - 1) for n in range(count)]
                return Bytes((b"".join(each),), count, is_whole=False)
            case 4:
                chunks = chance.choice(CHUNKS)
                return Bytes((HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,), is_whole=False)
            case 5:
                head = chance.choice(HEADS) + (b"" if chance.random() < 0.5 else b"\r\nContent-Length: 2")
                return Bytes((HEAD + head + b"\r\n\r\n{}" + chance.randbytes(20),), is_whole=False)
            case 6:
                body = chance.choice(DEEP + RAW)
                return Bytes((HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body,))
            case _:
                raw = chance.choice((*WHOLE, self._request(close=True)))
                at = sorted(chance.choices(range(len(raw) + 1), k=2))
                parts = (raw[: at[0]], raw[at[0] : at[1]], raw[at[1] :])[: chance.randint(1, 3)]
                return Bytes(parts, is_whole=False)

    def send(self, count: int) -> None:
        """Send a number of requests over several connections at once. All are made before, so that they depend on the
        seed alone."""
        self.maker.ids = _there(self.port)
        wanted, waiting = self.sent + count, deque[tuple[Bytes, str]]()
        while self.sent < wanted:
            waiting.append((self.make(), self.chance.choice(ADDRESSES)))
            self.sent += waiting[-1][0].count
        asyncio.run(self._send(waiting))

    async def _send(self, waiting: "deque[tuple[Bytes, str]]") -> None:
        async def go_on() -> None:
            while waiting:
                made, source = waiting.popleft()
                self._note(made, await self._answer(made, source))

        await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))

    async def _answer(self, made: Bytes, source: str) -> bytes:
        said = b""
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, local_addr=(source, 0), limit=1 << 22
            )
        except OSError:
            return said  # the backlog was full
        try:
            for n, part in enumerate(made.parts):
                if n:
                    await asyncio.sleep(PAUSE_S)
                writer.write(part)
                await writer.drain()
            while data := await asyncio.wait_for(
                reader.read(1 << 16), ANSWER_S if made.is_whole and not said else QUIET_S
            ):
                said += data
        except (OSError, TimeoutError):
            pass  # the request was cut off, or the server waits for more
        finally:
            writer.transport.abort()
        return said

    def _note(self, made: Bytes, said: bytes) -> None:
        statuses = [each.decode() for each in re.findall(rb"HTTP/1\.1 (\d\d\d) [A-Z]", said)]
        self.statuses.update(statuses or ["none"])
        if "500" in statuses or (said and not said.startswith(b"HTTP/1.1 ")):
            self.defects.append(f"{b''.join(made.parts)[:2000]!r}: {said[:1000]!r}")

    def _request(self, *, close: bool) -> bytes:
        return raw_of(self.maker.make(), close=close)

    def _cut(self, raw: bytes) -> bytes:
        at = self.chance.randrange(len(raw))
        return raw[:at] + self.chance.choice((b"", b"\0", b"\r\n", self.chance.randbytes(3))) + raw[at + 1 :]


def raw_of(asked: Asked, *, close: bool) -> bytes:
    """Encode a request. `close`: whether it is the last on its connection."""
    lines = [b"%s %s HTTP/1.1" % (asked.verb.encode(), asked.target.encode("utf-8", "replace"))]
    lines += [b"%s: %s" % each for each in asked.headers] + ([b"connection: close"] if close else [])
    is_chunked = any(name == b"transfer-encoding" for name, _ in asked.headers)
    body = b"".join(asked.chunks)
    if is_chunked:
        body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in asked.chunks if each) + b"0\r\n\r\n"
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@contextmanager
def fuzzing(port: int, seed: int) -> Iterator[Connection]:
    """A sender in a process of its own.

    For each number received, it sends that many requests and then returns their statuses and defects.
    """
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_serve, args=(there, port, seed))
    child.start()
    there.close()
    try:
        yield here
    finally:
        child.kill()
        child.join()
        here.close()


def sender_of(port: int, seed: int) -> Sender:
    """Return a sender of requests for all routes of a scheduler."""
    rig = Rig()
    # Webhooks would have the scheduler connect to what the requests name.
    routes = [each for each in rig.app.routes if isinstance(each, Route) and "/webhooks" not in each.path]
    rig.close()
    chance = random.Random(seed)
    return Sender(port, chance, Maker(chance, routes))


def _serve(pipe: Connection, port: int, seed: int) -> None:
    sender = sender_of(port, seed)
    while True:
        sender.send(int(pipe.recv()))
        pipe.send((sender.sent, sender.statuses, sender.defects))


def _there(port: int) -> Mapping[str, Sequence[str]]:
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as client:
        client.sendall(b"GET /v1/jobs?limit=20 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: client.recv(1 << 16), b""))
    jobs = [job["id"] for job in json.loads(said.partition(b"\r\n\r\n")[2])["jobs"]]
    return {
        "/v1/jobs": jobs,
        "/v1/why": jobs,
        "/v1/plan": jobs,
        "/v1/access": ["0", "1"],
        "/static": ["app.js"],
    }
