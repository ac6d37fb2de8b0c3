"""Output of a task, read through its agent's files API (Mesos' docs/endpoints/files/read.md)."""

import codecs
from dataclasses import dataclass, replace
from typing import Annotated, Final

import msgspec

from mesos_gpu.adapters.hosts.agents import REFUSED, Agent
from mesos_gpu.adapters.hosts.exchange import Bounds
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.http.requests import MAX_LOG_BYTES
from mesos_gpu.api.spec.shapes import LogTime
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.wire.mesos.cuts import (
    HEAD_BYTES,
    MAX_TIMES,
    TIMES,
    Times,
    begin_of,
    is_mark,
    times_of,
    times_within,
)

ENCODINGS: Final = ("text", BASE64 := "base64")  # the first is the default
MAX_CHARACTER: Final = 4  # bytes of UTF-8
#: Limits of one request for output to an agent; in JSON a byte of output may take six bytes.
LOG_BOUNDS: Final = Bounds(seconds=10.0, max_bytes=24 * MAX_LOG_BYTES)
_MAX_ANSWER: Final = 2 * MAX_LOG_BYTES
_MAX_STATE: Final = 8 * MAX_LOG_BYTES
_CUTS: Final = 3  # attempts to find the beginning of a log that is being cut
#: Answers of an agent that are joined: it gives 16 pages of memory at once (FilesProcess::_read in files.cpp).
_MAX_PAGES: Final = 256


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file. Offsets are in bytes."""

    data: str
    offset: int
    next_offset: int


def log_times(times: Times | None, chunk: Chunk, by: float) -> list[LogTime] | None:
    """Return when the bytes of a piece were written, or None if the task's host notes no times.

    Args:
        times: Recorded sizes of the stream; bytes behind the last one came after the host's latest check.
        chunk: Piece of the stream.
        by: Moment at which all of the piece had been written, in seconds since the epoch.
    """
    if times is None:
        return None
    within = [*times_within(times, chunk.offset, chunk.next_offset)]
    if chunk.next_offset > max(times[-1][0] if times else 0, chunk.offset):
        within.append((chunk.next_offset, max(by, times[-1][1] if times else 0.0)))
    return [{"offset": size, "at": at} for size, at in within]


class _Page(msgspec.Struct):
    """Response of the agent's /files/read."""

    data: str
    offset: Annotated[int, msgspec.Meta(ge=0)]


class _Executor(msgspec.Struct):
    id: str
    directory: str


class _Framework(msgspec.Struct):
    id: str
    executors: list[_Executor] = []
    completed_executors: list[_Executor] = []


class _State(msgspec.Struct):
    """The part of the agent's response of /state that gives the directories of sandboxes."""

    frameworks: list[_Framework] = []
    completed_frameworks: list[_Framework] = []


