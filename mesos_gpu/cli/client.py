"""The REST interface as Python calls: typed answers, bounded waiting, errors that say what to do."""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote

import msgspec
import requests

from mesos_gpu.adapters.files.places import Lines, placed
from mesos_gpu.adapters.tls.session import causes, verify_by
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.api.spec.cluster.line import Queue
from mesos_gpu.api.spec.events import Events
from mesos_gpu.api.spec.gpus.use import UseOverTime
from mesos_gpu.api.spec.queue_shares import PathShare, QueueShare, QueueShareList, QueueWhy
from mesos_gpu.api.spec.shapes import (
    Gpu,
    Gpus,
    GpuWithHistory,
    Job,
    Jobs,
    Logs,
    Node,
    Nodes,
    Plan,
    Problem,
    Status,
    Task,
    Tasks,
    UnknownTask,
    UnknownTasks,
    Why,
)
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach.answers import decoded
from mesos_gpu.cli.reach.failures import BadAnswer as BadAnswer
from mesos_gpu.cli.reach.failures import Unreachable as Unreachable
from mesos_gpu.cli.reach.pages import every_gpu, every_node
from mesos_gpu.cli.reach.patience import unhurried
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.cli.reach.refusals import said
from mesos_gpu.cli.reach.trouble import CLOSED_REMEDY, of_tls
from mesos_gpu.cli.reach.unix_http import BASE, UnixAdapter
from mesos_gpu.cli.reach.why import closed, reason_of, refused
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.job import JobState

PATIENCE_S: Final = 60.0  # how long a command that follows a job outlives the scheduler
ANSWER_S: Final = 10.0  # that the host of a job may take for an answer
LONG_POLL_S: Final = 30.0  # the interface allows 60
_CONNECT_S: Final = 5.0
_RETRY_S: Final = 0.5
_EXIT_CODES: Final = {
    400: 65, 401: 77, 403: 77, 404: 66, 409: 73, 413: 65, 415: 65, 422: 65, 429: 75, 503: 69, 507: 74,
}  # fmt: skip
_LOGIN: Final = "log in: mesos-gpu login; programs name a token with MESOS_GPU_TOKEN or MESOS_GPU_TOKEN_FILE"

_LATEST: Final = {"Cache-Control": "no-cache"}  # asks a standby for what its leader has
_PIECE: Final = 1 << 17  # bytes of an answer that is read as it comes
NO_FILTERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_T = TypeVar("_T")


class Refused(MesosGpuError):
    """The scheduler refused a request; `problems` holds all that is wrong with its data."""

    def __init__(
        self, status: int, code: str, what: str, remedy: str, problems: Sequence[Problem] = ()
    ) -> None:
        """`status` is the HTTP status, `code` the interface's word for the error."""
        super().__init__(what, remedy=remedy)
        self.exit_code, self.http_status = _EXIT_CODES.get(status, 1), status
        self.code, self.problems = code, tuple(problems)
        self.line_of: Lines = lambda _: None  # of the file that was sent, by paths of problems

    def __str__(self) -> str:
        reasons = [p["reason"] for p in self.problems]
        places = [placed(self.line_of, p["path"], p["reason"]) for p in self.problems]
        if reasons == [self.what]:
            lines = places  # nothing is said twice
        elif reasons and "; ".join(reasons) == self.what:
            lines = [f"refused for {len(places)} reasons", *(f"  {line}" for line in places)]
        else:
            lines = [self.what, *(f"  {line}" for line in places)]
        return "\n".join([*lines, *([f"To fix: {self.remedy}"] if self.remedy else [])])


class Written(NamedTuple):
    """Bytes of a stream, the offset behind them, and by offsets when they had been written, as far as is known."""

    data: bytes
    next_offset: int
    times: Sequence[tuple[int, float]] = ()


