"""`mesos-gpu cp`, `ls` and `cat`: files of jobs."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.files.place import STREAM, Place, PlaceType
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.interrupt import terminated
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.model.jobs.artifact import SENT_AT
from mesos_gpu.wire.mesos.cuts import TIMES

if TYPE_CHECKING:
    from mesos_gpu.cli.files.stream import Channelled, Source

Row = Mapping[str, Any]  # an entry in the form of --json
_KINDS: Final = {"dir": "d", "file": "-", "link": "l", "other": "?"}
_rank = click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", default=0, help="Rank of the task; default: 0."
)

FILES: Final[Listing[Row, Row]] = Listing(
    columns=(
        Col("MODE", lambda row: _mode(row)),
        Col("USER", lambda row: row["user"] or row["uid"]),
        Col("UID", lambda row: row["uid"], wide=True),
        Col("GID", lambda row: row["gid"], wide=True),
        Col("SIZE", lambda row: row["size"]),
        aged("CHANGED", lambda row: None if row["changed_at"] == SENT_AT else row["changed_at"]),
        Col("NAME", lambda row: _shown(row)),
    ),
    id=lambda row: str(row["name"]),
    rows=lambda row: (row,),
    filters={},
    fit=Fit(leave=("USER", "MODE", "CHANGED")),
)


def _mode(row: Row) -> str:
    bits = "".join(letter if row["mode"] >> (8 - at) & 1 else "-" for at, letter in enumerate("rwx" * 3))
    return _KINDS[row["kind"]] + bits


def _shown(row: Row) -> str:
    end = {"dir": "/", "link": f" -> {row['target']}"}
    return f"{row['name']}{end.get(row['kind'], '')}"


@dataclass(frozen=True, slots=True)
class _Files:
    """Access to files of a task."""

    app: App
    rank: int

    @contextlib.contextmanager
    def reading(self, place: Place, what: str) -> "Iterator[Source]":
        """Yield the source of a place's records: a channel while the task runs, else the stored sandbox of the ended
        task.

        Raises:
            Refused: The task neither runs nor has a stored sandbox, or may not be read.
        """
        from mesos_gpu.cli.client import Refused

        with contextlib.ExitStack() as resources:
            source: Source
            try:
                source = resources.enter_context(self.channel(place, what=what))
            except Refused as running:
                if running.code != "not-running":
                    raise
                try:
                    source = self._stored_source(place, what)
                except Refused as kept:
                    raise (running if kept.code == "not-ended" else kept) from None
            yield source

    def _stored_source(self, place: Place, what: str) -> "Source":
        from mesos_gpu.cli.files.stream import Answered

        query = {"what": what, "path": place.path, "rank": self.rank}
        pieces = self.app.client().stream(f"/v1/jobs/{quote(place.job, safe='')}/files", query)
        return Answered(
            chain([next(pieces, b"")], pieces)
        )  # reading the first block raises if there is no stored sandbox

    @contextlib.contextmanager
    def channel(self, place: Place, **order: str) -> "Iterator[Channelled]":
        """Yield a channel into a running task.

        Raises:
            Refused: The task does not run, or may not be accessed.
        """
        from mesos_gpu.cli.channel.opened import open_channel

        body = {"path": place.path, "rank": self.rank, **order}
        path = f"/v1/jobs/{quote(place.job, safe='')}/files"
        channel = open_channel(self.app, path, body)
        from mesos_gpu.cli.channel.line import open_line  # imported while the task's host is being contacted
        from mesos_gpu.cli.files.stream import Channelled

        with open_line(self.app.reach(), channel) as line:
            yield Channelled(line)


@click.command()
@click.argument("source", metavar="SOURCE", type=PlaceType(here=True))
@click.argument("target", metavar="TARGET", type=PlaceType(here=True))
@_rank
@api_command
def cp(app: App, source: Place, target: Place, rank: int) -> None:
    """Copy files and directories from or to a job.

    One of SOURCE and TARGET is JOB:PATH, the other is on this machine; - is stdin or stdout. A relative PATH starts in
    the job's sandbox. If TARGET is a directory, the copy gets its own name in it. Files are read and written as the
    job's user, in the job's view, while it runs; of an ended job only the sandbox can be read.

    A file gets its name only when it is complete. Modes and times are copied; links to places outside the copied
    directory, devices and the like are skipped and reported. JOB may also be the ID of a launch.

    \b
      mesos-gpu cp train-1a2b3c4d:checkpoint.pt .
      mesos-gpu cp train-1a2b3c4d:runs/ runs
      mesos-gpu cp --rank 1 data train-1a2b3c4d:
      tar c . | mesos-gpu cp - train-1a2b3c4d:code.tar
    """
    if source.is_here == target.is_here:
        raise click.UsageError(
            "exactly one of SOURCE and TARGET must be JOB:PATH; write a local path with a colon as ./PATH"
        )
    files = _Files(app, rank)
    with terminated():  # incomplete files are then removed too
        if target.is_here:
            _from_job(files, source, target.path)
        else:
            _to_job(files, source, target)


def _to_job(files: _Files, source: Place, target: Place) -> None:
    from mesos_gpu.cli.files.copying import bring

    name = "" if source.path == STREAM else source.name
    with files.channel(target, what="put", name=name) as channel:
        bring(channel, source.path, target)


def _from_job(files: _Files, source: Place, to: str) -> None:
    from mesos_gpu.cli.files.copying import fetch, pour

    with files.reading(source, "get") as channel:
        if to == STREAM:
            pour(channel, source, _write)
        else:
            fetch(channel, source, to)


@click.command()
@click.argument("places", metavar="JOB:PATH...", type=PlaceType(here=False), nargs=-1, required=True)
@_rank
@api_command
def cat(app: App, places: tuple[Place, ...], rank: int) -> None:
    """Print files of a job.

    \b
      mesos-gpu cat train-1a2b3c4d:params.json
    """
    from mesos_gpu.cli.files.copying import pour

    for place in places:
        with _Files(app, rank).reading(place, "get") as channel:
            pour(channel, place, _write)


@click.command()
@click.argument("place", metavar="JOB[:PATH]", type=PlaceType(here=False))
@_rank
@list_options(FILES)
@api_command
def ls(app: App, place: Place, rank: int, asked: "Asked[Row, Row]") -> None:
    """List files of a job, in its sandbox or at a path.

    A relative PATH starts in the sandbox. Files are seen as the job's user, in the job's view.

    \b
      mesos-gpu ls train-1a2b3c4d
      mesos-gpu ls train-1a2b3c4d:/tmp --sort -size
    """
    show(asked, lambda: Seen(_listed(_Files(app, rank), place), "The directory is empty."))


def _listed(files: _Files, place: Place) -> list[Row]:
    """Return the entries of a directory of a job, or the single entry of a file."""
    from mesos_gpu.cli.files.copying import Unread
    from mesos_gpu.wire.channel.tree import Entry, Mark, Said

    rows: list[Row] = []
    root: Entry | None = None
    with files.reading(place, "list") as channel:
        for record in channel.records():
            if isinstance(record.what, Said) and record.mark is Mark.FAULT:
                raise Unread(
                    f"{place} cannot be read: {record.what.why}",
                    remedy=f"list the sandbox with: mesos-gpu ls {place.job}",
                )
            if isinstance(record.what, Entry) and record.what.path:
                rows.append(_row(record.what, record.what.path[-1]))
            elif isinstance(record.what, Entry):
                root = record.what
    if root is not None and root.kind != "dir":
        return [_row(root, place.path)]
    # Hides a file of this package in the sandbox.
    rows = [row for row in rows if place.path or row["name"] != TIMES]
    return sorted(rows, key=lambda row: str(row["name"]))


def _row(entry: Any, name: str) -> Row:
    return {
        "name": _text(name),
        "kind": entry.kind,
        "mode": entry.mode,
        "size": entry.size,
        "changed_at": entry.mtime_ns / 1e9,
        "target": _text(entry.target) or None,
        "user": _text(entry.user) or None,
        "uid": entry.uid if entry.uid >= 0 else None,
        "gid": entry.gid if entry.gid >= 0 else None,
    }


def _text(name: str) -> str:
    """Return a file name as text that JSON can hold; names need not be UTF-8."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _write(data: bytes) -> None:
    output.raw(data, to_stderr=False)
