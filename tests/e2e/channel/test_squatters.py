"""Squatters at ports that Mesos gave to tasks: nothing is sent to them, and an error names them.

A squatter is a process of the host outside of all fences, of the user of the tasks or of another one.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, reporting, rule, said
from tests.conftest import wait_until
from tests.e2e.channel.test_sessions import SMALL, killed_at_end

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="isolates tasks: needs root"),
]
OTHER = 65533
#: Answers each request as Jupyter does, and writes down what it was sent.
SERVER = """
import encodings.idna, http.server, json, os, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers["Authorization"], flush=True)
        body = json.dumps({"kernels": 0, "who": sys.argv[1]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_port = True
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
    def get_request(self):
        line = super().get_request()
        print("connected", flush=True)
        return line
if len(sys.argv) > 3:
    os.setuid(int(sys.argv[3]))
Server(("", int(sys.argv[2])), Handler).serve_forever()
"""
#: A job whose server needs a while: it listens once there is a file "go" in its sandbox.
LATE = f"until test -e go; do sleep 0.05; done; exec python3 -c {shlex.quote(SERVER)} job $PORT0"


class Squatter:
    """A process of the host that listens at a port and answers. `heard`: lines about its connections."""

    def __init__(self, port: int, uid: int = OTHER) -> None:
        self.heard: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, "squatter", str(port), str(uid)], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.heard.extend(iter(self._process.stdout.readline, ""))

    @property
    def requests(self) -> list[str]:
        return [line for line in self.heard if line != "connected\n"]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def squatting(port: int, uid: int = OTHER) -> Iterator[Squatter]:
    squatter = Squatter(port, uid)
    try:
        wait_until("it listens", lambda: answers(port))
        squatter.heard.clear()
        yield squatter
    finally:
        squatter.end()


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=["up", pytest.param("secure", marks=pytest.mark.long)])
def stack(open_directory: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A plain cluster, and one with authentication in which each task has a user of its own."""
    if request.param == "up":
        with reporting(open_directory / "stack", 2) as stack:
            yield stack
        return
    pool = {"MESOS_GPU_USER_POOL": "940000-940019"}
    with Stack(open_directory / "secure", [NodeSpec(2)], secure=True, executor_environment=pool) as stack:
        with client_of(stack, 2):
            pass
        rule(stack, open_directory)
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.reach) as client:
        yield client


def words(stack: Stack, command: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "mesos_gpu", command, "--url", stack.reach, *more]


def running(client: Client, job: str) -> int:
    """Wait until a job runs; return its port."""
    wait_until("it runs", lambda: client.job(job)["state"] == "running")
    port: int = client.tasks(job)[0]["ports"][0]
    return port


def let_listen(stack: Stack, job: str, how: str = "touch go") -> None:
    said(stack, "exec", job, "--", "sh", "-c", how)


def jobs_of(client: Client, app: str) -> str:
    """Return the job of the only instance of an app; "" if there is none yet."""
    return next((str(each["id"]) for each in client.jobs() if each["app"] == app), "")


def test_notebook_shows_its_token_to_its_own_server_alone(stack: Stack, client: Client) -> None:
    command = words(stack, "notebook", "--name", "book", *SMALL, "--shell", "--", LATE)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran,
        killed_at_end(ran),
    ):
        assert ran.stdout is not None
        assert ran.stderr is not None
        wait_until("it is there", lambda: [each for each in client.jobs() if each["name"] == "book"])
        [job] = [each["id"] for each in client.jobs() if each["name"] == "book"]
        port = running(client, job)
        with squatting(port) as squatter:
            warning = next(line for line in iter(ran.stderr.readline, "") if "nothing was sent" in line)
            assert f"nothing was sent to port {port} of job {job}, and the token is not sent" in warning
            assert f"of uid {OTHER}, listens at port {port}" in warning
            assert "run the job again" in warning
            wait_until("it was tried again", lambda: squatter.heard.count("connected\n") >= 3)
            assert squatter.requests == []
        let_listen(stack, job)
        url = ran.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", url), url
        assert requests.get(url.strip(), timeout=60).json()["who"] == "job"
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == 143


