"""A server of /v1 (docs/reference/rest.md) on real sockets, whose jobs a test controls."""

import contextlib
import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.wire import job_fields

_ENDED: Final = ("finished", "failed", "killed")
_DEFAULTS: Final[dict[str, Any]] = {
    **job_fields.write(JobSpec("job", priority=0)), "runs_as": "nobody",
    "started_at": None, "ended_at": None, "attempts": 0, "launches": 0, "infrastructure_failures": 0,
    "kill_requested": False, "learnt_min_driver": None, "healthy": None,
    "exit_code": None, "message": "", "task_id": None, "task_ids": [], "hostname": None, "hostnames": [], "gpu_ids": [],
    "share": None, "share_uses": [], "use": None, "resize": None,
    "notice": None, "coming_end": None, "idle": None, "checkpoint_at": None, "stopped": 0, "room_made_by": [],
    "array_id": None, "array_index": None, "array_counts": None,
}  # fmt: skip

_ARTIFACT: Final = {"extract": True, "executable": False, "cache": False, "dest_path": None}

Answer = tuple[int, object]


class FakeRest:
    """A scheduler's REST server as a context manager; any thread may call its methods."""

    def __init__(self) -> None:
        """Create a server without jobs; `start` makes it listen, later starts on the same port."""
        self.port = 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, list[dict[str, Any]]] = {}
        self.written: dict[tuple[str, str], bytes] = {}
        self.times: dict[tuple[str, str], list[dict[str, float]]] = {}  # of the output, as in `Logs`
        self.fixed: dict[
            str, Answer
        ] = {}  # answers by request, such as "GET /v1/gpus", in place of computed ones
        self.asked: list[tuple[str, Any]] = []  # each request, such as "POST /v1/jobs", with its body
        self.queries: dict[str, dict[str, list[str]]] = {}  # latest query by request, such as "GET /v1/jobs"
        self._changed = threading.Condition()
        self._open = threading.Event()  # set: submissions are answered
        self._open.set()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start to listen; after `stop`, on the previous port."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = False  # server_close() joins them
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Close the port and answer waiting requests; jobs stay, as in a restarted scheduler."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        with self._changed:
            self._server = None
            self._changed.notify_all()
        server.shutdown()
        server.server_close()
        thread.join()

    def add(self, name: str = "job", **fields: Any) -> str:
        """Add a pending job and return its id."""
        with self._changed:
            job_id = f"{name}-{len(self.jobs):08x}"
            spec = {"argv": ["true"], **fields} if "command" not in fields else fields
            self.jobs[job_id] = {
                **_DEFAULTS, "id": job_id, "name": name, "state": "pending", "version": 1,
                "owner": None, "hidden": False,
                "submitted_at": time.time(), **spec,
                "fetch": [{**_ARTIFACT, "uri": uri} for uri in spec.get("fetch", ())],
            }  # fmt: skip
            self.tasks[job_id] = []
            self._changed.notify_all()
        return job_id

    def update(self, job_id: str, **fields: Any) -> None:
        """Change a job and answer the requests that wait for it."""
        with self._changed:
            self.jobs[job_id].update(fields, version=self.jobs[job_id]["version"] + 1)
            self._changed.notify_all()

    def launch(self, job_id: str) -> str:
        """Add a running launch of a job and return its task id."""
        number = len(self.tasks[job_id]) + 1
        task_id, now = f"{job_id}.{number}", time.time()
        task = {
            "id": task_id, "job_id": job_id, "name": self.jobs[job_id]["name"], "state": "running", "ended_as": None,
            "hostname": "node-1", "agent_id": "S0", "attempt": number, "rank": 0, "ports": [], "ports_problem": "",
            "healthy": None, "notice": None, "preempted_for": None, "gpu_ids": [], "share": None, "covers": None,
            "launched_at": now, "started_at": now,
            "ended_at": None, "message": "",
        }  # fmt: skip
        self.tasks[job_id].append(task)
        self.update(
            job_id, state="running", task_id=task_id, task_ids=[task_id], hostname="node-1",
            hostnames=["node-1"], launches=number, started_at=now,
        )  # fmt: skip
        return task_id

    def write(self, task_id: str, stream: str, data: bytes) -> None:
        """Append to a stream of a task."""
        with self._changed:
            self.written[task_id, stream] = self.written.get((task_id, stream), b"") + data

    def end(self, job_id: str, state: str, exit_code: int | None = None, message: str = "") -> None:
        """Let a job end."""
        self.update(job_id, state=state, exit_code=exit_code, message=message, ended_at=time.time())

    @property
    def posted(self) -> Any:
        """Body of the latest POST request."""
        return next(body for what, body in reversed(self.asked) if what.startswith("POST "))

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until a condition holds, which is checked after each request.

        Raises:
            TimeoutError: The condition does not hold in time.
        """
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError(f"not within {timeout_s} s; asked so far: {self.asked}")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay the answers to submissions until `release` or the end of the block."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def release(self) -> None:
        """Send the delayed answers to submissions."""
        self._open.set()

    def submitted(self) -> str:
        """Wait for a job, and return the id of the newest one."""
        self.until(lambda: bool(self.jobs))
        return list(self.jobs)[-1]

    def answer(self, verb: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        """Return status and body of the answer to a request."""
        with self._changed:
            self.asked.append((f"{verb} {path}", body))
            self.queries[f"{verb} {path}"] = query
            self._changed.notify_all()
        if f"{verb} {path}" in self.fixed:
            return self.fixed[f"{verb} {path}"]
        parts = path.removeprefix("/v1/").split("/")
        if parts[0] != "jobs":
            return _error(404, "not-found", f"no {path}")
        if len(parts) == 1:
            return self._submit(body) if verb == "POST" else self._list(query)
        ids = [job_id for job_id in self.jobs if job_id.startswith(parts[1])]
        ids = ids or [job_id for job_id, tasks in self.tasks.items() if parts[1] in (t["id"] for t in tasks)]
        if parts[1] not in ids and len(ids) != 1:
            code = (409, "ambiguous") if ids else (404, "not-found")
            return _error(*code, f"{len(ids)} jobs begin with {parts[1]}")
        job_id = parts[1] if parts[1] in ids else ids[0]
        if verb == "DELETE":
            return self._kill(job_id)
        if parts[2:] == ["changes"]:
            return 200, {"changes": []}
        if parts[2:] == ["use"]:
            return 200, {"fine": _unknown(10.0, 90), "coarse": _unknown(300.0, 288)}
        if parts[2:] == ["logs"]:
            return self._logs(job_id, {name: values[0] for name, values in query.items()})
        return (200, {"tasks": self.tasks[job_id]}) if parts[2:] == ["tasks"] else self._job(job_id, query)

    def _submit(self, body: dict[str, Any]) -> Answer:
        job = self.jobs[self.add(**body)]
        self._open.wait()
        return 201, job

    def _list(self, query: dict[str, list[str]]) -> Answer:
        states = query.get("state", [])
        jobs = [
            job
            for job in reversed(self.jobs.values())
            if not states or job["state"] in states or ("active" in states and job["state"] not in _ENDED)
        ]
        if query.get("order") == ["activity"]:
            jobs.sort(key=lambda job: (job["state"] in _ENDED, job["state"] == "pending"))
        return 200, {"jobs": jobs[: int(query.get("limit", ["1000"])[0])], "total": len(jobs)}

    def _job(self, job_id: str, query: dict[str, list[str]]) -> Answer:
        job = self.jobs[job_id]
        with self._changed:
            if "after_version" in query:
                version = int(query["after_version"][0])
                self._changed.wait_for(
                    lambda: job["version"] > version or self._server is None, float(query["timeout_s"][0])
                )
            return 200, dict(job)

    def _kill(self, job_id: str) -> Answer:
        if self.jobs[job_id]["state"] in _ENDED:
            return 200, self.jobs[job_id]
        self.update(job_id, state="killing", kill_requested=True)
        return 202, self.jobs[job_id]

    def _logs(self, job_id: str, query: dict[str, str]) -> Answer:
        task_id = query.get("task_id") or self.jobs[job_id]["task_id"]
        if task_id is None:
            return _error(409, "not-started", f"{job_id} has not been launched yet")
        data = self.written.get((task_id, query["stream"]), b"")
        offset = int(query["offset"])
        begin = max(len(data) + offset, 0) if offset < 0 else offset
        piece = data[begin : begin + int(query["length"])]
        text = (b64encode(piece) if query.get("encoding") == "base64" else piece).decode()
        told = {"data": text, "offset": begin, "next_offset": begin + len(piece), "task_id": task_id}
        return 200, {
            **told,
            "times": self.times.get((task_id, query["stream"])) if "times" in query else None,
        }


def _unknown(step_s: float, slots: int) -> dict[str, Any]:
    """Return a series of use in which every value is unknown."""
    columns = dict.fromkeys(("busy_pct", "memory_mib", "power_w"), [None] * slots)
    return {"step_s": step_s, "until": time.time(), **columns}


def _error(status: int, code: str, message: str) -> Answer:
    return status, {"error": {"code": code, "message": message, "remedy": "see `mesos-gpu ps --all`"}}


def _handler(rest: FakeRest) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):  # HTTP/1.0: a connection is closed after its answer
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, value = rest.answer(self.command, parts.path, parse_qs(parts.query), body)
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

        def handle(self) -> None:
            # Many tests interrupt the client.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                super().handle()

    return Handler
