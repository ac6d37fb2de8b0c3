"""The REST interface as Python calls: typed answers, bounded waiting, errors with remedies."""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from urllib.parse import quote

import requests

from mesos_gpu.cli.reach.answers import PATIENCE_S as PATIENCE_S
from mesos_gpu.cli.reach.answers import Kind, decoded, read
from mesos_gpu.cli.reach.answers import ended as ended
from mesos_gpu.cli.reach.failures import BadAnswer as BadAnswer
from mesos_gpu.cli.reach.failures import Unreachable as Unreachable
from mesos_gpu.cli.reach.pages import every_gpu, every_node
from mesos_gpu.cli.reach.patience import unhurried
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.cli.reach.refusals import Refused as Refused
from mesos_gpu.cli.reach.refusals import not_ours
from mesos_gpu.cli.reach.why import reason_of, unanswered

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, Job, Jobs, Logs, Node, Status, Task, Tasks, Why

LONG_POLL_S: Final = 30.0  # the interface allows at most 60
_CONNECT_S: Final = 5.0
_RETRY_S: Final = 0.5
_LATEST: Final = {"Cache-Control": "no-cache"}  # makes a standby forward the request to the leader
_PIECE: Final = 1 << 17  # bytes per block of a streamed answer
NO_FILTERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_T = TypeVar("_T")
_JOB: "Final[Kind[Job]]" = Kind("Job")
_JOBS: "Final[Kind[Jobs]]" = Kind("Jobs")
_LOGS: "Final[Kind[Logs]]" = Kind("Logs")
_STATUS: "Final[Kind[Status]]" = Kind("Status")
_TASKS: "Final[Kind[Tasks]]" = Kind("Tasks")
_WHY: "Final[Kind[Why]]" = Kind("Why")


