"""Services with limits behind a real HAProxy: who is let through, and to which paths."""

import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.model.apps.split import Backend, Login, Server
from mesos_gpu.wire.export import haproxy
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon

HAPROXY = shutil.which("haproxy")
#: "secret", by SHA-256 of crypt(3) with few rounds.
LOGIN = Login("Our realm", "ann", "$5$rounds=1000$saltsalt$eKLZU9t9OoPWrqOQsoTIKG0aYkZ5rGOoOQhiIvoSWX2")
LABELS = {"HAPROXY_GROUP": "external", "HAPROXY_0_PORT": "9000"}


class _Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.fixture
def task() -> Iterator[Server]:
    """A task that answers each request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Server("t.1", "/a", "127.0.0.1", server.server_port, 256)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(HAPROXY is None, reason="no haproxy: apt-get install haproxy")
def test_haproxy_keeps_to_the_limits_of_services(task: Server, tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("open", "login", "https", "path", "hosts")}
    shares = {"/a": 1}
    backends = [
        Backend("open", port=ports["open"], servers=(task,), shares=shares),
        Backend("login", port=ports["login"], login=LOGIN, servers=(task,), shares=shares),
        Backend("https", port=ports["https"], https_only=True, servers=(task,), shares=shares),
        Backend(
            "path", port=ports["path"], hosts=("h.example",), path="/api", servers=(task,), shares=shares
        ),
        Backend("left", port=free_port(), left_out="its limit is not known", servers=(task,), shares=shares),
    ]
    file = tmp_path / "haproxy.cfg"
    file.write_text("global\n" + haproxy.render(backends, http_port=ports["hosts"]))
    process = subprocess.Popen([str(HAPROXY), "-db", "-f", str(file)], stderr=subprocess.DEVNULL)

    def status(name: str, path: str = "/", **how: object) -> int:
        url = f"http://127.0.0.1:{ports[name]}{path}"
        return requests.get(url, timeout=20, allow_redirects=False, **how).status_code  # type: ignore[arg-type]

    def serves() -> bool:
        try:
            return status("open") == 200
        except requests.ConnectionError:
            return False

    try:
        wait_until("HAProxy serves", serves, 30)
        assert [status("login"), status("login", auth=("ann", "wrong"))] == [401, 401]
        assert status("login", auth=("ann", "secret")) == 200
        assert status("https") == 301
        assert [status("path", "/api/x"), status("path", "/other")] == [200, 503]
        host = {"Host": "h.example"}
        assert [status("hosts", path, headers=host) for path in ("/api", "/")] == [200, 503]
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://127.0.0.1:{backends[-1].port}/", timeout=20)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def test_service_that_is_left_out_is_named_by_list_and_export(rig: Marathon, tmp_path: Path) -> None:
    rig.create("/open", labels={**LABELS, "HAPROXY_0_PORT": "9001"})
    rig.create("/a", labels={**LABELS, "HAPROXY_0_BACKEND_NETWORK_ALLOWED_ACL": "10.0.0.0/8"})
    rig.create("/off", labels={**LABELS, "HAPROXY_0_PORT": "9002", "HAPROXY_0_ENABLED": "false"})
    for id in ("/open", "/a", "/off"):
        rig.tasks(id, 1)

    def run(*words: str) -> tuple[str, str]:
        done = CliRunner().invoke(main, ["--url", rig.url, "service", *words], prog_name="mesos-gpu")
        assert done.exit_code == 0, done.output
        return done.stdout, done.stderr

    listed, told = run("list", "--group", "*")
    by_name = {line.split()[0]: "left out" in line for line in listed.splitlines()[1:]}
    assert by_name == {"a_9000": True, "off_9002": True, "open_9001": False}
    assert "service a_9000 is not exported: /a: HAPROXY_0_BACKEND_NETWORK_ALLOWED_ACL" in told
    assert "service off_9002 is not exported: HAPROXY_n_ENABLED is false" in told
    text, told = run("export", "--format", "haproxy", "--group", "*")
    assert "backend open_9001" in text
    assert "backend a_9000" not in text
    assert "# a_9000 is left out: " in text
    assert told.count("is not exported") == 2
    run("split", "web", "/open=1", "/a=1", "--port", "9009")
    assert "service web is not exported" in run("show", "web")[1]
    assert "backend web" not in run("export", "web", "--format", "haproxy")[0]
