"""Peers of a channel that send very small frames, do not read, or go on after their right has ended."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

import pytest
from starlette.websockets import WebSocketDisconnect, WebSocketState
from websockets.frames import CloseCode, Frame, Opcode

from isolator.session.websocket import Lost, WebSocket
from mesos_gpu.api import websocket
from mesos_gpu.api.channel import relay
from mesos_gpu.api.channel.channels import Channel, Channels, end_for
from mesos_gpu.api.websocket import MAX_FRAMES, BoundedWebSocket
from mesos_gpu.wire.channel.frames import MAX_DATA, Kind, encode
from mesos_gpu.wire.channel.frames import Frame as ChannelFrame
from tests.conftest import wait_until
from tests.contract.channels.test_channels import Playing

pytestmark = pytest.mark.timeout(120)
BURST: Final = 1 << 17  # bytes: half of what asyncio reads at once
SMALL: Final = 4096  # bytes of a buffer


@pytest.fixture(scope="module")
def rig() -> Iterator[Playing]:
    rig = Playing()
    yield rig
    rig.close()


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    """Return the bytes of a client's frame."""
    return Frame(opcode, data, fin=fin).serialize(mask=True, extensions=[])


@contextlib.contextmanager
def unread(rig: Playing) -> Iterator[tuple[socket.socket, WebSocket]]:
    """Yield the socket of a client that reads nothing, and its host. Its buffers are small, so that they fill soon."""
    opened = rig.open()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.settimeout(60)
        client.connect(("127.0.0.1", rig.server.port))
        lines = [
            f"GET {opened.path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {opened.proof}",
            "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
        ]  # fmt: skip
        client.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        assert head.startswith(b"HTTP/1.1 101"), head
        protocol_of(rig, client).transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL
        )
        host = rig.host(opened)
        try:
            assert host.receive()[0] == Kind.ORDER
            yield client, host
        finally:
            host.close()


def protocol_of(rig: Playing, client: socket.socket) -> BoundedWebSocket:
    """Return the server's side of a client's connection."""
    every = list(rig.server._server.server_state.connections)
    channels = [each for each in every if isinstance(each, BoundedWebSocket)]
    return next(each for each in channels if each.client == client.getsockname())


def has(rig: Playing, connection: BoundedWebSocket) -> bool:
    """Return whether the server has a connection."""
    return connection in rig.server._server.server_state.connections


STDIN: Final = bytes((Kind.STDIN,))
CREDIT: Final = encode(ChannelFrame(Kind.CREDIT, numbers=(1,)))