class Client:
    """A scheduler's /v1 as Python calls. Each call raises `Unreachable`, `BadAnswer` or `Refused`.

    With `patience_s` above 0, a call that reads, or may be repeated, is repeated for that long while nothing
    answers: a scheduler can be restarted under its jobs.
    """

    def __init__(
        self,
        reach: str | Reach,
        *,
        read_timeout_s: float = 30.0,
        notice: Callable[[str], None] | None = None,
        password: tuple[str, str] | None = None,
    ) -> None:
        """Make no connection yet.

        Args:
            reach: Where the scheduler is; of a URL alone: without a slash at the end.
            read_timeout_s: For an answer.
            notice: Is told when the scheduler goes and comes back.
            password: A name and its password, to be shown in place of a token.

        Raises:
            BadConfiguration: A file of certificates cannot be used.
        """
        self.reach = Reach(reach) if isinstance(reach, str) else reach
        self.url, self.patience_s = self.reach.url, 0.0
        self._read_timeout_s, self._notice, self._away = read_timeout_s, notice or (lambda _text: None), False
        self._password, self._tried = password, 0  # of several schedulers, how many in a row did not answer
        self._session = requests.Session()
        self._session.trust_env = not self.reach.is_here  # no proxy
        self._session.auth = self._proved  # else passwords of ~/.netrc are sent, also in the clear
        self._base = BASE if self.reach.socket else self.url
        if self.reach.socket:
            self._session.mount(BASE, UnixAdapter(self.reach.socket))
        if self.reach.is_tls:
            context = client_context(Trust(self.reach.cacert, self.reach.cert, self.reach.key))
            verify_by(self._session, context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def jobs(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """Jobs, newest first; `active` as a state means: not ended."""
        return self.listed(states=states, limit=limit, order=None)["jobs"]

    def listed(
        self,
        *,
        states: Sequence[str],
        limit: int | None,
        order: str | None,
        filters: Mapping[str, Sequence[str]] = NO_FILTERS,
    ) -> Jobs:
        """The first jobs in an order (None: newest first), and how many there are; `filters` as the query has them."""
        query = {**filters, "state": list(states), "limit": limit, "order": order}
        return self._get("/v1/jobs", Jobs, query)

    def job(
        self,
        job_id: str,
        *,
        after_version: int | None = None,
        timeout_s: float = 0.0,
        show_env: bool = False,
    ) -> Job:
        """Read a job; with `after_version`, as it is when it has changed or `timeout_s` has passed."""
        query: dict[str, Any] = {"show_env": "true"} if show_env else {}
        if after_version is not None:
            query |= {"after_version": after_version, "timeout_s": round(timeout_s, 3)}
        return self._get(_path("jobs", job_id), Job, query, wait_s=timeout_s)

    def job_use(self, job_id: str) -> UseOverTime:
        """How a job used its GPUs of late."""
        return self._get(_path("jobs", job_id, "use"), UseOverTime)

    def follow(self, job: Job, *, deadline: float | None = None) -> Iterator[Job]:
        """The job after each change until it has ended, or `deadline` (`time.monotonic()`) has passed."""
        while not ended(job):
            left_s = LONG_POLL_S if deadline is None else min(LONG_POLL_S, deadline - time.monotonic())
            if left_s <= 0:
                return
            newer = self.job(job["id"], after_version=job["version"], timeout_s=left_s)
            if newer["version"] != job["version"]:
                yield newer
            job = newer

    def tasks(self, job_id: str) -> list[Task]:
        """Every launch of a job, oldest first."""
        return self._get(_path("jobs", job_id, "tasks"), Tasks)["tasks"]

    def logs(self, job_id: str, *, stream: str, offset: int, length: int, task_id: str | None = None) -> Logs:
        """Up to `length` bytes (at most 1 MiB) of a launch's `stdout` or `stderr`; offset -N: the last N."""
        query = {"stream": stream, "offset": offset, "length": length, "task_id": task_id}
        return self._get(_path("jobs", job_id, "logs"), Logs, query)

    def written(
        self,
        job_id: str,
        *,
        stream: str,
        offset: int,
        length: int,
        task_id: str | None,
        times: bool = False,
        since: float | None = None,
    ) -> Written:
        """Read bytes of a job's stream, unchanged.

        Args:
            job_id: Of the job.
            stream: stdout or stderr.
            offset: Of the first byte; -N: the last N bytes.
            length: So many bytes at most, to 1 MiB.
            task_id: Of one launch; None: the latest.
            times: Whether it is also told when they were written.
            since: Only what was written after that, seconds since the epoch; None: all.
        """
        query: dict[str, Any] = {
            "stream": stream,
            "offset": offset,
            "length": length,
            "task_id": task_id,
            "encoding": "base64",
        }
        query |= {"times": "true"} if times else {}
        query |= {"since": f"{since:.3f}"} if since is not None else {}
        logs = self._get(_path("jobs", job_id, "logs"), Logs, query)
        moments = [(each["offset"], each["at"]) for each in logs["times"] or ()]
        return Written(b64decode(logs["data"]), logs["next_offset"], moments)

    def events(self, query: Mapping[str, Any], *, wait_s: float = 0.0) -> Events:
        """What has happened; with `after` in the query it waits so long for something to happen."""
        return self._get("/v1/events", Events, {**query, "timeout_s": wait_s}, wait_s=wait_s)

    def why(self, job_id: str) -> Why:
        """Why a job waits."""
        return self._get(_path("why", job_id), Why)

    def queue(self, *, limit: int | None = None) -> Queue:
        """The first pending jobs in their order, and the queues."""
        return self._get("/v1/queue", Queue, {"limit": limit})

    def queue_shares(self) -> list[QueueShare]:
        """What each queue is due of each pool."""
        return self._get("/v1/queue-shares", QueueShareList)["shares"]

    def queue_share(self, path: str) -> PathShare:
        """Why a queue is due what it is."""
        return self._get(_path("queue-shares", path), PathShare)

    def queue_why(self, path: str) -> QueueWhy:
        """Why jobs of a queue wait."""
        return self._get(_path("queue-why", path), QueueWhy)

    def defrag(self, wanted: str | Mapping[str, object]) -> Plan:
        """The fewest moves that make room: for a pending job by its id, or for a job request."""
        path = _path("plan", "defrag")
        if isinstance(wanted, str):
            return self._get(f"{path}/{quote(wanted, safe='')}", Plan)
        return self._patiently("POST", path, Plan, body=wanted)

    def gpus(self, nodes: Sequence[str] = ()) -> list[Gpu]:
        """Every GPU of every node, or of those nodes: by their names, the first part of one, with `*`."""
        return every_gpu(self._get, nodes)

    def gpu(self, gpu: str) -> GpuWithHistory:
        """Read a GPU with its history; `gpu`: a UUID, the start of one, or HOST:MINOR."""
        return self._get(_path("gpus", gpu), GpuWithHistory)

    def drain_gpu(self, gpu: str, reason: str, *, by: str, deadline_s: float | None) -> list[Gpu]:
        """Keep new work off a GPU; what runs there is ended after `deadline_s`."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        return self._patiently("POST", _path("gpus", gpu, "drain"), Gpus, body=body)["gpus"]

    def undrain_gpu(self, gpu: str, *, by: str) -> list[Gpu]:
        """Give a GPU back; none, if its node is away."""
        return self._patiently("DELETE", _path("gpus", gpu, "drain"), Gpus, {"by": by})["gpus"]

    def reset_gpu(self, gpu: str, reason: str, *, by: str) -> GpuWithHistory:
        """Ask its node to reset a GPU; it returns before that is done."""
        return self._once(
            "POST", _path("gpus", gpu, "reset"), GpuWithHistory, body={"reason": reason, "by": by}
        )

    def drain_node(self, node: str, reason: str, *, by: str, deadline_s: float | None) -> list[Node]:
        """Keep new work off a host; its agents."""
        body = {"reason": reason, "by": by, "deadline_s": deadline_s}
        return self._patiently("POST", _path("nodes", node, "drain"), Nodes, body=body)["nodes"]

    def undrain_node(self, node: str, *, by: str) -> list[Node]:
        """Give a host back; its agents."""
        return self._patiently("DELETE", _path("nodes", node, "drain"), Nodes, {"by": by})["nodes"]

    def nodes(self) -> list[Node]:
        """Every agent."""
        return every_node(self._get)

    def unknown_tasks(self) -> list[UnknownTask]:
        """Tasks that the scheduler's state does not know."""
        return self._get("/v1/tasks/unknown", UnknownTasks)["tasks"]

    def living_tasks(self) -> list[Task]:
        """Every task that has not ended, of whatever kind."""
        return self._get("/v1/tasks", Tasks)["tasks"]

    def adopt(self, task_id: str) -> list[UnknownTask]:
        """Give an unknown task to its job; those that are left."""
        return self._once("POST", _path("tasks", "unknown", task_id, "adopt"), UnknownTasks)["tasks"]

    def kill_unknown(self, task_id: str) -> list[UnknownTask]:
        """End an unknown task; those that are held."""
        return self._patiently("DELETE", _path("tasks", "unknown", task_id), UnknownTasks)["tasks"]

    def status(self) -> Status:
        """The scheduler."""
        return self._get("/v1/status", Status)

    def get(self, path: str, kind: type[_T]) -> _T:
        """What a route answers that one command alone asks."""
        return self._get(path, kind)

    def submit(self, request: Mapping[str, object]) -> Job:
        """A new job. Never repeated: a second copy would run."""
        return self._once("POST", "/v1/jobs", Job, body=request)

    def kill(self, job_id: str) -> Job:
        """Ask for the end of a job; it returns before the job has ended."""
        return self._patiently("DELETE", _path("jobs", job_id), Job)

    def call(
        self,
        verb: str,
        path: str,
        kind: type[_T],
        query: Mapping[str, Any] | None = None,
        *,
        body: object = None,
    ) -> _T:
        """Any route; an empty answer is None if that is the `kind`, `bytes` is what came. Only GET is ever repeated."""
        ask = self._patiently if verb == "GET" else self._once
        return ask(verb, path, kind, query=query, body=body)

    def send(self, path: str, kind: type[_T], data: bytes, query: Mapping[str, Any]) -> _T:
        """PUT bytes that are no JSON. Never repeated."""
        return self._once("PUT", path, kind, query=query, body=data)

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """GET bytes of any number, as they come.

        Raises:
            Unreachable: The scheduler does not answer, or goes on no more.
        """
        try:
            with self._asked("GET", path, query, self._read_timeout_s, {"stream": True}) as response:
                if not response.ok:
                    raise self.failure(response)
                yield from response.iter_content(_PIECE)
        except requests.RequestException as err:
            what = f"the scheduler at {self.url} ended the answer before it was whole ({reason_of(err)})"
            raise Unreachable(what, remedy="try again") from err

    def resize(
        self,
        job_id: str,
        patch: Mapping[str, int | None],
        *,
        restart: bool = False,
        answer_s: float = ANSWER_S,
    ) -> Job:
        """Ask for other shares of a running job; as it is when its host has answered, or after `answer_s`."""
        query = {"timeout_s": answer_s, **({"restart": "true"} if restart else {})}
        return self._once("PATCH", _path("jobs", job_id), Job, query=query, wait_s=answer_s, body=patch)

    def withdraw_resize(self, job_id: str, *, answer_s: float = ANSWER_S) -> Job:
        """Let a job keep the shares that it had; as it is when its host has answered, or after `answer_s`."""
        query = {"timeout_s": answer_s}
        return self._patiently("DELETE", _path("jobs", job_id, "resize"), Job, query, answer_s)

    def _get(
        self, path: str, kind: type[_T], query: Mapping[str, Any] | None = None, *, wait_s: float = 0.0
    ) -> _T:
        return self._patiently("GET", path, kind, query, wait_s)

    def _patiently(
        self,
        verb: str,
        path: str,
        kind: type[_T],
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> _T:
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
        """Go on with the next of several schedulers; False: each was tried."""
        self._tried = (self._tried + 1) % (len(self.reach.others) + 1)
        if self._tried:
            self.reach = self.reach.turned()
            self.url = self._base = self.reach.url
        return bool(self._tried)

    def _given_up(self, err: Unreachable) -> Unreachable:
        if not self.patience_s:
            return err
        return Unreachable(
            f"{err.what}, for {self.patience_s:g} s now",
            remedy="jobs run on without it; start it again, and come back with `mesos-gpu logs -f` or `wait`",
        )

    def _say_away(self, err: Unreachable) -> None:
        if not self._away:
            self._away = True
            self._notice(f"{err.what}; trying again for {self.patience_s:g} s, jobs run on meanwhile")

    def _once(
        self,
        verb: str,
        path: str,
        kind: type[_T],
        *,
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        body: object = None,
    ) -> _T:
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            sent = {"data": body, "headers": {"Content-Type": "application/octet-stream"}}
        response = self._asked(verb, path, query, self._read_timeout_s + wait_s, sent)
        if not response.ok:
            raise self.failure(response)
        empty = b"null" if kind is type(None) else b""
        if kind is bytes:
            return cast(_T, response.content)
        try:
            return decoded(response.content or empty, kind)
        except msgspec.DecodeError as err:
            raise self._not_ours(str(err)) from err

    def _asked(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None,
        timeout_s: float,
        sent: Mapping[str, Any],
    ) -> requests.Response:
        """Return the answer, whatever it says; of what a standby's copy lacks, the answer of its leader."""
        told = {"params": query, "timeout": (_CONNECT_S, timeout_s), "allow_redirects": False, **sent}
        try:
            response = unhurried(lambda: self._session.request(verb, self._base + path, **told), PATIENCE_S)
            if verb == "GET" and response.status_code == 404 and "Age" in response.headers:
                response.close()
                told["headers"] = _LATEST
                response = unhurried(
                    lambda: self._session.request(verb, self._base + path, **told), PATIENCE_S
                )
            return response
        except requests.RequestException as err:
            remedy = ""
            if verb == "POST" and path == "/v1/jobs":
                remedy = "see with `mesos-gpu ps --all` whether it has the job"
            elif verb != "GET" and path.startswith("/v2/"):
                remedy = "see with `mesos-gpu app list` whether it was done"
            raise self.unanswered(err, remedy) from err

    def unanswered(self, err: Exception, remedy: str = "") -> MesosGpuError:
        """What it means that a request had no answer. `remedy`: what to do where it may have arrived."""
        distrust = of_tls(self.reach, causes(err)) if self.reach.is_tls else None
        if distrust is not None:
            return distrust
        what = f"the scheduler at {self.url} does not answer ({reason_of(err)})"
        lost = not isinstance(err, requests.ConnectTimeout) and not refused(err)
        if lost and remedy:
            return Unreachable(what, remedy=remedy)
        was_closed = self.reach.is_tls and closed(err)
        return Unreachable(what, remedy=CLOSED_REMEDY if was_closed else REMEDY)

    def failure(self, response: requests.Response) -> MesosGpuError:
        """What an answer means that is no success."""
        try:
            error = said(response)
        except msgspec.DecodeError:
            if response.content.startswith(b"This port speaks HTTPS"):
                return self._not_ours(f"it speaks https; name it as {self.url.replace('http', 'https', 1)}")
            if response.status_code in (502, 503, 504):  # a proxy whose scheduler is away
                return Unreachable(
                    f"the scheduler at {self.url} does not answer ({response.status_code})", remedy=REMEDY
                )
            return self._not_ours(f"it says {response.status_code} {response.reason}")
        if error.code == "unavailable" and "/logs" not in (response.url or ""):
            return Unreachable(error.message, remedy=error.remedy or REMEDY)
        shows = "Authorization" in response.request.headers  # then what is wrong is that, or what it says
        remedy = _LOGIN if response.status_code == 401 and not shows else error.remedy or ""
        return Refused(response.status_code, error.code, error.message, remedy, error.problems or [])

    def _proved(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add what proves who asks, as it is now."""
        token = self.reach.renew() if self.reach.renew else self.reach.token
        if self._password:
            both = b64encode(":".join(self._password).encode()).decode()
            request.headers["Authorization"] = f"Basic {both}"
        elif token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def _not_ours(self, why: str) -> BadAnswer:
        return BadAnswer(
            f"what answers at {self.url} is not a mesos-gpu scheduler of this version: {why}",
            remedy="check the address: " + REMEDY,
        )


def _path(*parts: str) -> str:
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def ended(job: Job) -> bool:
    """Whether nothing will change any more."""
    return JobState(job["state"]).ended