def test_port_that_another_process_shares_leads_to_the_job_alone(stack: Stack, client: Client) -> None:
    asked = {"name": "shared", "command": LATE, "ports": [0], "cpus": 0.1, "mem_mib": 64}
    job = client.submit(asked)["id"]
    port = running(client, job)
    uid = int(said(stack, "exec", job, "--", "id", "-u"))
    argv = words(stack, "port-forward", job, f"0:{port}")
    with (
        subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as ran,
        killed_at_end(ran),
        squatting(port, uid) as squatter,
    ):
        assert ran.stderr is not None
        here = ran.stderr.readline().split()[1]
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{here}/secret", timeout=60)
        assert f"of uid {uid}, listens at port {port}" in ran.stderr.readline()
        let_listen(stack, job)
        wait_until("the job listens, too", lambda: "job" in answers_of(here, 20))
        # "refused" only if the squatter got the connections to all addresses of the host
        assert set(answers_of(here, 40)) <= {"job", "refused"}
        assert squatter.heard.count("connected\n") > 1, "it has some of the connections"
        assert squatter.requests == []
    client.kill(job)


def answers_of(place: str, times: int) -> list[str]:
    """Return the names of the servers that answer successive connections."""
    names = []
    for _ in range(times):
        try:
            names.append(requests.get(f"http://{place}/secret", timeout=60).json()["who"])
        except requests.ConnectionError:
            names.append("refused")
    return names


def app(client: Client, id: str, **more: Any) -> str:
    """Create an app with one instance; return the job of the instance."""
    definition = {
        "id": id,
        "cmd": LATE,
        "cpus": 0.1,
        "mem": 64,
        "portDefinitions": [{"name": "web", "port": 0}],
    }
    client.call("POST", "/v2/apps", dict, body={**definition, **more})
    return wait_until("it is there", lambda: jobs_of(client, id))


def exported(client: Client) -> str:
    return client.call("GET", "/v1/services", bytes, {"format": "haproxy", "group": "*"}).decode()


READY = {"portName": "web", "path": "/ready", "intervalSeconds": 2, "timeoutSeconds": 1}


@pytest.mark.parametrize("protocol", ["MESOS_HTTP", "HTTP", pytest.param("TCP", marks=pytest.mark.long)])
def test_app_is_neither_healthy_nor_ready_nor_served_while_another_answers_at_its_port(
    stack: Stack, client: Client, protocol: str
) -> None:
    name = protocol.lower().replace("_", "-")
    often = {"intervalSeconds": 1, "gracePeriodSeconds": 0, "maxConsecutiveFailures": 0}
    check = {"protocol": protocol, "portIndex": 0, **often}
    labels = {"HAPROXY_0_VHOST": f"{name}.example.org"}
    job = app(client, f"/{name}", healthChecks=[check], readinessChecks=[READY], labels=labels)
    port = running(client, job)
    with squatting(port) as squatter:
        wait_until("its executor saw it", lambda: OTHER_LISTENS in problem_of(client, job))
        if protocol == "MESOS_HTTP":
            wait_until("it is checked", lambda: squatter.heard.count("connected\n") > 2)
        else:
            wait_until("it is checked", lambda: OTHER_LISTENS in causes_of(client, name))
        assert client.job(job)["healthy"] is False
        assert [each["affectedApps"] for each in client.call("GET", "/v2/deployments", list)] == [
            [f"/{name}"]
        ]
        assert f":{port} check" not in exported(client)
        assert squatter.requests == []
    let_listen(stack, job)
    wait_until("it is well", lambda: client.job(job)["healthy"] is True)
    wait_until("it is ready", lambda: not client.call("GET", "/v2/deployments", list))
    wait_until("it is served", lambda: f":{port} check" in exported(client))
    client.call("DELETE", f"/v2/apps/{name}", dict)
    wait_until("it has ended", lambda: client.job(job)["ended_at"])


OTHER_LISTENS = f"of uid {OTHER}, listens at port"


def problem_of(client: Client, job: str) -> str:
    """Return the problem that the executor of a job's task reports on its ports."""
    return str(client.tasks(job)[0]["ports_problem"])


def causes_of(client: Client, app: str) -> str:
    """Return the latest causes of failed checks of an app's tasks."""
    tasks = client.call("GET", f"/v2/apps/{app}/tasks", dict)["tasks"]
    return str([each.get("lastFailureCause") for task in tasks for each in task["healthCheckResults"]])


def test_an_app_without_checks_is_served_once_it_listens_itself(stack: Stack, client: Client) -> None:
    job = app(client, "/plain", labels={"HAPROXY_0_VHOST": "plain.example.org"})
    port = running(client, job)
    with squatting(port):
        wait_until("its executor saw it", lambda: OTHER_LISTENS in problem_of(client, job))
        text = exported(client)
        assert f":{port} check" not in text
        assert "nothing that listens at its port is proved to be the task" in text
    let_listen(stack, job)
    wait_until("it is served", lambda: f":{port} check" in exported(client))
