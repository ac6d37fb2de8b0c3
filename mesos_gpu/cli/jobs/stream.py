"""Live output of a job: stdout and stderr of its launches, until the job has ended."""

import heapq
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mesos_gpu.api.spec.shapes import Job, Logs
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client, Refused, ended, path_of
from mesos_gpu.cli.interrupt import held_interrupt
from mesos_gpu.wire.mesos.cuts import written_by

CHUNK_BYTES: Final = 1 << 20  # maximum of the interface
STREAMS: Final = ("stdout", "stderr")
MAX_LINE: Final = 1 << 16  # bytes buffered for an unfinished line
_NOT_STARTED: Final = "not-started"
UNKNOWN: Final = "(time unknown)"
_BUSY_S: Final = 0.2
_QUIET_S: Final = 1.0
_WAITING_S: Final = 2.0  # interval of updates of the reason for waiting


@dataclass(frozen=True, slots=True)
class Shown:
    """Selection and format of printed output.

    Attributes:
        only: The only stream to print; None for both.
        tail: Number of last lines to print; None for all output.
        prefix: Whether each line begins with its rank or task.
        since: Only output written since this time, in seconds since the epoch; None for all.
        stamped: Whether each line begins with its time of writing.
    """

    only: str | None
    tail: int | None
    prefix: bool
    since: float | None
    stamped: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the printed streams."""
        return (self.only,) if self.only else STREAMS


class Marks:
    """Headings between streams, like those of `tail` for several files: `==> stderr <==`.

    `of` precedes the name of the stream.
    """

    def __init__(self, *, to_stderr: bool, of: str = "") -> None:
        self._to_stderr, self._of = to_stderr, of
        self._shown, self._open = "", False  # latest heading; whether the last line is unfinished

    def of(self, what: str) -> "Marks":
        """Use `what` in later headings, and return self."""
        self._of = what
        return self

    def over(self, stream: str, data: bytes) -> None:
        """Print a heading before `data` if it comes from another stream than the last output."""
        heading = f"==> {f'{self._of} {stream}'.strip()} <=="
        if heading != self._shown:
            before = ("\n" if self._open else "") + ("\n" if self._shown else "")
            output.raw(f"{before}{heading}\n".encode(), to_stderr=self._to_stderr)
            self._shown = heading
        self._open = not data.endswith(b"\n")


class Written(NamedTuple):
    """Bytes of a stream, the offset after them, and the known times of writing by offset."""

    data: bytes
    next_offset: int
    times: Sequence[tuple[int, float]] = ()


class Line(NamedTuple):
    """A line of a stream as printed, and its time of writing in seconds since the epoch; 0 if not known."""

    at: float
    text: bytes
    to_stderr: bool


class Label:
    """Prefix of each line of a stream, like that of `srun --label`: `[1 err] text`.

    Lines are printed only when complete, so that lines of several streams do not mix.

    Args:
        of: Rank or task of the stream, marked for stderr; "" for none.
        stream: Name of the stream.
        stamped: Whether to print the time of writing too.
    """

    def __init__(self, of: str, stream: str, *, stamped: bool = False) -> None:
        self._before = f"[{f'{of} err' if stream == 'stderr' else of}] ".encode() if of else b""
        self.stamped = stamped
        self._rest, self._at = b"", None  # type: bytes, float | None

    def take(self, data: bytes, end: int = 0, times: Sequence[tuple[int, float]] = ()) -> bytes:
        """Return the lines that are complete now; arguments as for `lines`."""
        return b"".join(line for _, line in self.lines(data, end, times))

    def lines(
        self, data: bytes, end: int = 0, times: Sequence[tuple[int, float]] = ()
    ) -> list[tuple[float | None, bytes]]:
        """Return the lines that are complete now, each with its time of writing, or None if not known.

        Args:
            data: Next bytes of the stream.
            end: Offset after `data`.
            times: Times of writing by offset, as in `Written`.
        """
        *whole, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            whole, rest = [*whole, rest], b""
        offset, lines = end - len(rest) - sum(len(line) + 1 for line in whole), []
        for line in whole:
            offset += len(line) + 1
            at = written_by(times, offset)
            lines.append((at, self._line(line, at)))
        self._rest, self._at = rest, written_by(times, end)
        return lines

    def end(self) -> bytes:
        """Return the unfinished rest as a line; b"" without a rest."""
        rest, self._rest = self._rest, b""
        return self._line(rest, self._at) if rest else b""

    def _line(self, line: bytes, at: float | None) -> bytes:
        stamp = f"{output.stamp(at) or UNKNOWN} ".encode() if self.stamped else b""
        return stamp + self._before + line + b"\n"


class Stream:
    """A stream of a job, copied to stdout or stderr of this process.

    Args:
        client: Client of the scheduler.
        job_id: Job whose output is read.
        name: `stdout` or `stderr`.
        to_stderr: Whether to print on stderr.
        marks: Headings to print when the stream changes.
        label: Prefix of each line.
        since: Earliest time of writing to print, in seconds since the epoch; None for all output.
    """

    def __init__(
        self,
        client: Client,
        job_id: str,
        name: str,
        *,
        to_stderr: bool,
        marks: "Marks | None" = None,
        label: "Label | None" = None,
        since: float | None = None,
    ) -> None:
        self._client, self._job_id, self._name, self._to_stderr = client, job_id, name, to_stderr
        self._marks, self._label, self._since = marks, label, since
        self.offset = 0
        self.timed = False  # whether times are read although they are not printed
        self.failure: Refused | None = None  # error of the latest read

    def tail(self, task_id: str, lines: int) -> None:
        """Skip to the last lines of the available output.

        Raises:
            Refused: The output cannot be read.
        """
        written = self._read(-CHUNK_BYTES, task_id)
        parts = written.data.split(b"\n")
        whole = parts[:-1] if parts[-1] == b"" else parts  # an unfinished last line counts too
        last = b"\n".join(parts[max(len(whole) - lines, 0) :])
        self.offset = max(written.next_offset - len(last), 0)

    def finish(self) -> None:
        """Print an unfinished last line."""
        if self._label is not None:
            output.raw(self._label.end(), to_stderr=self._to_stderr)

    def is_timed(self, task_id: str) -> bool:
        """Return whether the host of a launch records times of writing; True for a launch that has not begun.

        Raises:
            Refused: The output cannot be read.
        """
        try:
            return self._ask(0, task_id, length=1, times=True)["times"] is not None
        except Refused as err:
            if err.code == _NOT_STARTED:
                return True
            raise

    def _print(self, written: Written) -> None:
        data = written.data
        if self._label is not None:
            data = self._label.take(*written)
        if self._marks is not None and data:
            self._marks.over(self._name, data)
        output.raw(data, to_stderr=self._to_stderr)

    def _read(self, offset: int, task_id: str | None) -> Written:
        times = self.timed or (self._label is not None and self._label.stamped)
        logs = self._ask(offset, task_id, length=CHUNK_BYTES, times=times)
        noted = [(entry["offset"], entry["at"]) for entry in logs["times"] or ()]
        return Written(b64decode(logs["data"]), logs["next_offset"], noted)

    def _ask(self, offset: int, task_id: str | None, *, length: int, times: bool) -> Logs:
        query: dict[str, Any] = {
            "stream": self._name,
            "offset": offset,
            "length": length,
            "task_id": task_id,
            "encoding": "base64",
        }
        query |= {"times": "true"} if times else {}
        query |= {"since": f"{self._since:.3f}"} if self._since is not None else {}
        return self._client.get(path_of("jobs", self._job_id, "logs"), Logs, query)

    def pump(self, task_id: str | None) -> bool:
        """Copy new output of the launch; return whether there was any.

        A failed read does not end the follower: it is kept in `failure`.
        """
        begin = self.offset
        while (written := self._further(task_id)) is not None:
            with held_interrupt():
                self._print(written)
                self.offset = written.next_offset
        return self.offset > begin

    def lines(self, task_id: str | None) -> Iterator[Line]:
        """Yield complete new lines of the launch; failures are kept as by `pump`."""
        assert self._label is not None
        latest = 0.0
        while (written := self._further(task_id)) is not None:
            self.offset = written.next_offset
            for at, text in self._label.lines(*written):
                latest = max(latest, at or 0.0)
                yield Line(latest, text, self._to_stderr)

    def _further(self, task_id: str | None) -> Written | None:
        """Return the next output; None at the end, or if `failure` explains why it cannot be read."""
        try:
            written = self._read(self.offset, task_id)
        except Refused as err:
            self.failure = err
            return None
        self.failure = None
        return written if written.next_offset > self.offset else None


def task_of(job: Job, rank: int) -> str | None:
    """Return the task id of a rank in the job's latest launch; None if it was not launched."""
    return job["task_ids"][rank] if job["task_ids"] else None


