"""Client of a channel inside the scheduler's own process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.websockets import WebSocketDisconnect, WebSocketState

from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.channel.frames import Frame, Kind, decode, encode

_TAKEN: Final = 1 << 16  # bytes read before the host gets credit for them


class LocalLine:
    """`Line` of a client that reads the standard output of a command on a host."""

    def __init__(self) -> None:
        self.application_state = WebSocketState.CONNECTED
        self._came: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the credit that the host got
        self._goes: asyncio.Queue[bytes] = asyncio.Queue()

    async def send_bytes(self, data: bytes) -> None:
        """Queue a frame from the host for `output`."""
        self._came.put_nowait(data)

    async def receive_bytes(self) -> bytes:
        """Wait for the next frame from this client to the host.

        Raises:
            WebSocketDisconnect: The line is closed.
        """
        frame = await self._goes.get()
        if not frame:
            raise WebSocketDisconnect
        return frame

    async def close(self, code: int = 1000) -> None:
        """Close both directions. `code` is ignored: it is part of the interface of a WebSocket."""
        self.application_state = WebSocketState.DISCONNECTED
        self._came.put_nowait(b"")
        self._goes.put_nowait(b"")

    async def output(self) -> AsyncIterator[bytes]:
        """Yield the standard output of the command until the command has ended.

        Raises:
            Unavailable: The host did not connect, could not run the command, or has disconnected.
        """
        taken = 0
        while message := await self._came.get():
            frame = decode(message)
            if frame.kind is Kind.EXIT:
                return
            if frame.kind is Kind.FAILED:
                raise _unavailable(frame.data.decode(errors="replace"))
            if frame.kind is Kind.STDOUT:
                yield frame.data
            taken += len(frame.data)
            if taken >= _TAKEN:
                self._goes.put_nowait(encode(Frame(Kind.CREDIT, numbers=(taken,))))
                taken = 0
        raise _unavailable("the connection to the host was lost")


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        f"the host cannot read these files: {why}", remedy="see the node monitor's log on the host"
    )
