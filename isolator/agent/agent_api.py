"""Client of the agent's v1 executor API, on the standard library (Mesos' docs/executor-http-api.md).

Updates are kept until they are acknowledged and go along with each SUBSCRIBE, so that none is lost when the
agent restarts. Decisions on tasks are made by a `Handler`, which `Connection` calls.
"""

import binascii
import json
import os
import sys
import threading
import time
from _queue import SimpleQueue
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from isolator.agent.http import HttpConnection, ProtocolError, Response
from isolator.agent.tls import AgentTls
from mesos_gpu.wire.mesos.seal import Said, seal, secret_in
from mesos_gpu.wire.plain import clean

MAX_MESSAGE: Final = 10_000  # most characters of an update's message
RETRY_S: Final = 0.15  # an agent gives its executors 2 s to come back after a restart
REGISTRATION_S: Final = 60.0  # the agent's --executor_registration_timeout, by default
REFUSED_S: Final = 5.0  # how long a refusal by the agent is doubted
OPERATOR: Final = "/api/v1"
NOT_BELIEVED: Final = (401, 403)
TERMINAL: Final = ("TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR")
_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "secs": 1.0, "sec": 1.0, "mins": 60.0, "min": 60.0, "hrs": 3600.0,
    "hr": 3600.0, "days": 86400.0, "day": 86400.0, "weeks": 604800.0, "week": 604800.0,
}  # fmt: skip


def _base64(data: bytes | bytearray) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def seconds(duration: str) -> float:
    """Parse a Duration of Mesos, such as 15mins (stout/duration.hpp), into seconds."""
    number = duration.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * _UNITS[duration[len(number) :]]


def _uuid4() -> str:
    """Return a random UUID (version 4) as base64 of its bytes, as Mesos accepts no others (RFC 9562, 5.4).

    The module uuid would cost each executor some milliseconds of start.
    """
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return _base64(raw)


class Handler(Protocol):
    """Reactions of an executor to events; they are called on the event thread, and must return soon."""

    def launch(self, task: Mapping[str, Any]) -> None:
        """Handle the LAUNCH of a TaskInfo that was not launched before."""

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """Handle a KILL; without `grace_s` the task's own grace period applies."""

    def shutdown(self) -> None:
        """Handle a SHUTDOWN, or that the agent is gone for good."""

    def acknowledged(self, task_id: str, state: str) -> None:
        """Handle the acknowledgement of an update, which the agent has on disk then."""

    def message(self, data: bytes) -> None:
        """Handle a MESSAGE of the scheduler, which may be lost, or come twice."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that the agent puts into an executor's environment; times in seconds.

    Attributes:
        prefix: Path of an agent that shares its process with others, /slave(N), or "".
        credentials: File of credentials for the agent's operator API; "" if it needs none.
        tls: TLS settings; None if the agent speaks plain HTTP.
    """

    endpoint: str
    framework_id: str
    executor_id: str
    prefix: str = ""
    checkpoint: bool = True
    recovery_timeout_s: float = 900.0
    shutdown_grace_s: float = 5.0
    token: str | None = field(default=None, repr=False)
    credentials: str = ""
    tls: AgentTls | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """Read MESOS_* variables.

        Raises:
            KeyError: A variable that Mesos always sets is missing.
        """
        return cls(
            endpoint=env["MESOS_AGENT_ENDPOINT"],
            framework_id=env["MESOS_FRAMEWORK_ID"],
            executor_id=env["MESOS_EXECUTOR_ID"],
            prefix="/" + env["MESOS_SLAVE_PID"].partition("@")[0] if "MESOS_SLAVE_PID" in env else "",
            checkpoint=env.get("MESOS_CHECKPOINT") == "1",
            recovery_timeout_s=seconds(env.get("MESOS_RECOVERY_TIMEOUT", "15mins")),
            shutdown_grace_s=seconds(env.get("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", "5secs")),
            token=env.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN"),
            credentials=env.get("MESOS_GPU_AGENT_CREDENTIALS", ""),
            tls=AgentTls.from_environment(env),
        )

    def connection(self, timeout_s: float) -> HttpConnection:
        """Return a connection to the agent, which is opened by the first request."""
        return HttpConnection(self.endpoint, timeout_s, self.tls)

    def authorization(self) -> dict[str, str]:
        """Return the header for the operator API: with the operator's credentials, else with the executor's
        own token.

        Raises:
            BadConfiguration: The file of credentials is invalid.
        """
        if self.credentials:
            from pathlib import Path

            from mesos_gpu.adapters.credentials import read

            return {"Authorization": read(Path(self.credentials)).header}
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def proofs(self) -> tuple[dict[str, str], ...]:
        """Return the headers for calls about the executor's own containers, to be tried in this order.

        First its token, which allows no other containers; then the operator's credentials, for agents that
        accept no tokens there.

        Raises:
            BadConfiguration: As for `authorization`.
        """
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        proofs = [proof for proof in (token, self.authorization()) if proof]
        return tuple(proofs[: 2 if self.credentials else 1]) or ({},)


