"""A task's output, read through its agent's files API (Mesos' docs/endpoints/files/read.md)."""

import codecs
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

import requests

from mesos_gpu.adapters.tls.session import causes, verify_by
from mesos_gpu.adapters.tls.trust import ENDED, OTHER_NAME
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.http.requests import MOST_LOG_BYTES
from mesos_gpu.api.spec.shapes import LogTime
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.cuts import HEAD_BYTES, MOST_TIMES, TIMES, Times, begin_of, times_of, times_within

ENCODINGS: Final = ("text", BASE64 := "base64")  # the first is the default
LONGEST_CHARACTER: Final = 4  # bytes of UTF-8
TIMEOUT_S: Final = 10.0
DEFAULT_PORT: Final = 5051  # of agents
_CUTS: Final = 3
#: Answers of an agent that are put together: it gives 16 pages of memory at once (FilesProcess::_read in files.cpp).
_MOST_PAGES: Final = 256


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file. Offsets are in bytes."""

    data: str
    offset: int
    next_offset: int


def log_times(times: Times | None, chunk: Chunk) -> list[LogTime] | None:
    """When the bytes of a piece were written; None: that is not known."""
    if times is None:
        return None
    within = times_within(times, chunk.offset, chunk.next_offset)
    return [{"offset": size, "at": at} for size, at in within]


class LogReader:
    """Reads from any agent; blocking, so it runs on a worker thread."""

    def __init__(self, authorization: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Open a session: connections to agents are kept.

        Args:
            authorization: The header, for agents that want one.
            tls: Verifies agents, by their addresses or their names; None: they speak plain HTTP.
        """
        self._session, self._tls = requests.Session(), tls
        self._named: set[str] = set()  # addresses of agents whose certificates have their names
        if tls is not None:
            verify_by(self._session, tls)
        if authorization:
            self._session.headers["Authorization"] = authorization
        self._session.trust_env = False  # an agent is not behind the operator's web proxy

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def read(self, task: Task, framework_id: str, stream: str, offset: int, length: int) -> Chunk:
        """Read from byte `offset`, or the last `-offset` bytes; at least one character, if there is one.

        Raises:
            NotFound, Unavailable: What `read_bytes` raises.
        """
        begin, raw, at_end, cut = self.read_bytes(task, framework_id, stream, offset, length)
        chunk = whole(raw, begin, last=at_end and task.ended, tail=offset < 0)
        return replace(chunk, data=cut + chunk.data) if cut else chunk

    def times(self, task: Task, framework_id: str, stream: str) -> Times | None:
        """When a stream of a task had which size; None: that was not noted, or is gone.

        Raises:
            Unavailable: What `read_bytes` raises.
        """
        try:
            _, text, _, _ = self.read_bytes(task, framework_id, TIMES, 0, MOST_TIMES)
        except NotFound:
            return None
        return times_of(text, stream)

    def read_bytes(
        self, task: Task, framework_id: str, stream: str, offset: int, length: int
    ) -> tuple[int, bytes, bool, str]:
        """Read bytes of a stream, unchanged.

        Returns:
            The offset of the first byte, the bytes, whether they reach the end of what there is now, and what is to
            be said before them of what was cut.

        Raises:
            NotFound: The sandbox is gone.
            Refusal: The task has not begun: there is none yet.
            Unavailable: The agent does not answer, or not as Mesos does.
        """
        try:
            sandbox = f"/frameworks/{framework_id}/executors/{task.executor_id}/runs/latest"
            piece = self._read(task, f"{sandbox}/{stream}", offset, length)
            if piece is None:
                path = f"{self.directory(task, framework_id)}/{stream}"
                piece = self._read(task, path, offset, length)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Unavailable(
                f"what answers at {task.agent_url} is no Mesos agent: {error!r}", remedy="look at that host"
            ) from error
        if piece is None and task.state in (TaskState.LAUNCHED, TaskState.STARTING):
            what = f"task {task.id} has not begun on {task.hostname}, and has written nothing"
            raise Refusal(409, "not-started", what, remedy=f"stay with it: mesos-gpu logs -f {task.id}")
        if piece is None:
            raise NotFound(
                f"the sandbox of {task.id} is gone from {task.hostname}",
                remedy="agents delete old sandboxes; raise --gc_delay of mesos-agent to keep them longer",
            )
        return piece

    def _read(self, task: Task, path: str, offset: int, length: int) -> tuple[int, bytes, bool, str] | None:
        """Read a piece, from where what is left of a log that was cut begins, with what is to be said of that; None:
        no file."""
        piece = self._piece(task, path, offset, length)
        said = ""
        for _ in range(_CUTS):  # it may be cut again meanwhile
            cut = None if piece is None or not _may_be_cut(*piece) else self._cut(task, path)
            if piece is None or cut is None or cut[0] <= piece[0]:
                break
            after = self._piece(task, path, cut[0], length)
            if after is None or not (after[1] or self._size(task, path) == cut[0]):
                break  # what it says cannot be: its task has printed it
            piece, said = after, cut[1]
        return None if piece is None else (*piece, said)

    def _cut(self, task: Task, path: str) -> tuple[int, str] | None:
        head = self._piece(task, path, 0, HEAD_BYTES)
        return None if head is None else begin_of(head[1])

    def _piece(self, task: Task, path: str, offset: int, length: int) -> tuple[int, bytes, bool] | None:
        """Read a piece: its offset, the bytes, and whether they reach the end; None: there is no such file."""
        if offset < 0:
            size = self._size(task, path)
            if size is None:
                return None
            offset = max(size + offset, 0)
        wanted = min(max(length, LONGEST_CHARACTER), MOST_LOG_BYTES)
        raw = b""
        for _ in range(_MOST_PAGES):
            if len(raw) >= wanted:
                break
            page = self._get(task, path, offset + len(raw), wanted - len(raw))
            if page is None:
                return None
            # Mesos puts a file's bytes into the JSON string as they are, whatever their encoding.
            more = str(page["data"]).encode("latin-1")
            if not more:
                return offset, raw, True
            raw += more
        return offset, raw, False

    def _size(self, task: Task, path: str) -> int | None:
        page = self._get(task, path, -1, 0)  # -1 asks for it
        return None if page is None else int(page["offset"])

    def _get(self, task: Task, path: str, offset: int, length: int) -> dict[str, Any] | None:
        query: dict[str, str | int] = {"path": path, "offset": offset, "length": length}
        response = self.fetch(task, "/files/read", query)
        if response.status_code == 404:
            return None
        return dict(self.value_of(task, response))

    def directory(self, task: Task, framework_id: str) -> str:
        """The real path of the sandbox, for an agent that has forgotten the virtual one."""
        state = self.value_of(task, self.fetch(task, "/state", {}))
        for framework in [*state.get("frameworks", []), *state.get("completed_frameworks", [])]:
            for executor in [*framework.get("executors", []), *framework.get("completed_executors", [])]:
                if framework["id"] == framework_id and executor["id"] == task.executor_id:
                    return str(executor["directory"])
        return "/gone"

    def value_of(self, task: Task, response: requests.Response) -> Any:
        """The JSON of an answer; its strings have a character for each byte.

        Raises:
            Unavailable: It is none, but a refusal.
        """
        if response.status_code in (401, 403):
            raise Unavailable(
                f"the agent {task.hostname} does not let the scheduler read: {response.status_code}",
                remedy="name the file of its credentials with the scheduler's --mesos-credentials, and allow its "
                "principal access_sandboxes and get_endpoints in the agent's ACLs",
            )
        if not response.ok:
            raise Unavailable(
                f"the agent {task.hostname} answers {response.status_code} for {response.url}",
                remedy="see the agent's log",
            )
        return json.loads(response.content.decode("latin-1"))

    def fetch(
        self, task: Task, path: str, query: Mapping[str, str | int | bytes], *, stream: bool = False
    ) -> requests.Response:
        """What a task's agent answers. `stream`: its body comes as it is read, and must be closed.

        Raises:
            Unavailable: It does not answer.
        """
        headers = {"Accept-Encoding": "identity"} if stream else None
        url = self._base(task) + path
        try:
            return self._session.get(url, params=query, timeout=TIMEOUT_S, stream=stream, headers=headers)
        except requests.exceptions.SSLError as error:
            if _is_of_another_name(error) and task.agent_url not in self._named:
                self._named.add(task.agent_url)
                return self.fetch(task, path, query, stream=stream)
            raise Unavailable(
                f"the agent {task.hostname} at {self._base(task)} is not believed: {_reason(error)}",
                remedy="see the scheduler's --mesos-tls and --mesos-cacert, and the names in the agent's certificate",
            ) from error
        except requests.RequestException as error:
            raise Unavailable(
                f"the agent {task.hostname} at {self._base(task)} does not answer ({type(error).__name__})",
                remedy="try again when it is back; the output is in the task's sandbox there",
            ) from error

    def _base(self, task: Task) -> str:
        """Where the agent is. Masters of 1.11 say `http` whatever agents speak (Master::_offer in master.cpp)."""
        if self._tls is None:
            return task.agent_url
        url = urlsplit(task.agent_url)
        host = task.hostname if task.agent_url in self._named else url.hostname or task.hostname
        return f"https://{f'[{host}]' if ':' in host else host}:{url.port or DEFAULT_PORT}"