class LogReader:
    """Reader of one task's output through its agent. It blocks, so it must run on a worker thread."""

    def __init__(self, agent: Agent, framework_id: str) -> None:
        """Prepare the reader.

        Args:
            agent: Client of the task's agent.
            framework_id: Framework id of the scheduler.
        """
        self._agent, self._task, self._framework_id = agent, agent.task, framework_id

    def read(self, stream: str, offset: int, length: int) -> Chunk:
        """Read from byte `offset`, or the last `-offset` bytes; at least one character, if there is one.

        Raises:
            NotFound, Unavailable: See `read_bytes`.
        """
        begin, raw, at_end, cut = self.read_bytes(stream, offset, length)
        chunk = whole(raw, begin, last=at_end and self._task.ended, tail=offset < 0)
        return replace(chunk, data=cut + chunk.data) if cut else chunk

    def times(self, stream: str) -> Times | None:
        """Return the recorded sizes of a stream with their times; None if there are none.

        Raises:
            Unavailable: See `read_bytes`.
        """
        try:
            _, text, _, _ = self.read_bytes(TIMES, 0, MAX_TIMES)
        except NotFound:
            return None
        return times_of(text, stream)

    def read_bytes(self, stream: str, offset: int, length: int) -> tuple[int, bytes, bool, str]:
        """Read bytes of a stream, unchanged.

        Returns: The offset of the first byte, the bytes, whether they reach the current end, and a note to be shown
            before them if an older part of the log was cut off.

        Raises:
            NotFound: The sandbox is gone.
            Refusal: The task has not started, and has no output yet.
            Unavailable: The agent does not answer, or not as Mesos does.
        """
        task = self._task
        sandbox = f"/frameworks/{self._framework_id}/executors/{task.executor_id}/runs/latest"
        piece = self._read(f"{sandbox}/{stream}", offset, length)
        if piece is None:
            piece = self._read(f"{directory(self._agent, self._framework_id)}/{stream}", offset, length)
        if piece is None and task.state in (TaskState.LAUNCHED, TaskState.STARTING):
            what = f"task {task.id} has not started on {task.hostname}, and has no output yet"
            raise Refusal(409, "not-started", what, remedy=f"follow its output: mesos-gpu logs -f {task.id}")
        if piece is None:
            raise NotFound(
                f"the sandbox of {task.id} is gone from {task.hostname}",
                remedy="agents delete old sandboxes; raise --gc_delay of mesos-agent to keep them longer",
            )
        begin, raw, at_end, cut_note = piece
        if begin == 0 and at_end and is_mark(raw):
            return 0, b"", True, cut_note  # the mark is no output: a reader who follows must begin at 0
        return piece

    def _read(self, path: str, offset: int, length: int) -> tuple[int, bytes, bool, str] | None:
        """Read a piece behind what was cut off the log, with a note about that; None if there is no such file."""
        piece = self._piece(path, offset, length)
        note = ""
        for _ in range(_CUTS):  # the log may be cut again meanwhile
            cut = None if piece is None or not _may_be_cut(*piece) else self._cut(path)
            if piece is None or cut is None or cut[0] <= piece[0]:
                break
            after = self._piece(path, cut[0], length)
            if after is None or not (after[1] or self._size(path) == cut[0]):
                break  # not a real mark: the task itself has printed it
            piece, note = after, cut[1]
        return None if piece is None else (*piece, note)

    def _cut(self, path: str) -> tuple[int, str] | None:
        """Return the offset at which a cut log begins now, and the note about that; None if it was not cut."""
        head = self._piece(path, 0, HEAD_BYTES)
        return None if head is None else begin_of(head[1])

    def _piece(self, path: str, offset: int, length: int) -> tuple[int, bytes, bool] | None:
        """Read a piece: its offset, the bytes, and whether they reach the end; None if there is no such file."""
        if offset < 0:
            size = self._size(path)
            if size is None:
                return None
            offset = max(size + offset, 0)
        size = min(max(length, MAX_CHARACTER), MAX_LOG_BYTES)
        raw = b""
        for _ in range(_MAX_PAGES):
            if len(raw) >= size:
                break
            page = self._get(path, offset + len(raw), size - len(raw))
            if page is None:
                return None
            try:
                # Mesos copies the bytes of a file into the JSON string as they are, whatever their encoding.
                more = page.data.encode("latin-1")
            except UnicodeEncodeError as error:
                raise self._agent.no_agent(error) from error
            if not more:
                return offset, raw, True
            if len(more) > size - len(raw):
                why = f"it sends {len(more)} bytes of {path}, which is more than requested"
                raise self._agent.no_agent(ValueError(why))
            raw += more
        return offset, raw, False

    def _size(self, path: str) -> int | None:
        page = self._get(path, -1, 0)  # offset -1 asks for the size
        return None if page is None else page.offset

    def _get(self, path: str, offset: int, length: int) -> _Page | None:
        query: dict[str, str | int | bytes] = {"path": path, "offset": offset, "length": length}
        status, page = self._agent.get("/files/read", query, _Page, max_bytes=_MAX_ANSWER)
        if status == REFUSED:
            what = f"the agent {self._task.hostname} refuses to read {path}: it is not a file of the sandbox"
            raise Unavailable(what, remedy=f"list the files of the sandbox: mesos-gpu ls {self._task.id}")
        return page


def directory(agent: Agent, framework_id: str) -> str:
    """Return the absolute path of the task's sandbox, for an agent that no longer knows the virtual path of the task.

    Raises:
        Unavailable: The agent does not answer, or sends a response that a Mesos agent does not send.
    """
    _, state = agent.get("/state", {}, _State, max_bytes=_MAX_STATE)
    for framework in [*state.frameworks, *state.completed_frameworks] if state is not None else ():
        for executor in [*framework.executors, *framework.completed_executors]:
            if framework.id == framework_id and executor.id == agent.task.executor_id:
                return executor.directory
    return "/gone"


def _may_be_cut(offset: int, raw: bytes, _at_end: bool) -> bool:
    """Return whether a piece may belong to the mark of a cut, or to the hole behind it.

    The cut may also have been made after the first bytes were read.
    """
    return b"\0" in raw or (raw[:1] == b"[" if offset == 0 else offset < HEAD_BYTES and bool(raw))


def whole(raw: bytes, offset: int, *, last: bool, tail: bool = False) -> Chunk:
    """Return bytes as text; invalid UTF-8 becomes U+FFFD.

    An incomplete character at the end is left for the next read, unless this is the last one (`last`). An incomplete
    character at the beginning is left out if the last N bytes were requested (`tail`).
    """
    skipped = 0
    if tail and offset > 0:
        while skipped < min(len(raw), MAX_CHARACTER - 1) and raw[skipped] & 0xC0 == 0x80:
            skipped += 1
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(raw[skipped:], final=last)
    left = decoder.getstate()[0]
    return Chunk(text, offset + skipped, offset + len(raw) - len(left))