class Follower:
    """Copies the streams of all launches of one task of a job, in order.

    Args:
        client: Client of the scheduler.
        job: Job in its current state.
        streams: Streams of the task, at their current positions.
        launch: Task id of the launch to begin with; None for the first.
        rank: Rank of the task.
    """

    def __init__(
        self, client: Client, job: Job, streams: Sequence[Stream], *, launch: str | None, rank: int = 0
    ) -> None:
        self.job, self._client, self._launch, self._rank = job, client, launch, rank
        self._streams = streams
        self.tells = True  # whether to announce further launches; only one follower of a job does

    def follow(self, waiting: Callable[[Job], None] = lambda _job: None) -> Job:
        """Copy until the job has ended and all output is printed; `waiting` is called while nothing runs yet."""
        return follow(self._client, [self], waiting)

    def once(self) -> None:
        """Copy the available output of the launch.

        Raises:
            Refused: The output cannot be read.
        """
        for stream in self._streams:
            stream.pump(self._launch)
            stream.finish()
            if stream.failure is not None:
                raise stream.failure

    def is_timed(self) -> bool:
        """Return whether the host of the launch records when output was written; True if nothing was launched yet.

        Raises:
            Refused: The output cannot be read.
        """
        return self._launch is None or self._streams[0].is_timed(self._launch)

    def lines(self) -> Iterator[Line]:
        """Yield the available lines of all launches; within each launch by time of writing."""
        latest = self._latest()
        if latest is None:
            return
        self._launch = self._launch or self._first()
        yield from self.lines_of_launch()
        while self._launch != latest:
            self._next()
            yield from self.lines_of_launch()

    def lines_of_launch(self) -> Iterator[Line]:
        """Yield the available lines of the current launch by time of writing."""
        for stream in self._streams:
            stream.timed = True
        return by_time(stream.lines(self._launch) for stream in self._streams)

    def end_lines(self) -> list[Refused]:
        """Print unfinished last lines; return errors of streams that could not be read."""
        for stream in self._streams:
            stream.finish()
        return [stream.failure for stream in self._streams if stream.failure is not None]

    def finish(self) -> None:
        """Print the rest, and note missing output."""
        faults = [failure for failure in self.end_lines() if failure.code != _NOT_STARTED]
        if faults:
            output.note(f"output of {self._launch} could not be read completely: {faults[0].what}")

    def copy(self) -> bool:
        """Copy the available output of all launches; return whether there was any."""
        latest = self._latest()
        if latest is None:
            return False
        self._launch = self._launch or self._first()
        moved = self._pump()
        while self._launch != latest:
            self._next()
            moved = self._pump() or moved
        return moved

    def _pump(self) -> bool:
        assert self._launch is not None
        moved = [stream.pump(self._launch) for stream in self._streams]
        return any(moved)

    def _latest(self) -> str | None:
        return task_of(self.job, self._rank)

    def _ids(self) -> list[str]:
        return [task["id"] for task in self._client.tasks(self.job["id"]) if task["rank"] == self._rank]

    def _first(self) -> str | None:
        return next(iter(self._ids()), self._latest())

    def _next(self) -> None:
        """Switch to the next launch, because the job was launched again."""
        self.finish()
        ids = self._ids()
        after = ids[ids.index(self._launch) + 1 :] if self._launch in ids else []
        self._launch = after[0] if after else self._latest()
        for stream in self._streams:
            stream.offset = 0
        if self.tells:
            what = f"job {self.job['id']} was launched again, as {self._launch}; its output starts again"
            output.note(what)


