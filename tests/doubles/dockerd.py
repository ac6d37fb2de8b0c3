"""A Docker Engine for one test, with its own containerd, images and cgroups; nothing remains after its end.

Containerd is a process beside the engine, as on a host, so that containers can outlive the engine.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_CONTAINERD: Final = """version = 2
root = "{at}/containerd"
state = "{at}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{at}/containerd.sock"
"""

PREFIX: Final = "mesos-gpu-docker-"  # of the names of engines' directories


def missing() -> str:
    """Return what this host lacks for a Docker Engine and its images, or an empty text."""
    if os.geteuid() != 0:
        return "a Docker Engine needs root"
    lacking = [name for name in ("dockerd", "containerd", "runc", "busybox") if shutil.which(name) is None]
    if "busybox" not in lacking and b"/lib64/ld-linux" in busybox().read_bytes():
        lacking.append("a static busybox")
    return f"not installed: {', '.join(lacking)} (scripts/install_test_tools.sh)" if lacking else ""


def busybox() -> Path:
    """Return the path of the host's busybox, which test images contain."""
    return Path(shutil.which("busybox") or "/bin/busybox")


class Dockerd:
    """A Docker Engine that a context manager starts and removes; needs root and an empty `missing()`."""

    def __init__(
        self,
        *flags: str,
        bridged: bool = False,
        left: Path | None = None,
        inside: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        """Make the directory of an engine.

        Args:
            flags: Further options of dockerd.
            bridged: Whether containers can have a bridge network; needs `ip`.
            left: Directory of an engine whose test was killed, to `close` that engine; None for a new engine.
            inside: Function that wraps a command to run in the network namespace of the engine, as `Host.inside`.
        """
        self.directory = left or Path(tempfile.mkdtemp(prefix=PREFIX))
        self.directory.chmod(0o755)
        self.socket = self.directory / "docker.sock"
        self.cgroup = "/" + self.directory.name  # containers are below it unless they say otherwise
        self._flags, self._inside = flags, inside
        self._bridge = f"mg-{self.directory.name[-8:]}" if bridged else "none"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start containerd and dockerd, and wait until dockerd answers.

        Raises:
            RuntimeError: A process has ended, or does not answer; the message has the end of its log.
        """
        at, engine = self.directory, self.directory / "containerd.sock"
        if not self._runs("containerd"):
            (at / "containerd.toml").write_text(_CONTAINERD.format(at=at))
            self._start("containerd", "--config", at / "containerd.toml")
            self._until("containerd", engine.exists)
        (at / "daemon.json").write_text("{}")  # not the host's
        command: list[str | Path] = ["--host", f"unix://{self.socket}", "--containerd", engine]
        command += ["--config-file", at / "daemon.json"]
        command += ["--data-root", at / "data", "--exec-root", at / "exec", "--pidfile", at / "pid"]
        if self._bridge != "none" and not self._has_bridge():
            self._make_bridge()
        command += ["--iptables=false", "--ip-masq=false", "--ip-forward=false", "--bridge", self._bridge]
        command += ["--cgroup-parent", self.cgroup]
        self._start("dockerd", *command, "--exec-opt", "native.cgroupdriver=cgroupfs", *self._flags)
        self._until("dockerd", self._answers)

    def _make_bridge(self) -> None:
        """Create a bridge with a name and subnet of this engine: other tests may have engines at the same time."""
        place = zlib.crc32(self._bridge.encode())
        subnet = f"10.{200 + place % 50}.{place // 50 % 256}.1/24"
        self._ip("link", "add", self._bridge, "type", "bridge")
        self._ip("addr", "add", subnet, "dev", self._bridge)
        self._ip("link", "set", self._bridge, "up")

    def _has_bridge(self) -> bool:
        words = self._inside(["ip", "link", "show", self._bridge])
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def _ip(self, *words: str) -> None:
        subprocess.run(self._inside(["ip", *words]), check=True, capture_output=True)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End dockerd by a signal and wait for its end; `start` may be called again."""
        self._end("dockerd", number)
        (self.directory / "pid").unlink(missing_ok=True)

    def ask(self, method: str, path: str, body: bytes = b"", **header: str) -> Any:
        """Send a request to the engine's API; an underscore in the name of a header field stands for a dash.

        Raises:
            RuntimeError: The engine answers with an error.
        """
        connection = _UnixConnection(self.socket)
        try:
            fields = {name.replace("_", "-"): value for name, value in header.items()}
            connection.request(method, path, body, {"Content-Type": "application/json", **fields})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text) if text.startswith((b"{", b"[")) and b"\n{" not in text else text

    def load(self, archive: Path) -> None:
        """Load the images of an archive in the format of `docker save` (tests.doubles.images).

        Raises:
            RuntimeError: The engine cannot load the archive.
        """
        told = self.ask("POST", "/images/load", archive.read_bytes())
        if "Loaded image" not in str(told):
            raise RuntimeError(f"{archive} cannot be loaded: {told}")

    def load_all(self, directory: Path) -> None:
        """Load each archive below a directory, as `load` does."""
        for archive in sorted(directory.rglob("*.tar")):
            self.load(archive)

    def close(self) -> None:
        """End all containers and the engine, and remove every file, mount and cgroup of it."""
        if self._runs("dockerd"):
            with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
                for entry in self.ask("GET", "/containers/json?all=1"):
                    self.ask("DELETE", f"/containers/{entry['Id']}?force=1&v=1")
        self.end()
        self._end("containerd", signal.SIGTERM)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for point in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", point], check=False)
        deadline = time.monotonic() + 20
        while (left := self.cgroups()) and time.monotonic() < deadline:
            for path in reversed(left):
                with contextlib.suppress(OSError):  # what was in it is still ending
                    path.rmdir()
        if self._bridge != "none" and self._has_bridge():
            self._ip("link", "del", self._bridge)
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        """Return the pids of the engine, of shims and of containers.

        The engine and the shims have the engine's directory in their command lines.
        """
        pids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.directory) in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
        for path in self.cgroups():
            with contextlib.suppress(OSError):
                pids += map(int, (path / "cgroup.procs").read_text().split())
        return sorted({pid for pid in pids if pid != os.getpid()})

    def mounts(self) -> list[str]:
        """Return the mount points below the engine's directory, outermost first."""
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return [point for point in points if Path(point).is_relative_to(self.directory)]

    def cgroups(self) -> list[Path]:
        """Return the cgroups of the engine in every hierarchy, outermost first."""
        directories = []
        for line in Path("/proc/self/mounts").read_text().splitlines():
            point, kind = line.split()[1:3]
            if kind in ("cgroup", "cgroup2"):
                directories += [Path(path) for path, _, _ in os.walk(point + self.cgroup)]
        return directories

    def _start(self, name: str, *arguments: str | Path) -> None:
        with (self.directory / "log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._inside([name, *map(str, arguments)]), stdout=log, stderr=log, start_new_session=True
            )

    def _runs(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def _until(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not ready():
            if not self._runs(name) or time.monotonic() > deadline:
                log = (self.directory / "log").read_text(errors="replace")
                raise RuntimeError(f"{name} does not start: {log[-2000:]}")
            time.sleep(0.02)

    def _end(self, name: str, number: signal.Signals) -> None:
        if name in self._processes:
            process = self._processes.pop(name)
            process.send_signal(number)
            process.wait(30)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/_ping"))
        except (OSError, RuntimeError, http.client.HTTPException):
            return False


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
