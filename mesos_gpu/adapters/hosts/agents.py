"""HTTP client of Mesos agents, as the scheduler uses it to read files and containers of tasks."""

import ssl
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from mesos_gpu.adapters.hosts.exchange import Bounds, Exchange, Host, NotTrusted, Query
from mesos_gpu.adapters.hosts.reply import NotAnswered, Silent
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.tasks.task import Task

DEFAULT_PORT: Final = 5051
GONE, REFUSED = 404, 400  # the path does not exist; the agent refuses to resolve the path
T = TypeVar("T")


class Agents:
    """Credential and TLS settings for requests to any agent. May be used by several threads at once.

    Args:
        authorization: Value of the Authorization header; "" for agents without authentication.
        tls: Context that verifies agents by their addresses or host names; None if agents speak plain HTTP.
    """

    def __init__(self, authorization: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._headers = {"Authorization": authorization} if authorization else {}
        self._tls = tls
        self._named: set[str] = set()  # URLs of agents whose certificates have names, not addresses

    def of(self, task: Task, bounds: Bounds) -> "Agent":
        """Return the client of a task's agent, for one operation within bounds."""
        return Agent(self, task, bounds)

    def host_of(self, task: Task) -> Host:
        """Return the address of a task's agent, from the URL in the master's offer.

        The scheme of that URL is ignored: a Mesos master 1.11 writes `http` even if the agent uses TLS (Master::_offer
        in master.cpp).

        Raises:
            ValueError: The URL has no valid port.
        """
        url = urlsplit(task.agent_url)
        address = url.hostname or task.hostname
        names = [task.hostname, address] if task.agent_url in self._named else [address, task.hostname]
        return Host(address, url.port or DEFAULT_PORT, tuple(dict.fromkeys(names)), self._tls, self._headers)

    def note_name(self, task: Task, name: str) -> None:
        """Remember that the certificate of a task's agent has the host name, so that later requests try it first."""
        if self._tls is not None and name == task.hostname:
            self._named.add(task.agent_url)


class Agent:
    """Client of one task's agent, for one operation. For one thread; `cancel` may be called from any thread.

    All errors are `Unavailable` and name the agent.
    """

    def __init__(self, agents: Agents, task: Task, bounds: Bounds) -> None:
        """Prepare the client; the first request connects.

        Raises:
            Unavailable: The URL of the agent is not valid.
        """
        self._agents, self.task = agents, task
        try:
            host = agents.host_of(task)
        except ValueError as error:
            raise self._unavailable(f"has the URL {task.agent_url!r}, which is not valid: {error}") from error
        self._exchange = Exchange(host, bounds)
        scheme = "http" if host.tls is None else "https"
        self._url = f"{scheme}://{f'[{host.address}]' if ':' in host.address else host.address}:{host.port}"

    def cancel(self) -> None:
        """Abort the request under way, and refuse every later request."""
        self._exchange.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._exchange.close()

    def get(self, path: str, query: Query, kind: type[T], *, max_bytes: int) -> tuple[int, T | None]:
        """Send a GET request; return the status and the decoded JSON, or None as JSON if the status is 400 or 404.

        Strings in the JSON have one character for each byte, because Mesos copies the bytes of files into JSON as they
        are.

        Args:
            path: Path of the URL.
            query: Query parameters of the URL.
            kind: Type to decode the JSON to; unknown fields are skipped.
            max_bytes: Largest response body that is accepted, in bytes.

        Raises:
            Unavailable: The agent does not answer, refuses, or sends a response that a Mesos agent does not send.
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
        """Return the error for a server that is not a Mesos agent, because its response cannot be decoded."""
        return Unavailable(
            f"the server at {self._url} for {self.task.hostname} is not a Mesos agent: {error}",
            remedy="check on that host which process listens at the port",
        )

    def _is_there(self, status: int, path: str) -> bool:
        if status in (401, 403):
            raise Unavailable(
                f"the agent {self.task.hostname} does not let the scheduler read: {status}",
                remedy="give the scheduler's credentials with --mesos-credentials, and allow its "
                "principal access_sandboxes and get_endpoints in the agent's ACLs",
            )
        if status not in (200, GONE, REFUSED):
            raise self._unavailable(f"answers {status} for {path}", "see the agent's log")
        return status == 200

    def _failed(self, error: NotAnswered) -> Unavailable:
        if isinstance(error, NotTrusted):
            remedy = (
                "see the scheduler's --mesos-tls and --mesos-cacert, and the names in the agent's certificate"
            )
        elif isinstance(error, Silent):
            remedy = "try again when it is back; the output is in the task's sandbox there"
        else:
            remedy = "check on that host which process listens at the port: a Mesos agent does not answer like this"
        return self._unavailable(str(error), remedy, at=f" at {self._url}")

    def _unavailable(self, why: str, remedy: str = "check that host", *, at: str = "") -> Unavailable:
        return Unavailable(f"the agent {self.task.hostname}{at} {why}", remedy=remedy)
