"""Bytes that were requests once, on a real connection: the server answers or hangs up, and serves others on."""

import os
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from mesos_gpu.api.http import bounds
from tests.contract.abuse.test_raw import CHUNKED, JOB, LOOK, POST, REFUSALS
from tests.contract.fuzz.judging import no_traceback
from tests.contract.rig import Rig
from tests.raw import connect, rest_of

WHOLE: Final = (
    LOOK + b"\r\n",
    LOOK + b"Connection: close\r\n\r\n",
    POST + b"Content-Length: 18\r\n\r\n" + JOB,
    CHUNKED + b"12\r\n" + JOB + b"\r\n0\r\n\r\n",
    b"GET /v2/apps?embed=apps.tasks HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"DELETE /v1/jobs/none HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
    *(raw for raw, _ in REFUSALS.values()),
)
PIECES: Final = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b"\r\n\r\n", b"Content-Length: 5\r\n", b"Host: evil\r\n", b"\xff",
    b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"HTTP/1.1", b"/", b"%", b"Connection: upgrade\r\n", b"x" * 70_000,
)  # fmt: skip


def spoilt(chance: random.Random) -> bytes:
    """Change, add or take away bytes of one or two requests, or send them twice."""
    raw = bytearray(b"".join(chance.choices(WHOLE, k=chance.choice((1, 1, 2)))))
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, to = sorted(chance.choices(range(len(raw) + 1), k=2))
        match chance.randrange(5):
            case 0:
                raw[at : at + 1] = chance.randbytes(1)
            case 1:
                raw[at:at] = chance.choice(PIECES)
            case 2:
                del raw[at : min(to, at + 20)]
            case 3:
                raw[at:at] = raw[at : min(to, at + 200)]
            case 4:
                raw = raw.swapcase() if chance.random() < 0.1 else raw
    return bytes(raw)


def send(rig: Rig, raw: bytes) -> str:
    """The first status that bytes are answered with, if they are."""
    with connect(rig.server.port) as client:
        try:
            client.sendall(raw)
        except OSError:
            return "hung up"
        said = rest_of(client)
    assert not said or re.match(rb"HTTP/1\.1 [1-5]\d\d ", said), (raw, said)
    assert not re.search(rb"HTTP/1\.1 500 ", said), (raw, said)
    return said[9:12].decode() or "hung up"


def fuzz(rig: Rig, count: int) -> Counter[str]:
    """Send so many, and count what is answered."""
    chance = random.Random(int(os.environ.get("FUZZ_SEED", "7")))
    with no_traceback(), ThreadPoolExecutor(16) as pool:
        statuses = Counter(pool.map(lambda raw: send(rig, raw), (spoilt(chance) for _ in range(count))))
        assert rig.call("GET", "/v1/health").status_code == 200
    return statuses


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server wait for nobody for long."""
    for name in ("HEAD_S", "BODY_S", "KEEP_S"):
        monkeypatch.setattr(bounds, name, 0.2)


def test_fuzzed_bytes_of_requests_leave_the_server_well(rig: Rig) -> None:
    statuses = fuzz(rig, 500)
    assert statuses["400"] > 50
    assert statuses["200"] > 0


@pytest.mark.long
def test_fuzzed_bytes_of_many_requests_leave_the_server_well(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = fuzz(rig, 20_000)
    with capsys.disabled():
        print(f"\n{statuses.total()} times bytes, answered:", dict(sorted(statuses.items())))
