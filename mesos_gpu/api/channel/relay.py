"""WebSocket connections to channels: admission by the one-time secret, and forwarding of frames between both sides.

A program sends its secret as `Authorization: Bearer PROOF`. A page cannot set that (WebSockets standard, section 3.1):
it offers the subprotocols `mesos-gpu.channel.v1` and `proof.PROOF`, of which the answer selects the first.

A frame is read when the previous one is sent, so that the sender cannot outrun the receiver, and little is buffered.
The server's pings detect a side that is silent.
"""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from mesos_gpu.api.channel.channels import MEET_S, Channel, Channels, Line
from mesos_gpu.api.http.door import CHANNELS
from mesos_gpu.api.http.guard import ascii_names, csrf_problem, host_problem
from mesos_gpu.wire.channel.frames import FROM_CLIENT, FROM_HOST, LAST, Frame, Kind, decode, encode, kind_of

LOOK_S: Final = 2.0  # between two checks of the caller's right
TELL_S: Final = 2.0  # for sending a last frame or closing, if a side does not read
SUBPROTOCOL: Final = "mesos-gpu.channel.v1"
_PROOF: Final = "proof."
WRONG, GONE, NOT_ALLOWED = 1002, 1001, 1008  # RFC 6455, section 7.4.1


class Relay:
    """ASGI middleware that serves WebSocket connections, and passes on all else.

    Args:
        app: The next ASGI application.
        names: Names by which clients may call this host.
    """

    def __init__(self, app: ASGIApp, channels: Channels, names: Collection[str] = ()) -> None:
        self._app, self._channels, self._names = app, channels, ascii_names(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a side of a channel, or pass the request on."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        line = WebSocket(scope, receive, send)
        admitted = self._admitted(scope)
        if admitted is None:
            await line.close(NOT_ALLOWED)  # before it is accepted: 403
            return
        channel, is_client, subprotocol = admitted
        await line.accept(subprotocol)
        await meet(self._channels, channel, line, is_client=is_client)

    def _admitted(self, scope: Scope) -> tuple[Channel, bool, str | None] | None:
        """Return the channel, whether the side is its client, and the subprotocol to answer with; None to refuse."""
        path = scope["path"]
        if not path.startswith(CHANNELS) or host_problem(scope, self._names) is not None:
            return None
        if csrf_problem({**scope, "method": "POST", "scheme": _http_scheme(scope)}) is not None:
            return None
        shown, subprotocol = _shown(scope)
        taken = self._channels.take(path.removeprefix(CHANNELS), shown) if shown else None
        return (*taken, subprotocol) if taken is not None else None


async def meet(channels: Channels, channel: Channel, line: Line, *, is_client: bool) -> None:
    """Wait for the other side of a channel; then forward the frames of this side until one side disconnects."""
    channel.lines[is_client] = line
    if len(channel.lines) == 2:
        channel.both.set()
    try:
        await _serve(channels, channel, line, is_client=is_client)
    finally:
        await _end(channels, channel)


async def _serve(channels: Channels, channel: Channel, line: Line, *, is_client: bool) -> None:
    """Wait for the other side; then send the order to the host, and forward frames from this side."""
    try:
        async with asyncio.timeout(MEET_S):
            await channel.both.wait()
    except TimeoutError:
        if is_client:
            why = f"the task's host did not connect within {MEET_S:g} s: it must reach the scheduler's own address"
            await _send_last(line, Frame(Kind.FAILED, why.encode()))
        return
    other = channel.lines.get(not is_client)
    if other is None:
        return  # the other side has disconnected again
    if not is_client:
        await line.send_bytes(channel.order)
        await _forward(channel, line, other, is_client=False)
        return
    watch = asyncio.create_task(_watch(channels, channel))
    try:
        await _forward(channel, line, other, is_client=True)
    finally:
        watch.cancel()


async def _watch(channels: Channels, channel: Channel) -> None:
    """Check the caller's right from time to time; end the channel when the right has ended."""
    while channel.stands():
        await asyncio.sleep(LOOK_S)
    client = channel.lines.get(True)
    if client is not None:
        why = "your session, or your right to run commands in this job, has ended"
        await _send_last(client, Frame(Kind.FAILED, why.encode()))
    await _end(channels, channel)


async def _end(channels: Channels, channel: Channel) -> None:
    """Close the connections of both sides after one side has disconnected, or must end.

    A side that does not read does not delay the other one.
    """
    channels.drop(channel)
    lines = [*channel.lines.values()]
    channel.lines.clear()
    await asyncio.gather(
        *(_close(line) for line in lines if line.application_state is WebSocketState.CONNECTED)
    )


async def _close(line: Line) -> None:
    """Close a connection, within `TELL_S` seconds."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(TELL_S):
            await line.close(GONE)


async def _forward(channel: Channel, line: Line, other: Line, *, is_client: bool) -> None:
    """Forward frames from one side to the other until it sends its last one, or a frame that it may not send."""
    allowed = FROM_CLIENT if is_client else FROM_HOST
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, ValueError, KeyError):
        while True:
            message = await line.receive_bytes()
            kind = kind_of(message)
            if kind not in allowed:
                return
            await other.send_bytes(message)
            if is_client:
                channel.sent += len(message) - 1
                continue
            channel.received += len(message) - 1
            if kind in LAST:
                channel.exit_code = decode(message).numbers[0] if kind is Kind.EXIT else None
                return


async def _send_last(line: Line, frame: Frame) -> None:
    """Send a last frame to a side, within `TELL_S` seconds."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(TELL_S):
            await line.send_bytes(encode(frame))


def _shown(scope: Scope) -> tuple[str, str | None]:
    """Return the secret, and the subprotocol if a page shows it; "" if there is no secret, or more than one."""
    header = Headers(scope=scope).getlist("authorization")
    offered = scope.get("subprotocols") or []
    proofs = [protocol.removeprefix(_PROOF) for protocol in offered if protocol.startswith(_PROOF)]
    if SUBPROTOCOL in offered and len(proofs) == 1 and not header:
        return proofs[0], SUBPROTOCOL
    if len(header) == 1 and header[0].startswith("Bearer ") and not offered:
        return header[0].removeprefix("Bearer "), None
    return "", None


def _http_scheme(scope: Scope) -> str:
    return "https" if scope["scheme"] == "wss" else "http"
