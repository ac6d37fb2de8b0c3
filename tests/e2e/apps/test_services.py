"""Services behind a real HAProxy under load: no request fails while apps change, and shares hold."""

import contextlib
import http.client
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

HAPROXY = shutil.which("haproxy")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None, reason="no haproxy: apt-get install haproxy"),
]
# Says its version; not ready at once; once told to end it serves until nobody has asked for a second.
SERVER = """
import http.server, os, signal, threading, time
began = asked = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global asked
        if self.path == "/":
            asked = time.monotonic()
        early = self.path == "/ready" and time.monotonic() - began < 0.2
        body = os.environ["VERSION"].encode()
        self.send_response(503 if early else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
def drain():
    while time.monotonic() - asked < 1:
        time.sleep(0.05)
    server.shutdown()
server = Server((os.environ["HOST"], int(os.environ["PORT0"])), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=drain).start())
server.serve_forever()
"""
# HAProxy 2.6 loses a signal that comes while it reloads: wait until that is over.
RELOAD = """
import os, signal, socket, sys, time
def reloads():
    with socket.socket(socket.AF_UNIX) as master:
        master.connect(sys.argv[2])
        master.sendall(b"show proc\\n")
        master.shutdown(socket.SHUT_WR)
        return int(master.makefile().read().split("master")[1].split()[0])
before = reloads()
os.kill(int(sys.argv[1]), signal.SIGUSR2)
while True:
    try:
        if reloads() > before:
            break
    except (OSError, IndexError):
        pass
    time.sleep(0.02)
"""
GLOBAL = "global\n  stats socket {socket} mode 600 level admin expose-fd listeners\n  maxconn 2000\n"


class Load:
    """A context manager: clients ask one port again and again, each request on a connection of its own."""

    def __init__(self, port: int, clients: int = 3) -> None:
        self.port, self.answers, self.failures = port, Counter[str](), list[str]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(0.02):
            try:
                self.answers[ask(self.port)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))


