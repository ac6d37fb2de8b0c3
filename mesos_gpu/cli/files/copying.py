"""Copies between a job and this machine, with messages about skipped files."""

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

_SHOW_S: Final = 0.5  # interval of progress displays and of checks of the receiver
_MIB: Final = 1 << 20


class Incomplete(MesosGpuError):
    """A copy is incomplete (EX_IOERR)."""

    exit_code, http_status = 74, 500


class Unread(MesosGpuError):
    """A path of a job cannot be read (EX_IOERR)."""

    exit_code, http_status = 74, 500


class _Told:
    """Messages on stderr: progress, skipped files, and the summary of a copy."""

    def __init__(self, place: Place) -> None:
        self._place, self._began, self._shown = place, time.monotonic(), 0.0
        self._why = ""  # reason why nothing of the place could be copied
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
            output.note(f"skipped: {self._named(said)}: {said.why}")

    def _named(self, said: Said) -> str:
        return "/".join((str(self._place).rstrip("/") if said.path else str(self._place), *said.path))

    def _remedy(self) -> str:
        if self._place.is_here:
            return "choose a local file or directory that you may read or write"
        return f"list the files there: mesos-gpu ls {self._place.job}:"

    def end(self, files: int, *, whole: bool = True) -> None:
        """Print the summary.

        Raises:
            Incomplete: Part of the files was not copied.
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
    """Copy a place of a job to this machine.

    Raises:
        Incomplete: Part of the files was not copied; incomplete files do not get their names.
    """
    report = _Told(place)
    receiving = Receiving(to, place.name, report.fault)
    try:
        for record in source.records():
            _note(record, report)
            receiving.take(record)
    finally:
        receiving.close()
        output.status_line.clear()
    report.end(receiving.files, whole=receiving.sent is not None)


def _note(record: Record, told: _Told) -> None:
    if record.mark is Mark.DATA:
        told.moved(len(record.data))
    elif isinstance(record.what, Said):
        told.said(record.mark, record.what)


def pour(source: Source, place: Place, write: Callable[[bytes], None]) -> None:
    """Write a file of a job by `write`.

    Raises:
        Incomplete: The place is a directory, or the file did not arrive completely.
    """
    report = _Told(place)
    for record in source.records():
        if isinstance(record.what, Entry) and record.what.kind != "file":
            raise Incomplete(f"{place} is a directory", remedy=f"list its files with: mesos-gpu ls {place}")
        if record.mark is Mark.DATA:
            write(record.data)
        elif isinstance(record.what, Said):
            report.fault(record.what)
        elif isinstance(record.what, Done) and report.faults:
            report.end(0)


def bring(channel: Channelled, here: str, place: Place) -> None:
    """Copy a file or directory of this machine to a place of a job; `-` copies stdin to a file.

    Raises:
        Incomplete: Part of the files was not copied.
    """
    report_here, report_there = _Told(Place("", here)), _Told(place)
    last: Done | None = None
    take = partial(_take, told=report_there)
    for piece in _stdin(channel.look) if here == STREAM else Sending(here, report_here.said).records():
        channel.send(piece, take)
        report_there.moved(len(piece))
        for record in channel.heard():
            take(record)
    channel.flush(take)
    for record in channel.records():
        take(record)
        last = record.what if isinstance(record.what, Done) else last
    report_there.faults += report_here.faults
    report_there.end(last.files if last else 0, whole=last is not None)


def _take(record: Record, told: _Told) -> None:
    """Report a fault in the job; a fault of the whole copy ends it."""
    if isinstance(record.what, Said):
        told.fault(record.what)
        if not record.what.path:
            told.end(0)


def _stdin(goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """Yield stdin as records of a file, while `goes_on` returns True."""
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
