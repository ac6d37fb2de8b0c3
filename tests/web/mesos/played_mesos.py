"""A Mesos master and an agent that are played: what the page of a master reads, by the sources of Mesos 1.11."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from mesos_gpu.libmesos.master import PAGE

#: mime.cpp of libprocess.
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "application/x-javascript"}
SINCE_S: Final = 1_700_000_000.0


class Played(ThreadingHTTPServer):
    """A process of Mesos on an address of this machine.

    Attributes:
        refusal: Status of all answers but the page's files; 0 if it answers.
        asked: Paths of requests.
    """

    def __init__(self, ip: str) -> None:
        """Listen at a free port and answer in threads of their own."""
        super().__init__((ip, 0), _Handler)
        self.daemon_threads = True
        self.ip, self.refusal = ip, 0
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return the base URL without a path."""
        return f"http://{self.ip}:{self.server_port}"

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """Return the document of a path; None for an unknown path."""
        raise NotImplementedError

    def end(self) -> None:
        """Close the port and end the thread that listens."""
        self.shutdown()
        self.server_close()


class PlayedMaster(Played):
    """A master.

    Attributes:
        state: Document that /state answers.
        metrics: Document that /metrics/snapshot answers.
        leader: URL of the master that leads, for redirects; "" if this one leads.
    """

    def __init__(self) -> None:
        """Lead a cluster without agents."""
        super().__init__("127.0.0.1")
        self.leader = ""
        self.metrics = {"master/tasks_running": 1, "master/tasks_failed": 2}
        self.state: dict[str, Any] = {
            "version": "1.11.0", "start_time": SINCE_S, "elected_time": SINCE_S, "id": "m1", "cluster": "played",
            "leader_info": {"hostname": "m1.example", "port": 5050}, "activated_slaves": 1, "deactivated_slaves": 0,
            "unreachable_slaves": 0, "flags": {"authenticate_http_readonly": "false"}, "slaves": [],
            "recovered_slaves": [], "frameworks": [], "completed_frameworks": [],
        }  # fmt: skip

    def answer(self, path: str, query: dict[str, str]) -> Any:
        return {"/state": self.state, "/metrics/snapshot": self.metrics}.get(path)


class PlayedAgent(Played):
    """An agent on an address of its own.

    Attributes:
        files: Contents by the path below the sandbox of each executor.
        script: JavaScript in front of each answer that is a script.
    """

    def __init__(self) -> None:
        """Have the files of a task that runs."""
        super().__init__("127.0.0.11")
        self.files = {"stdout": b"epoch 1\n", "stderr": b"", "out/model.bin": b"\x00\xff"}
        self.script = ""

    def slave(self, **more: Any) -> dict[str, Any]:
        """Return its entry in /state."""
        amounts = {"cpus": 32, "mem": 131072, "gpus": 4, "disk": 10000, "ports": "[31000-32000]"}
        return {
            "id": "s1", "hostname": self.ip, "port": self.server_port, "pid": f"slave(1)@{self.ip}:{self.server_port}",
            "attributes": {"gpu_model": "NVIDIA-A100"}, "resources": amounts, "used_resources": {"gpus": 2, "cpus": 1},
            "offered_resources": {}, "reserved_resources": {"gpu": {"gpus": 1}}, "active": True, "deactivated": False,
            "registered_time": SINCE_S, "version": "1.11.0", "capabilities": ["MULTI_ROLE"], **more,
        }  # fmt: skip

    def answer(self, path: str, query: dict[str, str]) -> Any:
        inside = query.get("path", "").partition("/runs/latest")[2].strip("/")
        if path == "/files/browse":
            return self._listed(inside) or None
        if path == "/files/read" and inside in self.files:
            data, offset, length = self.files[inside], int(query["offset"]), int(query.get("length", "0"))
            if offset == -1:
                return {"offset": len(data), "data": ""}
            return {"offset": offset, "data": data[offset : offset + length].decode("utf-8", "replace")}
        return None

    def _listed(self, inside: str) -> list[dict[str, Any]]:
        prefix = f"{inside}/" if inside else ""
        below = sorted({path[len(prefix) :] for path in self.files if path.startswith(prefix)})
        common = {"uid": "ann", "gid": "nogroup", "mtime": SINCE_S, "nlink": 1}
        names = dict.fromkeys(each.partition("/")[0] for each in below)
        return [
            {
                "path": f"/frameworks/f/executors/e/runs/latest/{prefix}{name}", **common,
                **({"mode": "-rw-r--r--", "size": len(self.files[prefix + name])} if prefix + name in self.files
                   else {"mode": "drwxr-xr-x", "size": 4096}),
            }
            for name in names
        ]  # fmt: skip


def task(number: int | str, state: str = "TASK_RUNNING", **more: Any) -> dict[str, Any]:
    """Return a task as /state has it. `number`: in its id and its name."""
    statuses = [{"state": "TASK_RUNNING", "timestamp": SINCE_S + 60}]
    if state != "TASK_RUNNING":
        statuses.append({"state": state, "timestamp": SINCE_S + 120})
    return {
        "id": f"t{number}", "name": f"train-{number}", "framework_id": "fw", "executor_id": f"t{number}",
        "slave_id": "s1", "state": state, "resources": {"cpus": 0.5, "mem": 256, "gpus": 0, "disk": 0}, "role": "*",
        "statuses": statuses, "user": "ann", **more,
    }  # fmt: skip


def labels(**values: str) -> list[dict[str, str]]:
    """Return labels of mesos_gpu by their last part, as gpus of mesos_gpu.gpus."""
    return [{"key": f"mesos_gpu.{name}", "value": value} for name, value in values.items()]


def framework(**more: Any) -> dict[str, Any]:
    """Return a framework as /state has it."""
    return {
        "id": "fw", "name": "mesos_gpu", "active": True, "connected": True, "recovered": False, "user": "root",
        "roles": ["*"], "webui_url": "http://127.0.0.1:8080", "hostname": "h", "failover_timeout": 604800.0,
        "checkpoint": True, "registered_time": SINCE_S, "unregistered_time": 0.0, "capabilities": ["GPU_RESOURCES"],
        "used_resources": {"gpus": 2, "cpus": 1, "mem": 512}, "tasks": [], "unreachable_tasks": [],
        "completed_tasks": [], **more,
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: Played

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        if isinstance(self.server, PlayedMaster):
            if file := _file(parts.path):
                return self._send(200, _TYPES[file.suffix], file.read_bytes())
            if self.server.leader and parts.path != "/metrics/snapshot":
                return self._send(307, "", b"", Location=self.server.leader)
        if self.server.refusal:
            return self._send(self.server.refusal, "", b"")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        answer = self.server.answer(parts.path, query)
        if answer is None:
            return self._send(404, "", b"")
        text = json.dumps(answer)
        if "jsonp" not in query:
            return self._send(200, "application/json", text.encode())
        script = f"{getattr(self.server, 'script', '')}{query['jsonp']}({text})"
        return self._send(200, "text/javascript", script.encode())

    def _send(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, **({"Content-Type": kind} if kind else {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep requests out of the output of tests."""


def _file(path: str) -> Path | None:
    """Return the file of the page at a path; None for other paths."""
    below = "index.html" if path == "/" else path.removeprefix("/") if path.startswith("/app/") else ""
    file = Path(PAGE, below)
    return file if below and file.is_file() else None
