"""Reader of task output from agents, as the REST interface creates it."""

import ssl
from collections.abc import Callable
from typing import TypeVar

from mesos_gpu.adapters.hosts.agents import Agents
from mesos_gpu.api.v1.logs import LOG_BOUNDS, Chunk, LogReader
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.mesos.cuts import Times

T = TypeVar("T")


class Reader:
    """Reader of the output of any task, with a new connection for each read."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._agents = Agents(tls=tls)

    def read(self, task: Task, framework_id: str, stream: str, offset: int, length: int) -> Chunk:
        return self._of(task, framework_id, lambda reader: reader.read(stream, offset, length))

    def read_bytes(
        self, task: Task, framework_id: str, stream: str, offset: int, length: int
    ) -> tuple[int, bytes, bool, str]:
        return self._of(task, framework_id, lambda reader: reader.read_bytes(stream, offset, length))

    def times(self, task: Task, framework_id: str, stream: str) -> Times | None:
        return self._of(task, framework_id, lambda reader: reader.times(stream))

    def _of(self, task: Task, framework_id: str, read: Callable[[LogReader], T]) -> T:
        agent = self._agents.of(task, LOG_BOUNDS)
        try:
            return read(LogReader(agent, framework_id))
        finally:
            agent.close()
