"""The journal of a running scheduler: all that its engine takes in, in files that can each be replayed.

A file begins with the whole state, so old files can go. They hold what users submit, secrets in environments
included: only their owner may read them.
"""

import contextlib
import errno
import logging
import os
import time
from collections.abc import Iterator
from io import FileIO
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from mesos_gpu import __version__
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import Outcome, batch_line, head_line
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.wire.journal import decode_batch, decode_head

FILES: Final = 8  # that the size is divided into, so that an eighth at most is lost at once
DAY_S: Final = 86400.0
PATTERN: Final = "journal-*.jsonl"
logger = logging.getLogger(__name__)


class Journal:
    """A directory of a journal, written by one scheduler; all but the constructor on the engine's thread.

    The first write that fails ends it, with a warning: the scheduler goes on without.
    """

    def __init__(self, directory: Path, most_bytes: int, most_days: float = inf) -> None:
        """Nothing is written yet.

        Args:
            directory: Of the journal alone.
            most_bytes: Of all files, the newest one's first line not counted.
            most_days: How long what was written is kept; up to a quarter longer, as whole files are removed.

        Raises:
            BadConfiguration: The directory cannot be made or written.
        """
        self._directory, self._most_bytes, self._most_s = directory, most_bytes, most_days * DAY_S
        self._file: FileIO | None = None
        self._steps: list[tuple[ev.Event, Outcome]] = []
        self._at, self._seq, self._written = 0.0, 1, 0
        self._began: float | None = None  # the time of the file's first step
        self._ended = False
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if all(
                entry.match(PATTERN) for entry in directory.iterdir()
            ):  # else it is not the journal's alone
                directory.chmod(0o700)
            for path in self._files():
                path.chmod(0o600)
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise BadConfiguration(
                f"--journal {directory}: {error.strerror}", remedy="name a directory that this user can write"
            ) from error

    def begin(self, state: State, settings: Settings) -> None:
        """Begin a file with `state`, before its first step; numbers go on where the last file ends."""
        with self._ending_on_errors():
            old = self._files()
            self._seq = next((seq for path in reversed(old) if (seq := _seq_after(path))), 1)
            self._open(state, settings, follows=False)

    def note(self, event: ev.Event, outcome: Outcome, now: float) -> None:
        """Keep a step for the next `flush`; all steps until then have one time."""
        if not self._ended:
            self._steps.append((event, outcome))
            self._at = now

    def flush(self, state: State, settings: Settings) -> None:
        """Write what was noted as one line; `state` is what it led to, for the next file to begin with."""
        with self._ending_on_errors():
            self._write()
            if self._written * FILES >= self._most_bytes or self._is_old():
                self._open(state, settings, follows=True)

    def _is_old(self) -> bool:
        """Whether the file has its part of the time; a clock that was set back begins a new one, too."""
        return self._began is not None and not 0 <= self._at - self._began < self._most_s / FILES

    def close(self) -> None:
        """Write what was noted, and close the file."""
        with self._ending_on_errors():
            self._write()
        self._end()

    def _write(self) -> None:
        if self._file is None or not self._steps:
            return
        self._began = self._at if self._began is None else self._began
        line = batch_line(self._seq, self._at, self._steps)
        _append(self._file, line)
        self._seq += len(self._steps)
        self._written += len(line)
        self._steps.clear()

    def _open(self, state: State, settings: Settings, *, follows: bool) -> None:
        if self._file is not None:
            self._file.close()
        old = self._files()
        self._make_room(old)
        number = int(old[-1].stem.rpartition("-")[2]) + 1 if old else 1
        path = self._directory / f"journal-{number:08}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # Unbuffered: one line is one write, and what was written outlives the process.
        self._file = FileIO(os.open(path, flags, 0o600), "wb")
        _append(self._file, head_line(__version__, self._seq, settings, state, follows=follows))
        self._written, self._began = 0, None

    def _make_room(self, old: list[Path]) -> None:
        """Remove the oldest files until another one fits and none was last written too long ago."""
        size, long_ago = sum(path.stat().st_size for path in old), time.time() - self._most_s
        for path in old:
            if size <= self._most_bytes * (FILES - 1) // FILES and path.stat().st_mtime >= long_ago:
                break
            size -= path.stat().st_size
            path.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob(PATTERN))

    @contextlib.contextmanager
    def _ending_on_errors(self) -> Iterator[None]:
        if self._ended:
            yield
            return
        try:
            yield
        except (OSError, ValueError, TypeError, msgspec.MsgspecError, Damaged) as error:
            logger.warning("the journal in %s ends here, the scheduler goes on: %s", self._directory, error)
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._steps.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _append(file: FileIO, line: bytes) -> None:
    if file.write(line) != len(line):
        raise OSError(errno.ENOSPC, "only a part of a line could be written")


def _seq_after(path: Path) -> int:
    """The number of the step after a file's last whole line; 0: it has none."""
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if len(lines) > 1:
        last = decode_batch(lines[-1])
        return last.seq + len(last.steps)
    return decode_head(lines[0]).seq if lines else 0
