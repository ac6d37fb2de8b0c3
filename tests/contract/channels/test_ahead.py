"""What comes over a channel faster than it is used: it is held up, and whoever sends on is left."""

import os
import threading
from types import TracebackType
from typing import Self, cast

import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import ClientConnection

from mesos_gpu.cli.channel.session import Session
from mesos_gpu.cli.files.stream import Channelled
from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.frames import MAX_AHEAD, MAX_DATA, WINDOW, Frame, Kind, decode, encode
from mesos_gpu.wire.channel.tree import Entry, Record, Said
from tests.conftest import wait_until


class Flood:
    """A host that sends a frame whenever it is heard, and counts the credit that it gets."""

    def __init__(self, frame: Frame) -> None:
        self._message, self._size = encode(frame), len(frame.data)
        self.frames = self.allowed = 0
        self.over = threading.Event()

    @property
    def ahead(self) -> int:
        return self.frames * self._size - self.allowed

    def recv(self, _timeout: float | None = None) -> bytes:
        if self.over.is_set():
            raise ConnectionClosedOK(None, None)
        self.frames += 1
        return self._message

    def send(self, message: bytes) -> None:
        frame = decode(message)
        if frame.kind is Kind.CREDIT:
            self.allowed += frame.numbers[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()


def line(flood: Flood) -> ClientConnection:
    return cast(ClientConnection, flood)


FAULT = tree.said(tree.Mark.FAULT, Said(("a",), "x" * 900))
FAULTS = Frame(Kind.STDOUT, FAULT * (MAX_DATA // len(FAULT)))


def test_channel_credit_is_given_for_output_that_was_taken() -> None:
    flood = Flood(FAULTS)
    records = Channelled(line(flood)).records()
    next(records)
    assert (flood.frames, flood.allowed) == (1, 0), "none of the others of the frame is used yet"
    for _ in range(MAX_DATA // len(FAULT)):
        next(records)
    assert (flood.frames, flood.allowed) == (2, len(FAULTS.data))


def test_channel_that_sends_more_than_its_credit_is_left() -> None:
    flood = Flood(FAULTS)
    with pytest.raises(BadAnswer, match="bytes were sent without permission"):
        Channelled(line(flood)).look()  # as while nothing comes from stdin
    assert flood.allowed == 0
    assert flood.ahead <= MAX_AHEAD + MAX_DATA


def test_channel_sender_takes_what_comes_meanwhile() -> None:
    """A host tells a fault for each file, and reads on when they are taken."""
    heard: list[Record] = []
    flood = Flood(FAULTS)
    channel = Channelled(line(flood))
    piece = tree.entry(Entry(("a",), "file")) + tree.data(b"x" * MAX_DATA)
    sent = 0
    while sent < WINDOW - len(piece):
        channel.send(piece, heard.append)
        sent += len(piece)
    assert heard == []

    def until_the_third(record: Record) -> None:
        heard.append(record)
        if flood.frames == 3 * WINDOW // len(FAULTS.data):
            raise EOFError  # it has gone on for long enough

    with pytest.raises(EOFError):
        channel.send(piece * 2, until_the_third)
    assert flood.ahead <= len(FAULTS.data)
    assert len(heard) > 2 * WINDOW // len(FAULT)


def test_unread_output_is_kept_up_to_a_limit() -> None:
    flood, failed = Flood(Frame(Kind.STDOUT, b"y" * MAX_DATA)), list[BadAnswer]()
    ours, theirs = os.pipe()

    def run() -> None:
        try:
            Session(line(flood), stdin=None, stdout=theirs, passes_signals=False).run()
        except BadAnswer as error:
            failed.append(error)
        finally:
            os.close(theirs)

    session = threading.Thread(target=run, daemon=True)
    session.start()
    wait_until("it has heard enough", lambda: flood.frames * MAX_DATA > MAX_AHEAD)
    size = 0
    while read := os.read(ours, MAX_DATA):
        size += len(read)
    session.join(60)
    os.close(ours)
    assert "bytes were sent without permission" in str(failed[0])
    assert size == (flood.frames - 1) * MAX_DATA, "what came before that is written"


def test_frames_without_data_are_not_kept() -> None:
    flood = Flood(Frame(Kind.STDOUT))
    session = Session(line(flood), stdin=None, passes_signals=False)
    thread = threading.Thread(target=session._hear, daemon=True)
    thread.start()
    wait_until("many have come", lambda: flood.frames > 1000)
    flood.over.set()
    thread.join(60)
    assert isinstance(session._heard.get(), Unreachable)
    assert session._heard.empty()
