"""The journal of a running scheduler: all that its engine takes in, in files that can each be replayed.

The state that a journal file begins with is stored in a file beside it, so that older files can be removed. Journal
files contain everything that users submit, including secrets in environments, so only their owner may read them.

A state may have hundreds of MiB. It is copied on the engine's thread, in a time that depends on the number of jobs and
not on their size. Another thread encodes and writes it while further steps go into the journal. A scheduler that is
killed meanwhile leaves a journal file without a state; its steps continue those of the previous file.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from mesos_gpu import __version__
from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.journal import Outcome, batch_line, begun_with, head_line, state_pieces
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.wire.journal import PATTERN, Copied, decode_batch, decode_head, state_name

FILES: Final = 8  # number of files, so that removing one loses at most an eighth
MAX_SIZES: Final = 8  # maximum size of files of the last `least_days`, as a multiple of the size limit
DAY_S: Final = 86400.0
_STATES: Final = "state-*.json"
_PARTS: Final = "state-*.part"  # pattern of states that were not written completely
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_BLOCK: Final = 1 << 20  # bytes of one read or write
logger = logging.getLogger(__name__)


class Journal:
    """A journal directory written by one scheduler; for the engine's thread, except for its construction.

    The first write that fails ends the journal with a warning, and the scheduler continues.

    Args:
        directory: Directory that holds only the journal.
        most_bytes: Size limit of all files except the newest state, in bytes.
        most_days: Days after which files are removed; up to a quarter longer, as whole files are removed.
        least_days: Days for which files are kept even beyond `most_bytes`, up to `MAX_SIZES` times that size.
        reserve: Free space of the file system; below half of it old files are removed regardless of their age.

    Raises:
        BadConfiguration: The directory cannot be created or written.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: int,
        most_days: float = inf,
        least_days: float = 0.0,
        reserve: Reserve | None = None,
    ) -> None:
        self._directory, self._most_bytes, self._most_s = directory, most_bytes, most_days * DAY_S
        self._least_s, self._reserve = least_days * DAY_S, reserve or Reserve(0)
        self._file: FileIO | None = None
        self._steps: list[tuple[ev.Event, Outcome]] = []
        self._at, self._seq, self._written = 0.0, 1, 0
        self._state_size = 0  # bytes of the latest state
        self._writer: threading.Thread | None = None  # writes the state of the newest file
        self.problem = ""  # why the journal exceeds `most_bytes` or is not written; for any thread
        self._began: float | None = None  # the time of the file's first step
        self._ended = False
        self._drops = False  # whether files of the last `least_days` were removed because of the size limit
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            ours = [entry for kind in (PATTERN, _STATES, _PARTS) for entry in directory.glob(kind)]
            if len(ours) == len(list(directory.iterdir())):  # otherwise other files share the directory
                directory.chmod(0o700)
            for path in ours:
                path.chmod(0o600)
            for path in directory.glob(_PARTS):
                path.unlink()
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise BadConfiguration(
                f"--journal {directory}: {error.strerror}",
                remedy="name a directory that the scheduler's user can write to",
            ) from error

    def begin(self, state: State, settings: Settings) -> None:
        """Begin a file with `state`, before its first step; step numbers continue those of the last file."""
        with self._ending_on_errors():
            old = self._files()
            self._seq = next((seq for path in reversed(old) if (seq := _seq_after(path))), 1)
            self._open(state, settings, follows=False)

    def note(self, event: ev.Event, outcome: Outcome, now: float) -> None:
        """Record a step for the next `flush`; all steps until then get the latest time."""
        if not self._ended:
            self._steps.append((event, outcome))
            self._at = now

    def flush(self, state: State, settings: Settings) -> None:
        """Write the recorded steps as one line; `state` is the state after them, with which the next file may begin."""
        with self._ending_on_errors():
            self._write()
            if self._is_full() or self._is_old():
                self._open(state, settings, follows=True)

    def _is_full(self) -> bool:
        """Return whether the newest file has reached its share of the size limit.

        A file gets at least as many bytes as the state that it begins with, so states take at most half of the journal.
        """
        return self._written >= max(self._most_bytes // FILES, self._state_size)

    def _is_old(self) -> bool:
        """Return whether the file covers its part of the time limit; a clock that was set back also begins a new
        file."""
        return self._began is not None and not 0 <= self._at - self._began < self._most_s / FILES

    def close(self) -> None:
        """Write the recorded steps, and close the file."""
        with self._ending_on_errors():
            self._write()
        if self._writer is not None:
            self._writer.join()
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
        """Begin the next journal file; the state that it begins with is written on another thread if `follows`."""
        if follows and self._writer is not None and self._writer.is_alive():
            return  # the newest file has no state yet, so it is continued until it has one
        if self._file is not None:
            self._file.close()
        old = self._files()
        has_room = self._make_room(old)
        number = int(old[-1].stem.rpartition("-")[2]) + 1 if old else 1
        path = self._directory / f"journal-{number:08}.jsonl"
        # Unbuffered: one line is one write, and what was written outlives the process.
        self._file = FileIO(os.open(path, _NEW, 0o600), "wb")
        _append(self._file, head_line(__version__, self._seq, settings, follows=follows))
        self._written, self._began = 0, None
        copied = begun_with(state)
        if not follows:  # the scheduler has just started: no previous file leads to this state
            self._state_size = _write_state(_state_of(path), self._seq, copied)
        elif has_room:
            arguments = (_state_of(path), self._seq, copied)
            self._writer = threading.Thread(
                target=self._write_beside, args=arguments, name="journal", daemon=True
            )
            self._writer.start()
        else:
            logger.warning(
                "%s begins without its state, because the disk has too little free space: free some, see "
                "--disk-reserve",
                path,
            )

    def _write_beside(self, path: Path, seq: int, copied: Copied) -> None:
        try:
            self._state_size = _write_state(path, seq, copied)
        except (OSError, ValueError, TypeError, msgspec.MsgspecError) as error:
            logger.warning(
                "state file %s could not be written, so replaying its steps needs the previous journal file: %s",
                path,
                error,
            )

    def _make_room(self, old: list[Path]) -> bool:
        """Remove the oldest files until no file is too old and another file fits; return whether the disk has room for
        a state.

        Files of the last `least_days` are removed only beyond `MAX_SIZES` times the size limit, or if the disk would
        have less than its reserve.
        """
        now, size, drops = time.time(), sum(map(_size_of, old)), False
        most = self._most_bytes * (FILES - 1) // FILES
        most_kept = self._most_bytes * MAX_SIZES - max(self._most_bytes // FILES, self._state_size)
        for path in old:
            written_at = path.stat().st_mtime
            is_kept = written_at >= now - self._least_s
            is_excess = size > (most_kept if is_kept else most)
            if not (is_excess or written_at < now - self._most_s or self._lacks_room()):
                break
            drops |= is_kept and is_excess
            size -= _size_of(path)
            path.unlink()
            _state_of(path).unlink(missing_ok=True)
        self._note_size(size, most, drops=drops)
        return not self._lacks_room()

    def _note_size(self, size: int, most: int, *, drops: bool) -> None:
        """Set `problem` if the remaining files have more than `most` bytes; log a line when that begins.

        Args:
            size: Size of the remaining files, in bytes.
            most: Size limit of these files, in bytes.
            drops: Whether files of the last `least_days` were removed because of their size.
        """
        was, self.problem = self.problem, ""
        if size > most or drops:
            period = f"its last {self._least_s / DAY_S:g} days"
            ends = f"the oldest of {period} are removed at {MAX_SIZES} times the size"
            had = f"the journal in {self._directory} has {size >> 20} MiB of {self._most_bytes >> 20}"
            self.problem = f"{had}: {ends if drops else f'{period} are kept'}"
        if self.problem and (not was or drops > self._drops):
            logger.warning("%s; see --journal-size and --journal-keep-days", self.problem)
        self._drops = drops

    def _lacks_room(self) -> bool:
        """Return whether a new state would leave less than half of the reserve.

        Archives are refused below the whole reserve, so users who fill the disk with archives cause no removal of
        journals.
        """
        free = self._reserve.free(self._directory)
        return free.whole - free.reserve // 2 < self._state_size

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
            self.problem = f"the journal in {self._directory} has stopped: {error}"
            logger.warning(
                "the journal in %s stopped and the scheduler continues without it; fix the cause and restart: %s",
                self._directory,
                error,
            )
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._steps.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _state_of(path: Path) -> Path:
    return path.with_name(state_name(path.name))


def _size_of(path: Path) -> int:
    """Return the size of a journal file and its state, in bytes."""
    state = _state_of(path)
    return path.stat().st_size + (state.stat().st_size if state.exists() else 0)


def _write_state(path: Path, seq: int, copied: Copied) -> int:
    """Write a state file and return its size in bytes; an incomplete file never gets the final name."""
    part = path.with_suffix(".part")
    try:
        with FileIO(os.open(part, _NEW, 0o600), "wb") as file:
            for block in _blocks(state_pieces(seq, copied)):
                _append(file, block)
            size = file.tell()
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return size


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces to blocks of at least `_BLOCK` bytes."""
    buffered, size = list[bytes](), 0
    for piece in pieces:
        buffered.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(buffered)
            buffered, size = [], 0
    yield b"".join(buffered)


def _append(file: FileIO, line: bytes) -> None:
    if file.write(line) != len(line):
        raise OSError(errno.ENOSPC, "only part of a line could be written: the disk may be full")


def _seq_after(path: Path) -> int:
    """Return the number of the step after a file's last whole line; 0 if the file has no whole line."""
    first, last = _ends_of(path)
    if last:
        batch = decode_batch(last)
        return batch.seq + len(batch.steps)
    return decode_head(first).seq if first else 0


def _ends_of(path: Path) -> tuple[bytes, bytes]:
    """Return the first line of a file, and the last of its other lines; b"" for a missing or incomplete line."""
    with path.open("rb") as file:
        first = file.readline()
        if not first.endswith(b"\n"):
            return b"", b""
        begin, at, data = file.tell(), file.seek(0, os.SEEK_END), b""
        while at > begin and data[: data.rfind(b"\n")].count(b"\n") < 1:
            end, at = at, max(begin, at - _BLOCK)
            file.seek(at)
            data = file.read(end - at) + data
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return first, lines[-1] if lines else b""
