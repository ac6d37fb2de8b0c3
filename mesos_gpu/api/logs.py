"""A task's output, read through its agent's files API (Mesos' docs/endpoints/files/read.md)."""

import codecs
import json
from dataclasses import dataclass
from typing import Any, Final

import requests

from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.task import Task

MOST: Final = 1 << 20
TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file. Offsets are in bytes."""

    data: str
    offset: int
    next_offset: int


class LogReader:
    """Reads from any agent; blocking, so it runs on a worker thread."""

    def __init__(self) -> None:
        """One session: connections to agents are kept."""
        self._session = requests.Session()
        self._session.trust_env = False  # an agent is not behind the operator's web proxy

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def read(
        self, task: Task, framework_id: str, stream: str, offset: int, length: int, *, last: bool
    ) -> Chunk:
        """From byte `offset`, or the last `-offset` bytes; `last`: nothing more will be written.

        Raises:
            NotFound: The sandbox is gone.
            Unavailable: The agent does not answer.
        """
        path = f"/frameworks/{framework_id}/executors/{task.executor_id}/runs/latest/{stream}"
        if self._get(task, path, 0, 0) is None:
            path = f"{self._directory(task, framework_id)}/{stream}"
        if offset < 0:
            size = self._file(task, path, -1, 0)["offset"]  # -1 asks for the size
            offset = max(int(size) + offset, 0)
        raw = str(self._file(task, path, offset, min(length, MOST))["data"]).encode("latin-1")
        return whole(raw, offset, last=last)

    def _file(self, task: Task, path: str, offset: int, length: int) -> dict[str, Any]:
        found = self._get(task, path, offset, length)
        if found is None:
            raise NotFound(
                f"the sandbox of {task.id} is gone from {task.hostname}",
                remedy="agents delete old sandboxes; raise --gc_delay of mesos-agent to keep them longer",
            )
        return found

    def _get(self, task: Task, path: str, offset: int, length: int) -> dict[str, Any] | None:
        query: dict[str, str | int] = {"path": path, "offset": offset, "length": length}
        response = self._fetch(task, "/files/read", query)
        if response.status_code == 404:
            return None
        if not response.ok:
            raise Unavailable(
                f"the agent {task.hostname} answers {response.status_code} for {path}",
                remedy="see the agent's log",
            )
        # Mesos puts a file's bytes into the JSON string as they are, whatever their encoding.
        return dict(json.loads(response.content.decode("latin-1")))

    def _directory(self, task: Task, framework_id: str) -> str:
        """The real path of the sandbox, for an agent that has forgotten the virtual one."""
        state = self._fetch(task, "/state", {}).json()
        for framework in [*state.get("frameworks", []), *state.get("completed_frameworks", [])]:
            for executor in [*framework.get("executors", []), *framework.get("completed_executors", [])]:
                if framework["id"] == framework_id and executor["id"] == task.executor_id:
                    return str(executor["directory"])
        return "/gone"

    def _fetch(self, task: Task, path: str, query: dict[str, str | int]) -> requests.Response:
        try:
            return self._session.get(task.agent_url + path, params=query, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise Unavailable(
                f"the agent {task.hostname} at {task.agent_url} does not answer: {error}",
                remedy="try again when it is back; the output is in the task's sandbox there",
            ) from error


def whole(raw: bytes, offset: int, *, last: bool) -> Chunk:
    """Bytes as text. A character that is cut off at the end is left for the next read; what is no UTF-8
    becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(raw, final=last)
    left = decoder.getstate()[0]
    return Chunk(text, offset, offset + len(raw) - len(left))