def ask(port: int) -> str:
    """The version that answers."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status != 200:
            raise OSError(f"{answer.status} {body}")
        return body


def service(url: str, *words: str | Path) -> str:
    done = CliRunner().invoke(main, ["--url", url, "service", *map(str, words)], prog_name="mesos-gpu")
    assert done.exit_code == 0, done.output
    return done.stdout


def app(directory: Path, id: str, version: str, instances: int, **labels: str) -> dict[str, Any]:
    return {
        "id": id,
        "cmd": f"exec python3 {directory}/server.py",
        "cpus": 0.1,
        "mem": 64,
        "instances": instances,
        "env": {"VERSION": version},
        "labels": labels,
        "portDefinitions": [{"port": 0, "name": "http"}],
        "healthChecks": [
            {
                "protocol": "HTTP",
                "path": "/health",
                "portIndex": 0,
                "intervalSeconds": 1,
                "gracePeriodSeconds": 20,
            }
        ],
        "readinessChecks": [
            {"path": "/ready", "portName": "http", "intervalSeconds": 2, "timeoutSeconds": 1}
        ],
        "taskKillGracePeriodSeconds": 20,
    }


def call(verb: str, url: str, status: int = 200, **how: Any) -> Any:
    answer = requests.request(verb, url, timeout=60, **how)
    assert answer.status_code == status, answer.text
    return answer.json()


def settled(url: str) -> None:
    wait_until("no deployment", lambda: not call("GET", f"{url}/v2/deployments"), 60)


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    (open_directory / "server.py").write_text(SERVER)
    (open_directory / "reload.py").write_text(RELOAD)
    with Stack(open_directory / "cluster", [NodeSpec(1)]) as stack, Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 1)
        yield stack


@contextlib.contextmanager
def running(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def colours(directory: Path, colour: str, port: int) -> dict[str, Any]:
    labels = {
        "HAPROXY_GROUP": "test",
        "HAPROXY_0_PORT": str(port),
        "HAPROXY_DEPLOYMENT_GROUP": "shop",
        "HAPROXY_DEPLOYMENT_COLOUR": colour,
        "HAPROXY_DEPLOYMENT_TARGET_INSTANCES": "2",
        "HAPROXY_DEPLOYMENT_STARTED_AT": {"blue": "2026-01-01T00:00:00Z", "green": "2026-01-02T00:00:00Z"}[
            colour
        ],
    }
    return app(directory, f"/{colour}", colour, 2, **labels)


def test_services_behind_haproxy_fail_no_request_while_apps_change(
    stack: Stack, open_directory: Path
) -> None:
    url, directory, port, shop = stack.url, open_directory, free_port(), free_port()
    for each in (
        app(directory, "/a", "a1", 2),
        app(directory, "/b", "b", 1),
        colours(directory, "blue", shop),
    ):
        call("POST", f"{url}/v2/apps", 201, json=each)
    settled(url)
    service(url, "split", "web", "/a=1", "--port", str(port))
    settings, fixed = directory / "services.cfg", directory / "global.cfg"
    fixed.write_text(GLOBAL.format(socket=directory / "haproxy.sock"))
    export = ("export", "--format", "haproxy", "--group", "test", "--out", settings)
    service(url, *export)
    files = ("-f", fixed, "-f", settings)
    subprocess.run([str(HAPROXY), "-c", "-q", *files], check=True)

    master = directory / "master.sock"
    with running(str(HAPROXY), "-W", "-S", master, *files) as haproxy:
        reload = f"exec {sys.executable} {directory}/reload.py {haproxy.pid} {master}"
        follow = ("--follow", "--interval", "0.1s", "--exec", reload)
        words = (sys.executable, "-m", "mesos_gpu", "--url", url, "service", *export, *follow)
        with running(*words):
            wait_until("HAProxy serves", lambda: serves(port, "a1") and serves(shop, "blue"))
            with Load(port) as web, Load(shop) as shopping:
                # a rolling update, and blue/green at the same time
                call("PUT", f"{url}/v2/apps/a", 200, json=app(directory, "/a", "a2", 2))
                call("POST", f"{url}/v2/apps", 201, json=colours(directory, "green", shop))
                settled(url)
                wait_until("green serves alone", lambda: apps_of(url) == {"/green"})
                call("DELETE", f"{url}/v2/apps/blue")

                service(url, "split", "web", "/a=90", "/b=10")
                wait_until("b has its share", lambda: serves(port, "b"))
                before = Counter(web.answers)
                answers = Counter(ask(port) for _ in range(200))
                answers += web.answers - before
                steps = ("shift", "web", "--from", "/a", "--to", "/b", "--step", "50", "--interval", "0.5s")
                said = service(url, *steps)
                wait_until("b serves alone", lambda: {ask(port) for _ in range(20)} == {"b"})
                settled(url)
                assert ask(shop) == "green"
            assert (web.failures, shopping.failures) == ([], [])
            assert (set(web.answers), set(shopping.answers)) == ({"a1", "a2", "b"}, {"blue", "green"})
            assert min(web.answers.total(), shopping.answers.total()) > 200
            assert answers["a2"] + answers["b"] == answers.total()
            assert (
                0.08 <= answers["b"] / answers.total() <= 0.12
            )  # HAProxy deals in turns: there is no chance in it
            assert said.splitlines() == ["/a=40 /b=60", "/a=0 /b=100"]
    for id in ("a", "b", "green"):
        call("DELETE", f"{url}/v2/apps/{id}")
    settled(url)


def serves(port: int, version: str) -> bool:
    try:
        return version in {ask(port) for _ in range(20)}
    except (OSError, http.client.HTTPException):
        return False


def apps_of(url: str) -> set[str]:
    """The apps that serve the shop."""
    services = call("GET", f"{url}/v1/services?group=test")["services"]
    return {server["app"] for each in services if each["asked"] is None for server in each["servers"]}
