"""`mesos-gpu mesos master` and `agent` that are reached at other addresses than they listen at."""

import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.processes import get_json, poll

pytestmark = pytest.mark.cluster
HERE, TOLD = "127.0.0.1", "127.0.0.2"


class _Translated(socketserver.BaseRequestHandler):
    """A connection that is passed on to another address, and back."""

    def handle(self) -> None:
        assert isinstance(self.server, _Translation)
        with socket.create_connection((HERE, self.server.to)) as there:
            back = threading.Thread(target=_copied, args=(there, self.request))
            back.start()
            _copied(self.request, there)
            back.join()


def _copied(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class _Translation(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, to: int) -> None:
        super().__init__((TOLD, 0), _Translated)
        self.to, self.port = to, int(self.server_address[1])


@contextmanager
def service(directory: Path, kind: str, port: int, *flags: str) -> Iterator[int]:
    """A master or an agent that listens at a port, and tells others another address; the port there."""
    directory.mkdir()
    with _Translation(port) as translation, (directory / "log").open("wb") as log:
        threading.Thread(target=translation.serve_forever, daemon=True).start()
        words = [
            *(sys.executable, "-m", "mesos_gpu", "mesos", kind, f"--ip={HERE}", f"--port={port}"),
            *(f"--advertise_ip={TOLD}", f"--advertise_port={translation.port}", f"--hostname={TOLD}"),
            *(f"--work_dir={directory / 'work'}", *flags),
        ]
        with subprocess.Popen(words, stdout=log, stderr=log) as process:
            try:
                yield translation.port
            except Exception as error:
                error.add_note((directory / "log").read_text()[-3000:])
                raise
            finally:
                process.kill()
                translation.shutdown()


def state_of(port: int, path: str = "/state") -> Any:
    with suppress(OSError, ValueError):
        return get_json(TOLD, port, path)
    return None


def test_advertised_addresses_of_master_and_agent_are_those_they_use(open_directory: Path) -> None:
    first, second = free_port(HERE), free_port(HERE)
    with ExitStack() as both:
        master = both.enter_context(service(open_directory / "master", "master", first, "--quorum=1"))
        state = poll("the master, where it says that it is", lambda: state_of(master))
        assert state["pid"] == f"master@{TOLD}:{master}"
        agent = both.enter_context(
            service(
                open_directory / "agent", "agent", second, f"--master={TOLD}:{master}", "--launcher=posix",
                "--isolation=posix/cpu,posix/mem", "--no-systemd_enable_support", "--resources=cpus:1;mem:64",
                f"--runtime_dir={open_directory / 'run'}", f"--fetcher_cache_dir={open_directory / 'fetch'}",
            )
        )  # fmt: skip
        known = poll("the agent registers", lambda: (state_of(master, "/slaves") or {}).get("slaves"))
        assert [(each["pid"], each["port"]) for each in known] == [(f"slave(1)@{TOLD}:{agent}", agent)]
        assert poll("the agent there", lambda: state_of(agent))["pid"] == f"slave(1)@{TOLD}:{agent}"