def by_time(several: Iterable[Iterator[Line]]) -> Iterator[Line]:
    """Merge the lines of several streams by time of writing; each stream is read as needed."""
    return heapq.merge(*several, key=lambda line: line.at)


def print_once(followers: Sequence[Follower]) -> None:
    """Print the available output of the launches of several followers, by time of writing.

    Raises:
        Refused: Output cannot be read; readable output is printed before.
    """
    moved = print_merged(follower.lines_of_launch() for follower in followers)
    failures = [failure for follower in followers for failure in follower.end_lines()]
    faults = [failure for failure in failures if not moved or failure.code != _NOT_STARTED]
    if faults:
        raise faults[0]


def print_merged(several: Iterable[Iterator[Line]]) -> bool:
    """Print lines of several streams by time of writing; return whether there were any."""
    moved = False
    for line in by_time(several):
        moved = True
        output.raw(line.text, to_stderr=line.to_stderr)
    return moved


def follow(
    client: Client,
    followers: Sequence[Follower],
    waiting: Callable[[Job], None],
    *,
    merged: bool = False,
) -> Job:
    """Copy the output of a job's tasks, one follower each, until the job has ended and all output is printed.

    Args:
        client: Client of the scheduler.
        followers: Followers of one job; at least one.
        waiting: Function that is called while nothing runs yet.
        merged: Whether to sort the lines of each round by time of writing.
    """
    pause_s, idle_s, job = _BUSY_S, _QUIET_S, followers[0].job
    for follower in followers[1:]:
        follower.tells = False
    while True:
        began = time.monotonic()
        if merged:
            moved = [print_merged(follower.lines() for follower in followers)]
        else:
            moved = [follower.copy() for follower in followers]
        took_s = time.monotonic() - began
        if ended(job):
            for follower in followers:
                follower.finish()
            return job
        pause_s = _BUSY_S if any(moved) else min(pause_s * 1.5, _QUIET_S)
        if job["state"] in ("pending", "starting", "unreachable"):
            waiting(job)
        # Many ranks are polled less often, so that at most half of the time is spent on requests.
        wait_s = idle_s if job["state"] == "pending" else max(pause_s, took_s)
        job = client.job(job["id"], after_version=job["version"], timeout_s=wait_s)
        for follower in followers:
            follower.job = job
        idle_s = _WAITING_S
