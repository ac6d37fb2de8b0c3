"""A client of a channel in the scheduler's own process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.websockets import WebSocketDisconnect, WebSocketState

from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.channel.frames import Frame, Kind, decode, encode

_TAKEN: Final = 1 << 16  # bytes of which the host is told at once that they were taken


class Within:
    """`Line` of a client that reads what a command writes to its standard output."""

    def __init__(self) -> None:
        """Nothing has come."""
        self.application_state = WebSocketState.CONNECTED
        self._came: asyncio.Queue[bytes] = asyncio.Queue()  # the host sends no more than it got credit for
        self._goes: asyncio.Queue[bytes] = asyncio.Queue()

    async def send_bytes(self, data: bytes) -> None:
        """Take a frame of the host."""
        self._came.put_nowait(data)

    async def receive_bytes(self) -> bytes:
        """Wait for a frame of this client.

        Raises:
            WebSocketDisconnect: It is closed.
        """
        frame = await self._goes.get()
        if not frame:
            raise WebSocketDisconnect
        return frame

    async def close(self, code: int = 1000) -> None:
        """End both ways."""
        self.application_state = WebSocketState.DISCONNECTED
        self._came.put_nowait(b"")
        self._goes.put_nowait(b"")

    async def output(self) -> AsyncIterator[bytes]:
        """Yield what the command writes, until it has ended.

        Raises:
            Unavailable: The host did not come, could not do it, or has gone.
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
        raise _unavailable("the connection to it was lost")


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"the host cannot read these files: {why}", remedy="see the node monitor's log there")
