"""Hosts for tests of MPS: NVIDIA's real daemon of 535 where no GPU is, fakes of daemons in the process of the test, and
bindings of NVML that have a GPU."""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isolator.shares.mps import daemon as mps
from isolator.shares.mps.compute_mode import Nvml
from isolator.shares.mps.daemon import Domain, Host
from mesos_gpu.adapters.mps_control import Control
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from tests.doubles.driver_packages import CURRENT, install
from tests.doubles.mps import fake_mps
from tests.kernel.conftest import needs

USER, OTHER = 65534, 65533
#: Stands for the module, in a directory of its own: `state.json` beside it has the compute mode.
PYNVML = """
import json, pathlib, time
_file = pathlib.Path(__file__).with_name("state.json")
class NVMLError(Exception): pass
def _state(): return json.loads(_file.read_text())
def nvmlInit():
    if _state().get("hang"): time.sleep(3600)
    if _state().get("broken"): raise NVMLError(_state()["broken"])
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetComputeMode(handle): return _state()["modes"].get(handle, 0)
def nvmlDeviceSetComputeMode(handle, mode):
    state = _state()
    if not state.get("deaf"): state["modes"][handle] = mode
    _file.write_text(json.dumps(state))
"""


class Bindings:
    """Bindings of NVML whose cards are a file."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "pynvml.py").write_text(PYNVML)
        self._file = directory / "state.json"
        self.nvml = Nvml(directory)
        self.set()

    def set(self, **state: Any) -> None:
        """Choose of `hang`, `broken` (a text) and `deaf`; the modes stay."""
        modes = json.loads(self._file.read_text())["modes"] if self._file.exists() else {}
        self._file.write_text(json.dumps({"modes": modes, **state}))

    def mode(self, gpu: str) -> int:
        """The card's compute mode; 0: the default."""
        modes = json.loads(self._file.read_text())["modes"]
        return int(modes.get(gpu, 0))


class Near:
    """The daemon of a fake in this process, and the side of its control program. A socket listens while it lives."""

    def __init__(self, pipes: Path, protocol: int) -> None:
        self._pipes, self._protocol = pipes, protocol
        self._daemon: fake_mps.Daemon2 | fake_mps.Daemon3 | None = None
        self._listener: socket.socket | None = None

    def start(self, percent: str) -> None:
        """Start it without settings. `percent`: of each client, by protocol 2."""
        pipes = str(self._pipes)
        self._daemon = fake_mps.Daemon3(pipes) if self._protocol == 3 else fake_mps.Daemon2(pipes, percent)
        self._listener = socket.socket(socket.AF_UNIX)
        (self._pipes / "control").unlink(missing_ok=True)
        self._listener.bind(f"{pipes}/control")
        self._listener.listen(128)

    def end(self) -> None:
        """End it, if it lives; its settings are lost."""
        if self._listener is not None:
            self._listener.close()
        self._daemon = self._listener = None

    def ask(self, commands: Iterable[str]) -> "subprocess.CompletedProcess[str]":
        """Give it commands, and return the exit code and output of the control program."""
        if self._daemon is None:
            return subprocess.CompletedProcess((), 1, "", "Cannot find MPS control daemon process\n")
        lines: list[str] = []
        for command in filter(None, map(str.strip, commands)):
            try:
                answer = self._daemon.answer(command)
            except SystemExit:
                self.end()
                break
            if answer and answer[0].startswith(fake_mps.REFUSED):
                return subprocess.CompletedProcess((), 1, "", answer[0].removeprefix(fake_mps.REFUSED))
            lines += answer
        return subprocess.CompletedProcess((), 0, "".join(f"{line}\n" for line in lines), "")


@dataclass(frozen=True, slots=True)
class NearControl(Control):
    """`Control` that runs no process."""

    near: Near | None = None

    def _run(
        self, arguments: tuple[str, ...], what: str, text: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        assert self.near is not None
        return self.near.ask([" ".join(arguments)] if arguments else text.splitlines())


def real_program(directory: Path) -> Path:
    """NVIDIA's control program, with its server and libcuda beside it; a test without it is skipped."""
    try:
        install(directory, CURRENT, only=("nvidia-cuda-mps", "libcuda1"))
    except Unavailable as error:
        pytest.skip(error.what)
    return directory / "usr/bin/nvidia-cuda-mps-control"


@contextmanager
def host_with(program: Path, bindings: Bindings) -> Iterator[Host]:
    """A host of its own, with nothing left of it afterwards."""
    needs("cgroup1")
    top = Path(f"/run/mesos-gpu-test-{os.getpid()}")
    libraries = program.parents[1] / "lib/x86_64-linux-gnu"
    host = Host(program, libraries if libraries.is_dir() else None, bindings.nvml, top / "mps")
    try:
        yield host
    finally:
        for note in host.root.glob("*.row"):
            mps.undo(host, note.read_text())
            note.unlink()
        assert [path.name for path in host.root.glob("*") if path.suffix != ".lock"] == []
        if top.exists():
            shutil.rmtree(top)


def domain_on(host: Host, uid: int = USER, protocol: int = 2) -> Domain:
    """A domain on a card that no other test has, noted as the ledger would, for the end."""
    domain = Domain(GpuId(f"GPU-{uuid.uuid4()}"), uid, protocol)
    host.root.mkdir(parents=True, exist_ok=True)
    (host.root / f"{domain.key}.row").write_text(str(domain))
    return domain


def daemon_of(host: Host, domain: Domain) -> int:
    """The pid of its daemon, by its cgroups: one process is there while no server is."""
    members = {pid for group in mps.own_cgroups(domain) for pid in _members(group.path)}
    assert len(members) == 1, members
    return members.pop()


def _members(path: Path) -> list[int]:
    file = path / "cgroup.procs"
    return list(map(int, file.read_text().split())) if file.exists() else []


PYTHON = sys.executable
