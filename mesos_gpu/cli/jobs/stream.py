"""A job's output, live: what its launches write to stdout and stderr, until the job has ended."""

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

CHUNK_BYTES: Final = 1 << 20  # the interface's limit
STREAMS: Final = ("stdout", "stderr")
MAX_LINE: Final = 1 << 16  # bytes that are kept until a line is whole
_NOT_STARTED: Final = "not-started"
UNKNOWN: Final = "(time unknown)"
_BUSY_S: Final = 0.2
_QUIET_S: Final = 1.0
_WAITING_S: Final = 2.0  # how often a person sees a new reason why it waits


@dataclass(frozen=True, slots=True)
class Shown:
    """What of an output is printed, and how.

    Attributes:
        only: One stream; None: both.
        tail: Its last lines; None: all of it.
        prefix: Whether each line begins with whose it is.
        since: Only what was written since then, seconds since the epoch; None: all.
        stamped: Whether each line begins with when it was written.
    """

    only: str | None
    tail: int | None
    prefix: bool
    since: float | None
    stamped: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its streams."""
        return (self.only,) if self.only else STREAMS


class Marks:
    """Headings over what comes out, as `tail` has them for several files: `==> stderr <==`."""

    def __init__(self, *, to_stderr: bool, of: str = "") -> None:
        """`of` stands before the name of a stream."""
        self._to_stderr, self._of = to_stderr, of
        self._shown, self._open = "", False  # the latest heading; whether a line has no end yet

    def of(self, what: str) -> "Marks":
        """Mark what comes out from now on as of `what`."""
        self._of = what
        return self

    def over(self, stream: str, data: bytes) -> None:
        """A heading before `data`, if it comes from elsewhere than what was printed last."""
        heading = f"==> {f'{self._of} {stream}'.strip()} <=="
        if heading != self._shown:
            before = ("\n" if self._open else "") + ("\n" if self._shown else "")
            output.raw(f"{before}{heading}\n".encode(), to_stderr=self._to_stderr)
            self._shown = heading
        self._open = not data.endswith(b"\n")


class Written(NamedTuple):
    """Bytes of a stream, the offset behind them, and times of writing by offset, as far as they are known."""

    data: bytes
    next_offset: int
    times: Sequence[tuple[int, float]] = ()


class Line(NamedTuple):
    """A line of a stream as it is printed, and when it was written, in seconds since the epoch; 0: not known."""

    at: float
    text: bytes
    to_stderr: bool


class Label:
    """What stands before each line of a stream, as `srun --label` has it: `[1 err] text`.

    A line is printed when it is whole, so that those of several streams do not mix.
    """

    def __init__(self, of: str, stream: str, *, stamped: bool = False) -> None:
        """`of`: a rank or a task, a line of stderr says so; "": neither. `stamped`: also when it was written."""
        self._before = f"[{f'{of} err' if stream == 'stderr' else of}] ".encode() if of else b""
        self.stamped = stamped
        self._rest, self._at = b"", None  # type: bytes, float | None

    def take(self, data: bytes, end: int = 0, times: Sequence[tuple[int, float]] = ()) -> bytes:
        """Return the lines that are whole now; arguments are those of `lines`."""
        return b"".join(line for _, line in self.lines(data, end, times))

    def lines(
        self, data: bytes, end: int = 0, times: Sequence[tuple[int, float]] = ()
    ) -> list[tuple[float | None, bytes]]:
        """Return the lines that are whole now, each with when it was written, or None if that is not known.

        Args:
            data: What comes next.
            end: The offset behind it.
            times: As of `Written`.
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
        """What is left without its end, as a line."""
        rest, self._rest = self._rest, b""
        return self._line(rest, self._at) if rest else b""

    def _line(self, line: bytes, at: float | None) -> bytes:
        stamp = f"{output.stamp(at) or UNKNOWN} ".encode() if self.stamped else b""
        return stamp + self._before + line + b"\n"


class Stream:
    """A stream of a job, copied to `err` (our stderr) or our stdout."""

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
        """`name` is `stdout` or `stderr`; `marks` puts it over what is printed, `label` before each line. `since`:
        what was written before that, seconds since the epoch, is left out; None: nothing is."""
        self._client, self._job_id, self._name, self._to_stderr = client, job_id, name, to_stderr
        self._marks, self._label, self._since = marks, label, since
        self.offset = 0
        self.timed = False  # whether times are read though they are not printed
        self.failure: Refused | None = None  # why the latest read did not work

    def tail(self, task_id: str, lines: int) -> None:
        """Begin at the last lines of what there is.

        Raises:
            Refused: It cannot be read.
        """
        written = self._read(-CHUNK_BYTES, task_id)
        kept = written.data.split(b"\n")
        whole = kept[:-1] if kept[-1] == b"" else kept  # a last line without its end counts too
        last = b"\n".join(kept[max(len(whole) - lines, 0) :])
        self.offset = max(written.next_offset - len(last), 0)

    def finish(self) -> None:
        """Print a last line that has no end."""
        if self._label is not None:
            output.raw(self._label.end(), to_stderr=self._to_stderr)

    def is_timed(self, task_id: str) -> bool:
        """Return whether the host of a launch notes when its lines are written; one that has not begun will.

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
        noted = [(each["offset"], each["at"]) for each in logs["times"] or ()]
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
        """Copy what the launch has written since; whether there was anything.

        An agent that cannot be read is no reason to leave the job: it is kept in `failure`.
        """
        begin = self.offset
        while (written := self._further(task_id)) is not None:
            with held_interrupt():
                self._print(written)
                self.offset = written.next_offset
        return self.offset > begin

    def lines(self, task_id: str | None) -> Iterator[Line]:
        """Yield the lines that the launch has written since, as they are whole; failures are kept as by `pump`."""
        assert self._label is not None
        latest = 0.0
        while (written := self._further(task_id)) is not None:
            self.offset = written.next_offset
            for at, text in self._label.lines(*written):
                latest = max(latest, at or 0.0)
                yield Line(latest, text, self._to_stderr)

    def _further(self, task_id: str | None) -> Written | None:
        """Return what comes next, or None if there is no more or `failure` says why it cannot be read."""
        try:
            written = self._read(self.offset, task_id)
        except Refused as err:
            self.failure = err
            return None
        self.failure = None
        return written if written.next_offset > self.offset else None


def task_of(job: Job, rank: int) -> str | None:
    """The task id of a rank in the job's latest launch; None: there was no launch."""
    return job["task_ids"][rank] if job["task_ids"] else None


