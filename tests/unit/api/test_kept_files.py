"""The route to what a job left: paths, and how many copies there are at once."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.channel import kept
from mesos_gpu.api.channel.kept import KeptFiles, path_of
from mesos_gpu.api.channel.within import LocalLine
from mesos_gpu.api.http import rights
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.ids import JobId
from mesos_gpu.wire.channel import tree


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "a\0b", "x" * 300])
def test_kept_file_path_outside_is_refused(path: str) -> None:
    with pytest.raises(Refusal):
        path_of(path)


@pytest.mark.parametrize(
    ("path", "names"),
    [("", ()), (".", ()), ("a//b/", ("a", "b")), ("a/../b", ("b",)), ("/mnt/mesos/sandbox/a", ("a",))],
)
def test_kept_file_path_inside_is_a_list_of_names(path: str, names: tuple[str, ...]) -> None:
    assert path_of(path) == names


class Line:
    """A line to a host that has sent one record, and sends no more until it is closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def output(self) -> AsyncIterator[bytes]:
        yield tree.end()
        await self.closed.wait()

    async def close(self) -> None:
        self.closed.set()


class Hosts:
    """A scheduler in which every job ended on `host`, and the opener of lines to that host."""

    def __init__(self) -> None:
        self.host = "h1"

    def read(self, _fn: object) -> "Future[Any]":
        answer = Future[Any]()
        answer.set_result((SimpleNamespace(id="j"), "monitor", "kept", self.host))
        return answer

    async def within(self, *_: object) -> Line:
        return Line()


def asked(name: str) -> Request:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client stays")

    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", "path_params": {"id": "j"}}
    caller = Caller(name, frozenset(), Proof.TOKEN)
    rights.put(scope, lambda: Rights(AccessDocument(), caller))
    return Request(scope, receive)


def test_copies_are_bounded_per_caller_and_host_from_their_begin_to_their_end() -> None:
    hosts = Hosts()
    handler = KeptFiles(hosts, hosts)  # type: ignore[arg-type]

    async def full(name: str, words: str) -> None:
        with pytest.raises(Refusal, match=words) as error:
            await handler.read(asked(name))
        assert (error.value.http_status, error.value.headers) == (429, {"Retry-After": "1"})

    async def copy(name: str, host: str) -> Response:
        hosts.host = host
        return await handler.read(asked(name))

    async def copies() -> None:
        first, *_ = [await copy("ann", f"h{number}") for number in range(1, 5)]
        hosts.host = "h5"
        await full("ann", "4 copies out of sandboxes of 'ann' are in progress, the maximum for one caller")
        for number in range(7):
            await copy(f"bob{number}", "h1")
        await full("eve", "8 copies out of sandboxes at h1 are in progress, the maximum for one host")
        await copy("eve", "h2")

        async def gone(_message: Message) -> None:
            raise OSError("the client has gone")

        with pytest.raises(OSError, match="the client has gone"):
            await first(asked("ann").scope, asked("ann").receive, gone)
        await copy("ann", "h1")

    asyncio.run(copies())


def test_copies_of_one_caller_from_one_host_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host reads for two at a time: both could be those of one caller who reads slowly."""
    hosts = Hosts()
    handler = KeptFiles(hosts, hosts)  # type: ignore[arg-type]

    async def gone(_message: Message) -> None:
        raise OSError("the client has gone")

    async def copies() -> None:
        first = await handler.read(asked("ann"))
        monkeypatch.setattr(kept, "TURN_S", 0.05)
        with pytest.raises(Refusal, match="another copy of 'ann' out of a sandbox at h1") as error:
            await handler.read(asked("ann"))
        assert error.value.http_status == 429
        monkeypatch.setattr(kept, "TURN_S", 60.0)
        await handler.read(asked("bob"))
        second = asyncio.create_task(handler.read(asked("ann")))
        with pytest.raises(OSError, match="the client has gone"):
            await first(asked("ann").scope, asked("ann").receive, gone)
        await second

    asyncio.run(copies())


def test_kept_file_of_a_silent_host_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FIRST_S", 0.1)
    with pytest.raises(Unavailable, match="sent nothing in"):
        asyncio.run(kept._first(LocalLine().output(), JobId("j")))
