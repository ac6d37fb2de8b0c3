"""Agents of Mesos, as the scheduler asks them over HTTP."""

import ssl
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from mesos_gpu.adapters.hosts.exchange import Bounds, Exchange, Host, NotBelieved, Query
from mesos_gpu.adapters.hosts.reply import NotAnswered, Silent
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.tasks.task import Task

DEFAULT_PORT: Final = 5051
GONE, REFUSED = 404, 400  # the path does not exist; the agent will not resolve it
T = TypeVar("T")


class Agents:
    """What is needed to ask any agent: a credential and whom to believe. For all threads."""

    def __init__(self, authorization: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Set up; nothing is asked yet.

        Args:
            authorization: Value of the header for agents that want one.
            tls: Verifies agents by their addresses or their names; None if they speak plain HTTP.
        """
        self._headers = {"Authorization": authorization} if authorization else {}
        self._tls = tls
        self._named: set[str] = set()  # URLs of agents whose certificates have names, not addresses

    def of(self, task: Task, bounds: Bounds) -> "Agent":
        """Return the agent of a task, for one operation within bounds."""
        return Agent(self, task, bounds)

    def host_of(self, task: Task) -> Host:
        """Return where the agent of a task is. Masters of 1.11 say `http` whatever agents speak (Master::_offer in
        master.cpp).

        Raises:
            ValueError: The URL that the master told has no valid port.
        """
        url = urlsplit(task.agent_url)
        address = url.hostname or task.hostname
        names = [task.hostname, address] if task.agent_url in self._named else [address, task.hostname]
        return Host(address, url.port or DEFAULT_PORT, tuple(dict.fromkeys(names)), self._tls, self._headers)

    def note_name(self, task: Task, name: str) -> None:
        """Remember by which name the agent of a task was verified."""
        if self._tls is not None and name == task.hostname:
            self._named.add(task.agent_url)


class Agent:
    """The agent of one task, for one operation. For one thread; `cancel` may be called from any.

    Every error names the agent, and is an `Unavailable`.
    """

    def __init__(self, agents: Agents, task: Task, bounds: Bounds) -> None:
        """Connect at the first request.

        Raises:
            Unavailable: The agent's URL is none.
        """
        self._agents, self.task = agents, task
        try:
            host = agents.host_of(task)
        except ValueError as error:
            raise self._unavailable(f"has the URL {task.agent_url!r}, which is none: {error}") from error
        self._exchange = Exchange(host, bounds)
        scheme = "http" if host.tls is None else "https"
        self._url = f"{scheme}://{f'[{host.address}]' if ':' in host.address else host.address}:{host.port}"

    def cancel(self) -> None:
        """End what is under way, and refuse every later request."""
        self._exchange.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._exchange.close()

    def get(self, path: str, query: Query, kind: type[T], *, max_bytes: int) -> tuple[int, T | None]:
        """Return the status of an answer and its JSON; None instead of JSON if the status is 400 or 404.

        Strings have one character for each byte: Mesos puts bytes of files into JSON as they are.

        Args:
            path: Path of the URL.
            query: Its query.
            kind: Type of the JSON; fields that it does not have are skipped.
            max_bytes: Size of the longest answer that is accepted.

        Raises:
            Unavailable: The agent does not answer, refuses, or does not answer as Mesos does.
        """
        try:
            status, body = self._exchange.get(path, query, max_bytes=max_bytes)
        except NotAnswered as error:
            raise self._failed(error) from error
        self._agents.note_name(self.task, self._exchange.name)
        if not self._is_there(status, path):
            return status, None
        try:
            return status, msgspec.json.decode(body.decode("latin-1"), type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.no_agent(error) from error

    def no_agent(self, error: Exception) -> Unavailable:
        """Return the error that what answers does not answer as Mesos does."""
        return Unavailable(
            f"what answers at {self._url} for {self.task.hostname} is no Mesos agent: {error}",
            remedy="look on that host at what listens there",
        )

    def _is_there(self, status: int, path: str) -> bool:
        if status in (401, 403):
            raise Unavailable(
                f"the agent {self.task.hostname} does not let the scheduler read: {status}",
                remedy="name the file of its credentials with the scheduler's --mesos-credentials, and allow its "
                "principal access_sandboxes and get_endpoints in the agent's ACLs",
            )
        if status not in (200, GONE, REFUSED):
            raise self._unavailable(f"answers {status} for {path}", "see the agent's log")
        return status == 200

    def _failed(self, error: NotAnswered) -> Unavailable:
        if isinstance(error, NotBelieved):
            remedy = (
                "see the scheduler's --mesos-tls and --mesos-cacert, and the names in the agent's certificate"
            )
        elif isinstance(error, Silent):
            remedy = "try again when it is back; the output is in the task's sandbox there"
        else:
            remedy = "look on that host at what listens there: an agent of Mesos does not answer so"
        return self._unavailable(str(error), remedy, at=f" at {self._url}")

    def _unavailable(self, why: str, remedy: str = "look at that host", *, at: str = "") -> Unavailable:
        return Unavailable(f"the agent {self.task.hostname}{at} {why}", remedy=remedy)
