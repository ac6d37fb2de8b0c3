"""Copies between a job and this machine, and what is said of what did not come."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from mesos_gpu.adapters.trees.receiving import Receiving
from mesos_gpu.adapters.trees.sending import PIECE, Sending
from mesos_gpu.cli import output
from mesos_gpu.cli.files.place import STREAM, Place
from mesos_gpu.cli.files.stream import Channelled, Source
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.words import counted, is_or_are
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.tree import Done, Entry, Mark, Record, Said

_SHOW_S: Final = 0.5  # between two looks at how far it is, and whether it goes on
_MIB: Final = 1 << 20


class Incomplete(MesosGpuError):
    """Some of what was to be copied was not (EX_IOERR)."""

    exit_code, http_status = 74, 500


class Unread(MesosGpuError):
    """What is at a path of a job cannot be read (EX_IOERR)."""

    exit_code, http_status = 74, 500


class _Told:
    """What is said on stderr: how far it is, what is not copied, and what came."""

    def __init__(self, place: Place) -> None:
        self._place, self._began, self._shown = place, time.monotonic(), 0.0
        self._why = ""  # nothing of the place could be copied
        self.bytes = self.faults = 0

    def moved(self, size: int) -> None:
        self.bytes += size
        now = time.monotonic()
        if output.status_line.live and now - self._shown > _SHOW_S:
            self._shown = now
            output.status_line.show(f"{self.bytes / _MIB:.0f} MiB, {self._rate(now)}")

    def _rate(self, now: float) -> str:
        return f"{self.bytes / _MIB / max(now - self._began, 0.001):.0f} MiB/s"

    def fault(self, said: Said) -> None:
        self.faults += 1
        if said.path:
            output.note(f"not copied: {self._named(said)}: {said.why}")
        else:
            self._why = said.why

    def said(self, mark: Mark, said: Said) -> None:
        if mark is Mark.FAULT:
            self.fault(said)
        else:
            output.note(f"left out: {self._named(said)}: {said.why}")

    def _named(self, said: Said) -> str:
        return "/".join((str(self._place).rstrip("/") if said.path else str(self._place), *said.path))

    def _remedy(self) -> str:
        if self._place.is_here:
            return "name a file or directory of this machine that you may read or write"
        return f"list the files there: mesos-gpu ls {self._place.job}:"

    def end(self, files: int, *, whole: bool = True) -> None:
        """Say what came.

        Raises:
            Incomplete: Not all of it did.
        """
        output.status_line.clear()
        if self._why and not files:
            raise Incomplete(f"{self._place}: {self._why}", remedy=self._remedy())
        if self.faults or not whole:
            several = f"{counted(files, 'file')} {is_or_are(files)}"
            why = f": {self._why}" if self._why else ""
            raise Incomplete(
                f"the copy of {self._place} is incomplete{why}; {several} complete",
                remedy="copy again; a file gets its name only when it is complete",
            )
        if output.is_terminal(sys.stderr):
            output.note(
                f"{counted(files, 'file')}, {self.bytes / _MIB:.1f} MiB, {self._rate(time.monotonic())}"
            )


def fetch(source: Source, place: Place, to: str) -> None:
    """Bring what is at a place here.

    Raises:
        Incomplete: Not all of it came; nothing that did not come whole is under its name.
    """
    told = _Told(place)
    receiving = Receiving(to, place.name, told.fault)
    try:
        for record in source.records():
            _note(record, told)
            receiving.take(record)
    finally:
        receiving.close()
        output.status_line.clear()
    told.end(receiving.files, whole=receiving.sent is not None)


def _note(record: Record, told: _Told) -> None:
    if record.mark is Mark.DATA:
        told.moved(len(record.data))
    elif isinstance(record.what, Said):
        told.said(record.mark, record.what)


def pour(source: Source, place: Place, write: Callable[[bytes], None]) -> None:
    """Write the bytes of a file to stdout.

    Raises:
        Incomplete: It is a directory, or not all of it came.
    """
    told = _Told(place)
    for record in source.records():
        if isinstance(record.what, Entry) and record.what.kind != "file":
            raise Incomplete(f"{place} is a directory", remedy=f"see what is in it: mesos-gpu ls {place}")
        if record.mark is Mark.DATA:
            write(record.data)
        elif isinstance(record.what, Said):
            told.fault(record.what)
        elif isinstance(record.what, Done) and told.faults:
            told.end(0)


def bring(channel: Channelled, here: str, place: Place) -> None:
    """Send a file or directory of this machine there; `-`: stdin, as a file.

    Raises:
        Incomplete: Not all of it got there.
    """
    told, there = _Told(Place("", here)), _Told(place)
    last: Done | None = None
    take = partial(_take, told=there)
    for piece in _stdin(channel.look) if here == STREAM else Sending(here, told.said).records():
        channel.send(piece, take)
        there.moved(len(piece))
        for record in channel.heard():
            take(record)
    channel.flush(take)
    for record in channel.records():
        take(record)
        last = record.what if isinstance(record.what, Done) else last
    there.faults += told.faults
    there.end(last.files if last else 0, whole=last is not None)


def _take(record: Record, told: _Told) -> None:
    """Hear of a fault there; of one of the whole nothing more needs to be sent."""
    if isinstance(record.what, Said):
        told.fault(record.what)
        if not record.what.path:
            told.end(0)


def _stdin(goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """What comes in, as a file, while it `goes_on` there."""
    size = 0
    yield tree.entry(Entry((), "file", 0o644))
    while True:
        while not select.select([0], [], [], _SHOW_S)[0]:
            if not goes_on():
                return
        if not (piece := os.read(0, PIECE)):
            break
        size += len(piece)
        yield tree.data(piece)
    yield tree.end()
    yield tree.done(Done(1, size, 0))
