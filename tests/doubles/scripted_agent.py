"""A server on the loopback interface that is an agent for executors (v1 executor API), controlled by a test."""

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any


class _Server(ThreadingHTTPServer):
    """A server that prints no traceback for connections that the peer has reset."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors but for reset connections."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class ScriptedAgent:
    """An agent that records SUBSCRIBE and UPDATE calls of an executor, and sends it the events of a test.

    Attributes:
        refuse: HTTP statuses of the answers to the next requests, in order.
        acknowledge: Whether the agent acknowledges each update at once.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Start to listen, by plain HTTP without `tls`."""
        self.subscribes: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refuse: list[int] = []
        self.acknowledge = True
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._changed = threading.Condition()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                agent._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def environment(self, sandbox: str, **more: str) -> dict[str, str]:
        """Return the variables that an agent sets for an executor."""
        return {
            "MESOS_AGENT_ENDPOINT": self.endpoint,
            "MESOS_SLAVE_PID": f"slave(1)@{self.endpoint}",
            "MESOS_FRAMEWORK_ID": "framework",
            "MESOS_EXECUTOR_ID": "executor",
            "MESOS_CHECKPOINT": "1",
            "MESOS_GPU_TASK_PORTS": "31000-32000",  # this agent writes no checkpoint with its ports
            "MESOS_RECOVERY_TIMEOUT": "15mins",
            "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "2secs",
            "MESOS_SANDBOX": sandbox,
            "MESOS_DIRECTORY": sandbox,
            **more,
        }

    def send(self, event: dict[str, Any]) -> None:
        """Send an event to the subscribed executor, or to the next one that subscribes."""
        self._events.put(event)

    def break_stream(self) -> None:
        """End the subscription, as when the agent dies."""
        self._events.put(None)

    def states(self, task_id: str) -> list[str]:
        """Return the reported states of a task in order, without repeated updates."""
        seen: dict[str, str] = {}
        for status in self.updates:
            if status["task_id"]["value"] == task_id:
                seen.setdefault(status["uuid"], status["state"])
        return list(seen.values())

    def wait_for(self, condition: Any, timeout_s: float = 60) -> None:
        """Wait until a condition holds, which is checked after each request."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), f"updates: {self.updates}"

    def close(self) -> None:
        self._events.put(None)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._changed:
            self.headers.append({**dict(handler.headers.items()), ":path": handler.path})
            refused = self.refuse.pop(0) if self.refuse else None
            if refused is None:
                self._note(body)
            self._changed.notify_all()
        if refused is not None:
            _plain(handler, refused)
        elif body["type"] == "SUBSCRIBE":
            self._stream(handler)
        else:
            _plain(handler, 202)

    def _note(self, body: dict[str, Any]) -> None:
        if body["type"] == "SUBSCRIBE":
            self.subscribes.append(body["subscribe"])
            statuses = [update["status"] for update in body["subscribe"]["unacknowledged_updates"]]
        else:
            statuses = [body["update"]["status"]]
        for status in statuses:
            self.updates.append(status)
            if self.acknowledge:
                done = {"uuid": status["uuid"], "task_id": status["task_id"]}
                self.send({"type": "ACKNOWLEDGED", "acknowledged": done})

    def _stream(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        first = {"type": "SUBSCRIBED", "subscribed": {"framework_info": {"name": "t"}}}
        event: dict[str, Any] | None = first
        try:
            while event is not None:
                text = json.dumps(event).encode()
                record = b"%d\n%s" % (len(text), text)
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(record), record))
                handler.wfile.flush()
                event = self._events.get()
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # the executor has gone
        finally:
            handler.close_connection = True


def _plain(handler: BaseHTTPRequestHandler, status: int) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@contextmanager
def scripted_agent(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedAgent]:
    """Yield an agent that is closed at the end of the block."""
    agent = ScriptedAgent(tls)
    try:
        yield agent
    finally:
        agent.close()