class Follower:
    """Copies the streams of all launches of a job in order."""

    def __init__(
        self, client: Client, job: Job, streams: Sequence[Stream], *, launch: str | None, rank: int = 0
    ) -> None:
        """Begin with `launch` (a task id; None: the first) of `job`, as the job is now, where its streams stand.

        `rank`: which of the job's tasks.
        """
        self.job, self._client, self._launch, self._rank = job, client, launch, rank
        self._streams = streams
        self.tells = True  # of further launches; among several of one job, one does

    def follow(self, waiting: Callable[[Job], None] = lambda _job: None) -> Job:
        """Copy until the job has ended and all is out; `waiting` is called while nothing runs yet."""
        return follow(self._client, [self], waiting)

    def once(self) -> None:
        """Copy what its launch has written by now.

        Raises:
            Refused: It cannot be read.
        """
        for stream in self._streams:
            stream.pump(self._launch)
            stream.finish()
            if stream.failure is not None:
                raise stream.failure

    def is_timed(self) -> bool:
        """Return whether it is known when the lines of its launch were written.

        Raises:
            Refused: Its output cannot be read.
        """
        return self._launch is None or self._streams[0].is_timed(self._launch)

    def lines(self) -> Iterator[Line]:
        """Yield the lines that there are by now, of all launches; of each launch by the time of writing."""
        latest = self._latest()
        if latest is None:
            return
        self._launch = self._launch or self._first()
        yield from self.lines_of_launch()
        while self._launch != latest:
            self._next()
            yield from self.lines_of_launch()

    def lines_of_launch(self) -> Iterator[Line]:
        """Yield the lines of its launch that there are by now, by the time of writing."""
        for stream in self._streams:
            stream.timed = True
        return by_time(stream.lines(self._launch) for stream in self._streams)

    def end_lines(self) -> list[Refused]:
        """Print last lines that have no end; return why streams could not be read."""
        for stream in self._streams:
            stream.finish()
        return [stream.failure for stream in self._streams if stream.failure is not None]

    def finish(self) -> None:
        """Print what is left, and say what is missing."""
        faults = [failure for failure in self.end_lines() if failure.code != _NOT_STARTED]
        if faults:
            output.note(f"output of {self._launch} is missing: {faults[0].what}")

    def copy(self) -> bool:
        """Copy what there is by now, of all launches; whether there was anything."""
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
        """Go on to the launch after this one: the job was launched again."""
        self.finish()
        ids = self._ids()
        after = ids[ids.index(self._launch) + 1 :] if self._launch in ids else []
        self._launch = after[0] if after else self._latest()
        for stream in self._streams:
            stream.offset = 0
        if self.tells:
            what = f"job {self.job['id']} was launched again, as {self._launch}; its output begins anew"
            output.note(what)


def by_time(several: Iterable[Iterator[Line]]) -> Iterator[Line]:
    """Return the lines of several streams as one, by when they were written; each stream is read as it is needed."""
    return heapq.merge(*several, key=lambda line: line.at)


def print_once(followers: Sequence[Follower]) -> None:
    """Print what the launches of several followers have written by now, by when it was written.

    Raises:
        Refused: Output cannot be read; what can be read is printed before.
    """
    moved = print_merged(follower.lines_of_launch() for follower in followers)
    failures = [failure for follower in followers for failure in follower.end_lines()]
    faults = [failure for failure in failures if not moved or failure.code != _NOT_STARTED]
    if faults:
        raise faults[0]


def print_merged(several: Iterable[Iterator[Line]]) -> bool:
    """Print the lines of several streams by when they were written; return whether there were any."""
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
    """Copy the tasks of a job, each by a follower, until the job has ended and all is out.

    Args:
        client: Of the scheduler.
        followers: Of the same job; at least one.
        waiting: Is called while nothing runs yet.
        merged: Whether the lines that come at each look are printed by when they were written.
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
        # Many ranks are looked at less often: half of the time, at most, the scheduler is asked for output.
        wait_s = idle_s if job["state"] == "pending" else max(pause_s, took_s)
        job = client.job(job["id"], after_version=job["version"], timeout_s=wait_s)
        for follower in followers:
            follower.job = job
        idle_s = _WAITING_S
