"""Channels: each is a place where a client and the executor of a task meet, each with a proof that is good once.

A channel is made by a POST (opening.py), which asks for the right and is in the audit log as every request; what
comes to it by WebSocket (RFC 6455) needs its proof, and no other. A page of another origin has none, and is refused
before that is looked at.
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

MEET_S: Final = 30.0  # until both are there
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
    """A side of a channel. `proof`: the SHA-256 of what opens it."""

    proof: bytes
    taken: bool = False


@dataclass(slots=True)
class Channel:
    """A place to meet.

    Attributes:
        order: The frame that the executor gets first.
        key: Whose it is: as of who asks too much.
        stands: Whether who opened it still may.
        closed: Is told once, at its end, what came of it.
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
    lines: dict[bool, Line] = field(default_factory=dict)  # True: of the client; False: of the host
    exit_code: int | None = None
    sent: int = 0  # bytes of the client, and of the host
    received: int = 0

    def host_proves(self, proof: str) -> None:
        """Let in who shows that as the task's executor. From any thread."""
        self.host = end_for(proof)


class Channels:
    """All channels that are open. Only for the server's loop."""

    def __init__(self) -> None:
        """None is."""
        self._open: dict[str, Channel] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open)

    def room(self, key: str) -> None:
        """See that one more may be opened.

        Raises:
            Refusal: There are too many, of this caller or of all.
        """
        mine = sum(each.key == key for each in self._open.values())
        if len(self._open) >= MAX or mine >= MAX_OF_ONE:
            what = f"there are {mine} channels of {key}, and {len(self._open)} of all, at once"
            raise Refusal(429, "channels", what, remedy="end some, or try again later")

    def add(self, channel: Channel) -> None:
        """Wait for both, for a while; who comes first waits for the other."""
        self._open[channel.id] = channel
        asyncio.get_running_loop().call_later(MEET_S, self._expire, channel)

    def _expire(self, channel: Channel) -> None:
        if not (channel.client.taken and channel.host.taken):
            self.drop(channel)

    def drop(self, channel: Channel) -> None:
        """Forget it."""
        if self._open.pop(channel.id, None) is not None:
            channel.closed(channel)

    def take(self, channel_id: str, shown: str) -> tuple[Channel, bool] | None:
        """The channel, and whether its client comes; None: there is no such place for who shows that."""
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
    """A proof that nobody can guess."""
    return secrets.token_urlsafe(32)


def end_for(proof: str) -> End:
    """The side of who shows that."""
    return End(hashlib.sha256(proof.encode()).digest())
