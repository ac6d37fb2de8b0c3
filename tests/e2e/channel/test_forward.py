"""Ports of running jobs on this machine: many connections over one channel, each by itself, and nowhere else."""

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

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until
from tests.e2e.channel.test_exec import EVERY_BYTE, rights_of

pytestmark = [pytest.mark.cluster]
#: Says back what it gets, up to its end; of "never" nothing is ever read.
ECHO = """
import os, socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    rbufsize = 0
    def handle(self):
        data = self.rfile.read(5)
        if data == b"never":
            self.server.held.append(self.request.dup())
            return
        while data:
            self.wfile.write(data)
            data = self.request.recv(65536)
    def finish(self):
        pass
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    held = []
with Server(("127.0.0.1", int(os.environ["PORT0"])), Echo) as server:
    print(server.server_address[1], os.getpid(), flush=True)
    server.serve_forever()
"""


class Server:
    """A job that listens. `port`: where, on its host; `pid`: its process."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        with Client(stack.url) as client:
            command = f"exec python3 -c {shlex.quote(ECHO)}"
            asked = {"name": "echo", "command": command, "ports": [0], "cpus": 0.1, "mem_mib": 128}
            self.job = client.submit(asked)["id"]

            def said() -> str:
                return str(client.logs(self.job, stream="stdout", offset=0, length=99)["data"])

            wait_until("it listens", lambda: client.job(self.job)["state"] == "running" and "\n" in said())
            self.port, self.pid = map(int, said().split())

    def beside(self) -> list[Path]:
        """What of ours is in the job's cgroups."""
        cgroups = Path(f"/proc/{self.pid}/cgroup").read_bytes()
        ours = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                process = Path("/proc", name)
                if (process / "cgroup").read_bytes() == cgroups and b"joined.py" in (
                    process / "cmdline"
                ).read_bytes():
                    ours.append(process)
        return ours

    @contextlib.contextmanager
    def forwarded(self, *ports: int, code: int = 130) -> "Iterator[tuple[list[int], subprocess.Popen[str]]]":
        """Where its ports are reached here, and the command; its exit code after Ctrl-C."""
        words = [sys.executable, "-m", "mesos_gpu", "port-forward", "--url", self.stack.url, self.job]
        given = [f"0:{port}" for port in ports]
        with subprocess.Popen([*words, *given], stderr=subprocess.PIPE, text=True) as ran:
            try:
                assert ran.stderr is not None
                lines = [ran.stderr.readline() for _ in ports]
                matches = [re.search(r"127\.0\.0\.1:(\d+) forwards to port", line) for line in lines]
                assert all(matches), lines
                yield [int(each[1]) for each in matches if each], ran
                ran.send_signal(signal.SIGINT)
                assert ran.wait(60) == code
            finally:
                ran.kill()


@pytest.fixture(scope="module")
def server(stack: Stack) -> Iterator[Server]:
    server = Server(stack)
    yield server
    with Client(stack.url) as client:
        client.kill(server.job)
        wait_until("it has ended", lambda: client.job(server.job)["ended_at"])


def echoed(port: int, data: bytes) -> bytes:
    """What comes back, up to the end; all of it is sent first, by a thread of its own."""
    with socket.create_connection(("127.0.0.1", port), 60) as line:

        def send() -> None:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        got = b"".join(iter(lambda: line.recv(1 << 16), b""))
        sender.join()
        return got


def test_forward_carries_every_byte_and_a_stuck_connection_delays_no_other(
    server: Server,
) -> None:
    data = EVERY_BYTE * 8192  # 2 MiB: more than any window
    with server.forwarded(server.port) as ([here], _):
        with socket.create_connection(("127.0.0.1", here), 60) as stuck:
            stuck.settimeout(1.0)
            stuck.sendall(b"never")
            sent = 0
            with contextlib.suppress(TimeoutError):
                while True:
                    sent += stuck.send(bytes(1 << 16))
            assert sent < 64 << 20  # it is held back here, not kept somewhere
            results: list[bytes] = []
            threads = [threading.Thread(target=lambda: results.append(echoed(here, data))) for _ in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert [each == data for each in results] == [True] * 8
        assert echoed(here, b"after it") == b"after it"


def test_forward_to_a_closed_port_is_reported_and_others_go_on(server: Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        with server.forwarded(closed.getsockname()[1], server.port) as ([nobody, here], ran):
            assert echoed(nobody, b"") == b""
            assert ran.stderr is not None
            assert "Connection refused" in ran.stderr.readline()
            assert echoed(here, b"still there") == b"still there"


def test_forward_reaches_nothing_that_is_denied_to_the_job(server: Server) -> None:
    with server.forwarded(server.stack.cluster.master.port) as ([here], ran):
        assert echoed(here, b"") == b""
        assert ran.stderr is not None
        assert "not permitted" in ran.stderr.readline()


def test_forward_has_the_rights_of_the_job_and_ends_with_its_client(server: Server) -> None:
    with server.forwarded(server.port, code=-signal.SIGKILL) as ([here], ran):
        assert echoed(here, b"it is there") == b"it is there"
        [carrier] = server.beside()
        job = rights_of(Path(f"/proc/{server.pid}"))
        assert rights_of(carrier) == job
        root = os.stat(carrier / "mem").st_uid  # no process of the job may look into it (proc_pid(5))
        assert root == 0 or os.geteuid() != 0
        ran.kill()
    wait_until("nothing is left", lambda: not server.beside())
