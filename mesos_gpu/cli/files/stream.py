"""Streams of file records from and to a job: a channel while it runs, the agent's sandbox when it has ended."""

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

_ENDED: Final = "check whether the job runs: mesos-gpu show JOB"
_MAX_SAID: Final = 2000


class Source(Protocol):
    """A source of file records."""

    def records(self) -> Iterator[Record]:
        """Yield all records, to the end of the stream."""


class Answered:
    """Records in an answer of the scheduler.

    Args:
        pieces: Blocks of the answer, as they arrive.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._decoder = pieces, Decoder()

    def records(self) -> Iterator[Record]:
        """Yield the records of the answer.

        Raises:
            Unreachable: The answer ended early.
            BadAnswer: The answer is not a valid stream of records.
        """
        try:
            for piece in self._pieces:
                yield from self._decoder.take(piece)
        except ValueError as error:
            what = f"the answer about the sandbox is invalid: {error}"
            raise BadAnswer(what, remedy="use a client of the scheduler's release") from error
        if not self._decoder.is_whole:
            raise Unreachable("the answer ended early", remedy="try again")


class Channelled:
    """Records over a channel, used by one thread, which receives while it waits to send.

    The other side may send as much as was consumed here and one window more; beyond that it is an error.
    """

    def __init__(self, line: ClientConnection) -> None:
        self._line, self._decoder, self._heard = line, Decoder(), deque[Record]()
        self._credit, self._said, self._code = WINDOW, b"", -1
        self._unsent = bytearray()
        self._unused = 0  # bytes received whose records were not consumed yet

    def records(self) -> Iterator[Record]:
        """Yield all records, to the end of the stream.

        Raises:
            Conflict: The operation could not be started in the task, or failed there.
            Unreachable: The connection was lost.
            BadAnswer: The data is not a valid stream of records.
        """
        while True:
            yield from self.heard()
            if self._code >= 0:
                break
            self._hear()
        if not self._decoder.is_whole:
            said = self._said.decode(errors="replace").strip()
            raise Conflict(f"the copy was aborted in the task{f': {said}' if said else ''}", remedy=_ENDED)

    def send(self, piece: bytes, take: Callable[[Record], None]) -> None:
        """Send bytes of the stream, at the pace of the receiver.

        Args:
            piece: Bytes to send.
            take: Function for records that arrive meanwhile; the other side stops receiving while its output is not
                read.

        Raises:
            Conflict, Unreachable, BadAnswer: See `records`; the operation ended before the data was sent.
        """
        self._unsent += piece
        while len(self._unsent) >= MAX_DATA:
            self._send(MAX_DATA, take)

    def flush(self, take: Callable[[Record], None]) -> None:
        """Send the buffered rest; `take` as for `send`.

        Raises:
            Conflict, Unreachable, BadAnswer: See `records`.
        """
        self._send(len(self._unsent), take)

    def _send(self, size: int, take: Callable[[Record], None]) -> None:
        """Send a frame once credit allows all of it, because sending parts would lead to ever smaller frames."""
        while self._credit < size and self._code < 0:
            self._hear()
            for record in self.heard():
                take(record)
        if self._code < 0:
            with contextlib.suppress(ConnectionClosed):  # `_hear` reports it
                self._line.send(encode(Frame(Kind.STDIN, bytes(self._unsent[:size]))))
        self._credit -= size
        del self._unsent[:size]

    def heard(self) -> Iterator[Record]:
        """Yield the records that have arrived already."""
        while self._heard:
            yield self._heard.popleft()
        self._allow()

    def look(self) -> bool:
        """Receive what is available without waiting; return whether the stream continues.

        Raises:
            Conflict, Unreachable, BadAnswer: See `records`.
        """
        with contextlib.suppress(TimeoutError):
            while self._code < 0:
                self._hear(0.0)
        return self._code < 0

    def _hear(self, timeout_s: float | None = None) -> None:
        """Receive one frame and process it; an error of the channel is raised."""
        try:
            message = self._line.recv(timeout_s)
            frame = decode(message if isinstance(message, bytes) else b"")
            self._count(frame)
            if frame.kind is Kind.STDOUT:
                self._heard.extend(self._decoder.take(frame.data))
        except ConnectionClosed as error:
            raise Unreachable("the connection to the task was lost", remedy=_ENDED) from error
        except ValueError as error:
            what = f"data from the task is invalid: {error}"
            raise BadAnswer(what, remedy="use a client of the scheduler's release") from error
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
            raise ValueError(f"more than {MAX_AHEAD} bytes were sent without permission")

    def _allow(self) -> None:
        """Permit the other side to send as much as was consumed."""
        while self._unused and self._code < 0:
            used = min(self._unused, WINDOW)
            with contextlib.suppress(ConnectionClosed):  # `_hear` reports it
                self._line.send(encode(Frame(Kind.CREDIT, numbers=(used,))))
            self._unused -= used