class _Refused(OSError):
    """Error: the agent does not know this executor, or refuses its token (400, 401, 403). Other errors are
    temporary.
    """


class Connection:
    """Connection of an executor to its agent.

    Args:
        settings: Settings from the environment.
        handler: Reactions to events.
    """

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings, self._handler = settings, handler
        self._ids = {
            "framework_id": {"value": settings.framework_id},
            "executor_id": {"value": settings.executor_id},
        }
        self._updates: dict[str, dict[str, Any]] = {}  # updates that are not acknowledged yet, by uuid
        self._tasks: dict[str, Any] = {}  # launched tasks without an acknowledged update
        self._known: set[str] = set()
        self._secrets: dict[str, str] = {}  # secrets by task, if the scheduler gave one
        self._sealed = 0  # number of updates so far
        self._lock = threading.Lock()
        self._outbox: SimpleQueue[str] = SimpleQueue()
        self._done = threading.Event()
        self._stream: HttpConnection | None = None
        self._subscribed = False  # whether it was ever subscribed
        self._last_said = ""

    # --- from any thread

    def update(
        self,
        task_id: str,
        state: str,
        *,
        message: str = "",
        data: bytes = b"",
        healthy: bool | None = None,
        reason: str = "",
    ) -> None:
        """Report a state; it is sent until the agent acknowledges it."""
        ident = _uuid4()
        # What is sealed must arrive unchanged.
        message = message[:MAX_MESSAGE].encode(errors="replace").decode()
        status: dict[str, Any] = {
            "task_id": {"value": task_id},
            "executor_id": self._ids["executor_id"],
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "uuid": ident,
            "timestamp": time.time(),
        }
        if message:
            status["message"] = message
        if healthy is not None:
            status["healthy"] = healthy
        if reason:
            status["reason"] = reason
        with self._lock:
            self._sealed += 1
            said = Said(task_id, state, self._sealed, message, reason, healthy, data.decode())
            if secret := self._secrets.get(task_id):
                data = seal(secret, said)
            if data:
                status["data"] = _base64(data)
            self._updates[ident] = {"status": status}
            self._outbox.put(ident)  # in the order of the numbers

    def waiting(self) -> int:
        """Return the number of updates that are not acknowledged."""
        with self._lock:
            return len(self._updates)

    def finish(self) -> None:
        """Make `run` end soon."""
        self._done.set()
        self._outbox.put("")
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    # --- on the thread that calls `run`

    def run(self) -> int:
        """Subscribe and handle events until `finish`; return the exit code."""
        threading.Thread(target=self._send_updates, daemon=True).start()
        lost_at: float | None = time.monotonic()
        while not self._done.is_set():
            refused = False
            try:
                for event in self._events():
                    lost_at = None
                    self._handle(event)
                    if self._done.is_set():
                        return 0
                self._say("the agent closed the stream")
            except OSError as error:
                refused = isinstance(error, _Refused)
                self._say(repr(error))
            if self._done.is_set():
                return 0
            if lost_at is None:
                lost_at = time.monotonic()
            if time.monotonic() - lost_at >= self._patience_s(refused):
                self._say("the agent is gone: ending")
                self._handler.shutdown()
                return 1
            self._done.wait(RETRY_S)
        return 0

    def _patience_s(self, refused: bool) -> float:
        """Return how long to go on without the agent."""
        if self._subscribed and not self._settings.checkpoint:
            return 0.0
        limit_s = REFUSED_S if refused else float("inf") if self._subscribed else REGISTRATION_S
        return min(limit_s, self._settings.recovery_timeout_s)

    def _say(self, text: str) -> None:
        """Log a line, but only once if it is repeated."""
        if text != self._last_said and not self._done.is_set():
            self._last_said = text
            print(f"agent {self._settings.endpoint}: {clean(text)}", file=sys.stderr, flush=True)

    def _events(self) -> Iterator[Mapping[str, Any]]:
        """Subscribe, and yield the events of the stream."""
        with self._lock:
            subscribe = {
                "unacknowledged_updates": list(self._updates.values()),
                "unacknowledged_tasks": list(self._tasks.values()),
            }
        connection = self._settings.connection(60)
        self._stream = connection
        try:
            body = {**self._ids, "type": "SUBSCRIBE", "subscribe": subscribe}
            response = self._post(connection, body)
            if response.status != 200:
                kind = _Refused if response.status in (400, 401, 403) else OSError
                raise kind(f"{response.status} {response.read(500)!r}")
            connection.wait_for_ever()
            while length := response.readline():  # RecordIO: "<length>\n<record>"
                try:
                    event = json.loads(response.read(int(length)))
                except ValueError as error:
                    raise ProtocolError(f"not an event: {error}") from error
                yield event
        finally:
            self._stream = None
            connection.close()

    def _post(
        self,
        connection: HttpConnection,
        body: Mapping[str, Any],
        path: str = "/api/v1/executor",
        proof: Mapping[str, str] | None = None,
    ) -> Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **(proof or {})}
        if proof is None and self._settings.token:
            headers["Authorization"] = "Bearer " + self._settings.token
        return connection.post(self._settings.prefix + path, json.dumps(body).encode(), headers)

    def call(self, body: Mapping[str, Any], timeout_s: float | None) -> tuple[int, bytes]:
        """Make a call of the agent's operator API (docs/operator-http-api.md), for example for nested
        containers.

        Args:
            body: The call as JSON.
            timeout_s: Seconds to wait for the answer; None for no limit.

        Returns:
            HTTP status and body.

        Raises:
            OSError: No answer came.
            BadConfiguration: As for `Settings.authorization`.
        """
        for proof in self._settings.proofs():
            status, answer = self._called(body, timeout_s, proof)
            if status not in NOT_BELIEVED:
                break
        return status, answer

    def _called(
        self, body: Mapping[str, Any], timeout_s: float | None, proof: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection = self._settings.connection(timeout_s or 60.0)
        try:
            if timeout_s is None:
                connection.connect()
                connection.wait_for_ever()
            response = self._post(connection, body, OPERATOR, proof)
            return response.status, response.read()
        finally:
            connection.close()

    def _handle(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "SUBSCRIBED":
            self._subscribed, self._last_said = True, ""
        elif kind == "LAUNCH":
            task = event["launch"]["task"]
            task_id = task["task_id"]["value"]
            if task_id not in self._known:  # an agent may send it twice
                self._known.add(task_id)
                with self._lock:
                    self._tasks[task_id] = task
                    self._secrets[task_id] = secret_in(binascii.a2b_base64(task.get("data", "")))
                self._handler.launch(task)
        elif kind == "KILL":
            grace = event["kill"].get("kill_policy", {}).get("grace_period")
            grace_s = None if grace is None else grace["nanoseconds"] / 1e9
            self._handler.kill(event["kill"]["task_id"]["value"], grace_s)
        elif kind == "ACKNOWLEDGED":
            done = event["acknowledged"]
            with self._lock:
                update = self._updates.pop(done["uuid"], None)
                self._tasks.pop(done["task_id"]["value"], None)
            if update is not None:
                self._handler.acknowledged(done["task_id"]["value"], update["status"]["state"])
        elif kind == "SHUTDOWN":
            self._handler.shutdown()
        elif kind == "MESSAGE":
            self._handler.message(binascii.a2b_base64(event["message"].get("data", "")))
        elif kind == "ERROR":
            self._say(event["error"]["message"])

    # --- on the sender's thread

    def _send_updates(self) -> None:
        """Send the updates in the order of their numbers, each until the agent has accepted it."""
        connection: HttpConnection | None = None
        while not self._done.is_set():
            ident = self._outbox.get()
            while not self._done.is_set():
                with self._lock:
                    update = self._updates.get(ident)
                if update is None:
                    break  # acknowledged, as it went along with a subscription
                fresh = connection is None
                connection = connection or self._settings.connection(10)
                if self._delivered(connection, update):
                    break
                connection.close()
                connection = None
                # only then: an idle connection may just have been closed, which does not mean that the agent
                # is gone
                if fresh:
                    self._done.wait(RETRY_S)
        if connection is not None:
            connection.close()

    def _delivered(self, connection: HttpConnection, update: Mapping[str, Any]) -> bool:
        try:
            response = self._post(connection, {**self._ids, "type": "UPDATE", "update": update})
            text = response.read()
        except OSError:
            return False
        # 404 before its routes are up, 503 while it recovers, 403 until this executor has subscribed again
        if response.status != 202:
            self._say(f"{response.status} {text[:500]!r}")
        return response.status == 202