class Client:
    """A scheduler's /v1 interface: calls that several commands use. Other routes use `get` and `call`.

    Each call raises `Unreachable`, `BadAnswer` or `Refused`. With `patience_s` above 0, a call that only reads or may
    be repeated is retried for that long while the scheduler does not answer: it can be restarted while jobs run.

    Args:
        reach: Scheduler's address and credentials, or only its URL without a trailing slash.
        read_timeout_s: Timeout of an answer.
        notice: Function that is called with a text when the scheduler becomes unreachable or reachable.
        password: User name and password to send instead of a token.

    Raises:
        BadConfiguration: A certificate file cannot be used.
    """

    def __init__(
        self,
        reach: str | Reach,
        *,
        read_timeout_s: float = 30.0,
        notice: Callable[[str], None] | None = None,
        password: tuple[str, str] | None = None,
    ) -> None:
        self.reach = Reach(reach) if isinstance(reach, str) else reach
        self.url, self.patience_s = self.reach.url, 0.0
        self._read_timeout_s, self._notice, self._away = read_timeout_s, notice or (lambda _text: None), False
        self._password, self._tried = password, 0  # number of schedulers in a row that did not answer
        self._session = requests.Session()
        self._session.trust_env = not self.reach.is_here  # no proxies on this host
        # Otherwise requests would send passwords of ~/.netrc, also unencrypted.
        self._session.auth = self._proved
        self._base = self.url
        if self.reach.socket:
            from mesos_gpu.cli.reach.unix_http import BASE, UnixAdapter

            self._base = BASE
            self._session.mount(BASE, UnixAdapter(self.reach.socket))
        if self.reach.is_tls:
            from mesos_gpu.adapters.tls.session import verify_by
            from mesos_gpu.adapters.tls.trust import Trust, client_context

            context = client_context(Trust(self.reach.cacert, self.reach.cert, self.reach.key))
            verify_by(self._session, context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def jobs(self, *, states: Sequence[str] = (), limit: int | None = None) -> "list[Job]":
        """Return jobs, newest first; the state `active` stands for all jobs that have not ended."""
        return self.listed(states=states, limit=limit, order=None)["jobs"]

    def listed(
        self,
        *,
        states: Sequence[str],
        limit: int | None,
        order: str | None,
        filters: Mapping[str, Sequence[str]] = NO_FILTERS,
    ) -> "Jobs":
        """Return the first jobs in an order (None for newest first) and the total count; `filters` are query
        parameters."""
        query = {**filters, "state": list(states), "limit": limit, "order": order}
        return self.get("/v1/jobs", _JOBS, query)

    def job(
        self,
        job_id: str,
        *,
        after_version: int | None = None,
        timeout_s: float = 0.0,
        show_env: bool = False,
    ) -> "Job":
        """Return a job; with `after_version`, wait until it has changed or `timeout_s` has passed."""
        query: dict[str, Any] = {"show_env": "true"} if show_env else {}
        if after_version is not None:
            query |= {"after_version": after_version, "timeout_s": round(timeout_s, 3)}
        return self.get(path_of("jobs", job_id), _JOB, query, wait_s=timeout_s)

    def follow(self, job: "Job", *, deadline: float | None = None) -> "Iterator[Job]":
        """Yield the job after each change until it has ended or `deadline` (`time.monotonic()`) has passed."""
        while not ended(job):
            left_s = LONG_POLL_S if deadline is None else min(LONG_POLL_S, deadline - time.monotonic())
            if left_s <= 0:
                return
            newer = self.job(job["id"], after_version=job["version"], timeout_s=left_s)
            if newer["version"] != job["version"]:
                yield newer
            job = newer

    def tasks(self, job_id: str) -> "list[Task]":
        """Return all launches of a job, oldest first."""
        return self.get(path_of("jobs", job_id, "tasks"), _TASKS)["tasks"]

    def logs(
        self, job_id: str, *, stream: str, offset: int, length: int, task_id: str | None = None
    ) -> "Logs":
        """Return up to `length` bytes (at most 1 MiB) of a launch's `stdout` or `stderr`; offset -N for the last N."""
        query = {"stream": stream, "offset": offset, "length": length, "task_id": task_id}
        return self.get(path_of("jobs", job_id, "logs"), _LOGS, query)

    def why(self, job_id: str) -> "Why":
        """Return the explanation why a job waits."""
        return self.get(path_of("why", job_id), _WHY)

    def gpus(self, nodes: Sequence[str] = ()) -> "list[Gpu]":
        """Return all GPUs, or those of nodes given by name, by first part of the name, or by a pattern with `*`."""
        return every_gpu(self.get, nodes)

    def nodes(self) -> "list[Node]":
        """Return all agents."""
        return every_node(self.get)

    def status(self) -> "Status":
        """Return the scheduler's status."""
        return self.get("/v1/status", _STATUS)

    def get(
        self,
        path: str,
        kind: type[_T] | Kind[_T],
        query: Mapping[str, Any] | None = None,
        *,
        wait_s: float = 0.0,
    ) -> _T:
        """Read any route; `wait_s` is how long the scheduler may delay the answer, in addition to the normal
        timeout."""
        return self._patiently("GET", path, kind, query, wait_s)

    def submit(self, request: Mapping[str, object]) -> "Job":
        """Submit a job. The request is never repeated, because a second job would run."""
        return self._once("POST", "/v1/jobs", _JOB, body=request)

    def kill(self, job_id: str) -> "Job":
        """Ask for the end of a job; return before the job has ended."""
        return self._patiently("DELETE", path_of("jobs", job_id), _JOB)

    def call(
        self,
        verb: str,
        path: str,
        kind: type[_T] | Kind[_T],
        query: Mapping[str, Any] | None = None,
        *,
        body: object = None,
        wait_s: float = 0.0,
        may_repeat: bool = False,
    ) -> _T:
        """Send a request to any route, and return its answer.

        Args:
            verb: Method of HTTP.
            path: Path of the route.
            kind: Type of the answer. None if `kind` is NoneType and the answer is empty; `bytes` for the raw answer.
            query: Query of the request.
            body: JSON document, or bytes that are sent as they are.
            wait_s: Seconds that the scheduler may delay its answer, in addition to the normal timeout.
            may_repeat: Whether the request may be repeated while the scheduler does not answer. GET always may.
        """
        ask = self._patiently if may_repeat or verb == "GET" else self._once
        return ask(verb, path, kind, query=query, wait_s=wait_s, body=body)

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the bytes of a GET answer of any size as they arrive.

        Raises:
            Unreachable: The scheduler does not answer, or the answer ends early.
        """
        try:
            with self._asked("GET", path, query, self._read_timeout_s, {"stream": True}) as response:
                if not response.ok:
                    from mesos_gpu.cli.reach.said import error_of

                    raise error_of(response, self.url)
                yield from response.iter_content(_PIECE)
        except requests.RequestException as err:
            what = f"the scheduler at {self.url} ended its answer early ({reason_of(err)})"
            raise Unreachable(what, remedy="try again") from err

    def _patiently(
        self,
        verb: str,
        path: str,
        kind: type[_T] | Kind[_T],
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> _T:
        """Send a request until it is answered, trying other schedulers and waiting up to `patience_s`."""
        give_up_at: float | None = None
        while True:
            try:
                answer = self._once(verb, path, kind, query=query, wait_s=wait_s, body=body)
            except Unreachable as err:
                if self._turn():
                    continue
                give_up_at = give_up_at or time.monotonic() + self.patience_s
                if time.monotonic() >= give_up_at:
                    raise self._given_up(err) from err
                self._say_away(err)
                time.sleep(_RETRY_S)
            else:
                self._tried = 0
                if self._away:
                    self._away = False
                    self._notice("the scheduler is back")
                return answer

    def _turn(self) -> bool:
        """Switch to the next of several schedulers; return False if all were tried."""
        self._tried = (self._tried + 1) % (len(self.reach.others) + 1)
        if self._tried:
            self.reach = self.reach.turned()
            self.url = self._base = self.reach.url
        return bool(self._tried)

    def _given_up(self, err: Unreachable) -> Unreachable:
        if not self.patience_s:
            return err
        return Unreachable(
            f"{err.what}, for {self.patience_s:g} s",
            remedy="jobs keep running; restart the scheduler, then continue with `mesos-gpu logs -f` or `wait`",
        )

    def _say_away(self, err: Unreachable) -> None:
        if not self._away:
            self._away = True
            self._notice(f"{err.what}; trying again for {self.patience_s:g} s, jobs keep running meanwhile")

    def _once(
        self,
        verb: str,
        path: str,
        kind: type[_T] | Kind[_T],
        *,
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> _T:
        """Send a request once, and return its answer as `kind`."""
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            sent = {"data": body, "headers": {"Content-Type": "application/octet-stream"}}
        response = self._asked(verb, path, query, self._read_timeout_s + wait_s, sent)
        if not response.ok:
            from mesos_gpu.cli.reach.said import error_of

            raise error_of(response, self.url)
        if isinstance(kind, Kind):
            return read(response.content, kind, lambda error: not_ours(self.url, str(error)))
        empty = b"null" if kind is type(None) else b""
        if kind is bytes:
            return cast(_T, response.content)
        try:
            return decoded(response.content or empty, kind)
        except ValueError as err:
            raise not_ours(self.url, str(err)) from err

    def _asked(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        timeout_s: float,
        sent: Mapping[str, Any],
    ) -> requests.Response:
        """Return the answer, whatever its status; a standby's 404 is repeated as a request to its leader."""
        options = {"params": query, "timeout": (_CONNECT_S, timeout_s), "allow_redirects": False, **sent}
        try:
            response = unhurried(
                lambda: self._session.request(verb, self._base + path, **options), PATIENCE_S
            )
            if verb == "GET" and response.status_code == 404 and "Age" in response.headers:
                response.close()
                options["headers"] = _LATEST
                response = unhurried(
                    lambda: self._session.request(verb, self._base + path, **options), PATIENCE_S
                )
            return response
        except requests.RequestException as err:
            remedy = ""
            if verb == "POST" and path == "/v1/jobs":
                remedy = "check with `mesos-gpu ps --all` whether the job was submitted"
            elif verb != "GET" and path.startswith("/v2/"):
                remedy = "check with `mesos-gpu app list` whether the change was made"
            raise unanswered(self.reach, err, remedy) from err

    def _proved(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the caller's current credentials to a request."""
        token = self.reach.renew() if self.reach.renew else self.reach.token
        if self._password:
            both = b64encode(":".join(self._password).encode()).decode()
            request.headers["Authorization"] = f"Basic {both}"
        elif token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request


def path_of(*parts: str) -> str:
    """Return the path of a route below /v1; `parts` are quoted."""
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])
