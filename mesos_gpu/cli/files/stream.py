"""Records of files, from a job and to it: over a channel while it runs, from its agent when it has ended."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable
from mesos_gpu.errors import Conflict
from mesos_gpu.wire.channel.frames import MAX_AHEAD, MAX_DATA, WINDOW, Frame, Kind, decode, encode
from mesos_gpu.wire.channel.tree import Decoder, Record

_ENDED: Final = "see whether its job runs: mesos-gpu show JOB"
_MAX_SAID: Final = 2000


class Source(Protocol):
    """Where records come from."""

    def records(self) -> Iterator[Record]:
        """All of them, to the last."""


class Answered:
    """Records of an answer of the scheduler."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """`pieces` of it, as they come."""
        self._pieces, self._decoder = pieces, Decoder()

    def records(self) -> Iterator[Record]:
        """What comes, to the end of it.

        Raises:
            Unreachable: It broke off.
            BadAnswer: What comes is no stream of records.
        """
        try:
            for piece in self._pieces:
                yield from self._decoder.take(piece)
        except ValueError as error:
            what = f"what comes from the sandbox cannot be read: {error}"
            raise BadAnswer(what, remedy="use the client of the scheduler's release") from error
        if not self._decoder.is_whole:
            raise Unreachable("the answer ended before it was whole", remedy="try again")


class Channelled:
    """Records over a channel. One thread: who sends hears when it must. The other side may send as much as was used,
    and a window more; one that sends more than that is left."""

    def __init__(self, line: ClientConnection) -> None:
        """Nothing has come."""
        self._line, self._decoder, self._heard = line, Decoder(), deque[Record]()
        self._credit, self._said, self._code = WINDOW, b"", -1
        self._unsent = bytearray()
        self._unused = 0  # bytes that came, and whose records nobody has taken yet

    def records(self) -> Iterator[Record]:
        """What comes, to the end of it.

        Raises:
            Conflict: What was to be done could not be begun, or broke off.
            Unreachable: The connection was lost.
            BadAnswer: What comes is no stream of records.
        """
        while True:
            yield from self.heard()
            if self._code >= 0:
                break
            self._hear()
        if not self._decoder.is_whole:
            said = self._said.decode(errors="replace").strip()
            raise Conflict(f"it was broken off in the task{f': {said}' if said else ''}", remedy=_ENDED)

    def send(self, piece: bytes, take: Callable[[Record], None]) -> None:
        """Send bytes of a stream, at the pace of who takes them.

        Args:
            piece: What to send.
            take: Is given what comes meanwhile: who sends there reads no more while nobody takes what it says.

        Raises:
            Conflict, Unreachable, BadAnswer: As of `records`; it is over before it was sent.
        """
        self._unsent += piece
        while len(self._unsent) >= MAX_DATA:
            self._send(MAX_DATA, take)

    def flush(self, take: Callable[[Record], None]) -> None:
        """Send the rest. `take`: as of `send`.

        Raises:
            Conflict, Unreachable, BadAnswer: As of `records`.
        """
        self._send(len(self._unsent), take)

    def _send(self, size: int, take: Callable[[Record], None]) -> None:
        """Send a frame, as soon as all of it may go: of parts that do, ever smaller ones would come."""
        while self._credit < size and self._code < 0:
            self._hear()
            for record in self.heard():
                take(record)
        if self._code < 0:
            with contextlib.suppress(ConnectionClosed):  # the one who hears says so
                self._line.send(encode(Frame(Kind.STDIN, bytes(self._unsent[:size]))))
        self._credit -= size
        del self._unsent[:size]

    def heard(self) -> Iterator[Record]:
        """What has come already, as far as it was looked at."""
        while self._heard:
            yield self._heard.popleft()
        self._allow()

    def look(self) -> bool:
        """Hear what is there without waiting; whether it still goes on.

        Raises:
            Conflict, Unreachable, BadAnswer: As of `records`.
        """
        with contextlib.suppress(TimeoutError):
            while self._code < 0:
                self._hear(0.0)
        return self._code < 0

    def _hear(self, timeout_s: float | None = None) -> None:
        try:
            message = self._line.recv(timeout_s)
            frame = decode(message if isinstance(message, bytes) else b"")
            self._count(frame)
            if frame.kind is Kind.STDOUT:
                self._heard.extend(self._decoder.take(frame.data))
        except ConnectionClosed as error:
            raise Unreachable("the connection to the task was lost", remedy=_ENDED) from error
        except ValueError as error:
            what = f"what comes from the task cannot be read: {error}"
            raise BadAnswer(what, remedy="use the client of the scheduler's release") from error
        if frame.kind is Kind.CREDIT:
            self._credit += frame.numbers[0]
        elif frame.kind is Kind.EXIT:
            self._code = frame.numbers[0]
        elif frame.kind is Kind.FAILED:
            raise Conflict(frame.data.decode(errors="replace"), remedy=_ENDED)
        elif frame.kind is Kind.STDERR:
            self._said = (self._said + frame.data)[:_MAX_SAID]

    def _count(self, frame: Frame) -> None:
        if frame.kind in (Kind.STDOUT, Kind.STDERR):
            self._unused += len(frame.data)
        if self._unused > MAX_AHEAD:
            raise ValueError(f"more than {MAX_AHEAD} bytes came ahead")

    def _allow(self) -> None:
        """All that came is used: as much may come again."""
        while self._unused and self._code < 0:
            used = min(self._unused, WINDOW)
            with contextlib.suppress(ConnectionClosed):  # the one who hears says so
                self._line.send(encode(Frame(Kind.CREDIT, numbers=(used,))))
            self._unused -= used