def _is_of_another_name(error: BaseException) -> bool:
    return any(
        isinstance(each, ssl.SSLCertVerificationError) and each.verify_code in OTHER_NAME
        for each in causes(error)
    )


def _reason(error: BaseException) -> str:
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return each.verify_message
        if isinstance(each, ENDED):
            return "it ended the handshake, as who speaks no TLS does"
        if isinstance(each, ssl.SSLError):
            return each.reason or str(each)
    return type(error).__name__


def _may_be_cut(offset: int, raw: bytes, _at_end: bool) -> bool:
    """Whether a piece may be of the block that tells of a cut, or of the hole behind it, which may have been made after
    the first bytes were read."""
    return b"\0" in raw or (raw[:1] == b"[" if offset == 0 else offset < HEAD_BYTES and bool(raw))


def whole(raw: bytes, offset: int, *, last: bool, tail: bool = False) -> Chunk:
    """Bytes as text; what is no UTF-8 becomes U+FFFD.

    A character that is cut off at the end is left for the next read, unless there is none (`last`). Of one
    that is cut off at the beginning, because a person asked for the last N bytes (`tail`), nothing is shown.
    """
    skipped = 0
    if tail and offset > 0:
        while skipped < min(len(raw), LONGEST_CHARACTER - 1) and raw[skipped] & 0xC0 == 0x80:
            skipped += 1
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(raw[skipped:], final=last)
    left = decoder.getstate()[0]
    return Chunk(text, offset + skipped, offset + len(raw) - len(left))
