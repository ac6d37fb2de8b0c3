"""Channels, on each of which a client meets the executor of a task; each side proves itself by a one-time secret.

A channel is made by a POST (opening.py), which checks the right and is in the audit log as every request. The WebSocket
connections (RFC 6455) to the channel need these secrets only. A page of another origin has none, and is refused before
the secret is checked.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final, Protocol

from starlette.websockets import WebSocketState

from mesos_gpu.api.http.answers import Refusal

MEET_S: Final = 30.0  # until both sides have connected
MAX: Final = 256  # at once
MAX_OF_ONE: Final = 32  # of one caller


class Line(Protocol):
    """Connection to one side of a channel: a WebSocket, or a client in this process."""

    async def receive_bytes(self) -> bytes:
        """Wait for the next frame from the side."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a frame to the side."""

    async def close(self, code: int = 1000) -> None:
        """Close the connection."""

    @property
    def application_state(self) -> WebSocketState:
        """State of the connection: DISCONNECTED once this process has closed it."""


@dataclass(slots=True)
class End:
    """A side of a channel. `proof`: SHA-256 of the secret that opens it."""

    proof: bytes
    taken: bool = False


@dataclass(slots=True)
class Channel:
    """A channel between a client and the executor of a task.

    Attributes:
        order: Frame that the executor gets first.
        key: Key by which the caller's channels are counted and limited.
        stands: Returns whether the caller who opened the channel still has the right.
        closed: Called once, when the channel ends.
    """

    id: str
    client: End
    host: End
    order: bytes
    key: str
    stands: Callable[[], bool]
    closed: Callable[["Channel"], None]
    born: float = field(default_factory=time.monotonic)
    both: asyncio.Event = field(default_factory=asyncio.Event)
    lines: dict[bool, Line] = field(default_factory=dict)  # by whether the side is the client's
    exit_code: int | None = None
    sent: int = 0  # bytes from the client
    received: int = 0  # bytes from the host

    def host_proves(self, proof: str) -> None:
        """Set the secret by which the task's executor proves itself. For any thread."""
        self.host = end_for(proof)


class Channels:
    """All open channels. To be used on the server's loop only."""

    def __init__(self) -> None:
        self._open: dict[str, Channel] = {}

    def __len__(self) -> int:
        """Return the number of open channels."""
        return len(self._open)

    def room(self, key: str) -> None:
        """Check that a caller may open one more channel.

        Raises:
            Refusal: There are too many channels, of this caller or in all.
        """
        mine = sum(channel.key == key for channel in self._open.values())
        if len(self._open) >= MAX or mine >= MAX_OF_ONE:
            what = f"{key} has {mine} open channels of {MAX_OF_ONE}, and all callers have {len(self._open)} of {MAX}"
            raise Refusal(429, "channels", what, remedy="close some, or try again later")

    def add(self, channel: Channel) -> None:
        """Add a channel, which is dropped unless both sides connect within `MEET_S` seconds."""
        self._open[channel.id] = channel
        asyncio.get_running_loop().call_later(MEET_S, self._expire, channel)

    def _expire(self, channel: Channel) -> None:
        """Drop a channel unless both sides have connected."""
        if not (channel.client.taken and channel.host.taken):
            self.drop(channel)

    def drop(self, channel: Channel) -> None:
        """Remove a channel, and call its `closed`."""
        if self._open.pop(channel.id, None) is not None:
            channel.closed(channel)

    def take(self, channel_id: str, shown: str) -> tuple[Channel, bool] | None:
        """Admit a side that shows a secret; return the channel and whether the side is its client, or None.

        A secret is accepted once.
        """
        channel = self._open.get(channel_id)
        if channel is None:
            return None
        digest = hashlib.sha256(shown.encode()).digest()
        for end in (channel.client, channel.host):
            if compare_digest(end.proof, digest) and not end.taken:
                end.taken = True
                return channel, end is channel.client
        return None


def new_proof() -> str:
    """Return a new secret for a side of a channel."""
    return secrets.token_urlsafe(32)


def end_for(proof: str) -> End:
    """Return the side that a secret opens."""
    return End(hashlib.sha256(proof.encode()).digest())