@pytest.mark.parametrize(
    ("first", "small", "last"),
    [
        (b"", frame(Opcode.PING), frame(Opcode.BINARY, STDIN)),
        (b"", frame(Opcode.PONG), frame(Opcode.BINARY, STDIN)),
        (b"", frame(Opcode.BINARY, CREDIT), frame(Opcode.BINARY, STDIN)),
        (frame(Opcode.BINARY, STDIN, fin=False), frame(Opcode.PONG), frame(Opcode.CONT)),
    ],
    ids=["pings", "pongs", "messages", "within a message"],
)
def test_very_small_frames_delay_no_other_request(
    rig: Playing, first: bytes, small: bytes, last: bytes
) -> None:
    """Times would be those of this process, in which client, host and server take turns of the interpreter."""
    with unread(rig) as (client, host):
        protocol = protocol_of(rig, client)
        is_over, parsed = threading.Event(), [0]

        async def watch() -> None:
            while not is_over.is_set():
                before = len(protocol._held)
                await asyncio.sleep(0)
                parsed.append(before - len(protocol._held))

        def send() -> None:
            try:
                client.sendall(first + small * (BURST // len(small)) + last)
                while host.receive()[0] != Kind.STDIN:
                    pass
            finally:
                is_over.set()

        watching = asyncio.run_coroutine_threadsafe(watch(), protocol.loop)
        sender = threading.Thread(target=send)
        sender.start()
        while not is_over.is_set():
            assert rig.call("GET", "/v1/health").status_code == 200
        sender.join()
        watching.result(60)
    turns = sum(1 for count in parsed if count > 0)
    assert turns > 1, "the loop takes turns in which other requests are answered"
    assert max(parsed) <= (MAX_FRAMES + 1) * len(max(small, first, last, key=len))


def test_pings_of_a_client_that_reads_nothing_fill_no_memory(rig: Playing) -> None:
    with unread(rig) as (client, host):
        protocol = protocol_of(rig, client)
        client.sendall(frame(Opcode.PING, bytes(125)) * (BURST * 4 // 125))
        client.sendall(frame(Opcode.BINARY, STDIN))
        assert host.receive()[0] == Kind.STDIN  # all pings were parsed
        assert protocol.transport.get_write_buffer_size() < BURST


def test_a_message_has_a_bounded_number_of_fragments(rig: Playing) -> None:
    with unread(rig) as (client, host):
        empty = frame(Opcode.CONT, fin=False)
        client.sendall(frame(Opcode.BINARY, STDIN, fin=False) + empty * (websocket.MAX_FRAGMENTS - 2))
        client.sendall(frame(Opcode.CONT))
        assert host.receive() == STDIN
        client.sendall(frame(Opcode.BINARY, STDIN, fin=False) + empty * websocket.MAX_FRAGMENTS)
        assert client.recv(4)[2:] == CloseCode.MESSAGE_TOO_BIG.to_bytes(2, "big")
        with pytest.raises(Lost):
            host.receive()


def fill(rig: Playing, client: socket.socket, host: WebSocket) -> None:
    """Send output to a client that does not read it, until the server cannot send it."""
    data = encode(ChannelFrame(Kind.STDOUT, bytes(MAX_DATA)))
    for _ in range(4):
        host.send(data)
    wait_until("the buffers are full", lambda: not protocol_of(rig, client).writable.is_set())


def test_a_client_that_reads_nothing_holds_no_connection_when_its_channel_has_ended(
    rig: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "UNREAD_S", 0.2)
    monkeypatch.setattr(relay, "TELL_S", 0.2)
    with unread(rig) as (client, host):
        fill(rig, client, host)
        connection = protocol_of(rig, client)
        client.sendall(frame(Opcode.BINARY, bytes((Kind.STDOUT,))))  # which ends it
        wait_until("its connection has ended", lambda: not has(rig, connection))


def test_a_client_that_answers_no_ping_ends_at_once(rig: Playing) -> None:
    with unread(rig) as (client, host):
        fill(rig, client, host)
        protocol = protocol_of(rig, client)
        protocol.loop.call_soon_threadsafe(protocol.keepalive_timeout)
        wait_until("its connection has ended", lambda: not has(rig, protocol))
        with pytest.raises(Lost):
            host.receive()


class Side:
    """A side of a channel that takes no frame; `close` is noted, and waits as well if the side is `stuck`."""

    def __init__(self, *, stuck: bool) -> None:
        self.application_state = WebSocketState.CONNECTED
        self._stuck, self.closed = stuck, asyncio.Event()

    async def receive_bytes(self) -> bytes:
        await self.closed.wait()
        raise WebSocketDisconnect

    async def send_bytes(self, data: bytes) -> None:
        if self._stuck:
            await asyncio.Event().wait()

    async def close(self, code: int = 1000) -> None:
        self.application_state = WebSocketState.DISCONNECTED
        if self._stuck:
            await asyncio.Event().wait()
        self.closed.set()


def test_a_command_ends_with_the_right_of_a_client_that_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOOK_S", "TELL_S"):
        monkeypatch.setattr(relay, name, 0.05, raising=False)

    async def held() -> None:
        ended: list[Channel] = []
        channels, client, host = Channels(), Side(stuck=True), Side(stuck=False)
        channel = Channel("c", end_for("1"), end_for("2"), b"", "ann", lambda: False, ended.append)
        channels.add(channel)
        sides = [relay.meet(channels, channel, client, is_client=True)]
        sides += [relay.meet(channels, channel, host, is_client=False)]
        tasks = [asyncio.ensure_future(each) for each in sides]
        async with asyncio.timeout(10):
            await host.closed.wait()
        assert ended == [channel]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(held())
