"""An executor as a process on a host of its own, with a scripted agent: for tests of what it does."""

import base64
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isolator.agent.agent_api import TERMINAL
from isolator.agent.commands import executor_command
from isolator.devices.facts import write_inventory
from isolator.gpus.ledger import Holding, Ledger
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.mesos.assignment import decode_outcome, encode
from tests.doubles.elf_files import driver_tree
from tests.doubles.scripted_agent import ScriptedAgent
from volumes.build import make

#: Of this process alone: what is left of a task is found by its id, anywhere on the machine.
TASK = f"job-1.{os.getpid()}"
GPUS = (GpuId("GPU-a"), GpuId("GPU-b"))
INVENTORY = Inventory(
    tuple(
        Gpu(id=gpu, model="sim", memory_mib=1, minor=minor, pci_bus_id="", health=Health.OK)
        for minor, gpu in enumerate(GPUS)
    ),
    source="simulated",
)


def changed_executor(code: str) -> str:
    """The command of an executor in which this code runs first; the module of the executor is `executor` there."""
    root = str(Path(__file__).parents[1])
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from isolator.executor import main as executor\n"
        f"{code}\nsys.exit(executor.main())"
    )
    return f"exec {shlex.quote(os.path.realpath(sys.executable))} -IS -c {shlex.quote(code)}"


def driver_volume(store: Path, version: str) -> Path:
    """A host's volume of that driver, built from small files."""
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store.parent) as root:
        driver_tree(Path(root), version)
        return make(store, Path(root)).path


@dataclass
class Host:
    """An executor on a host of its own, with its agent."""

    agent: ScriptedAgent
    sandbox: Path
    process: "subprocess.Popen[bytes]"
    ledger: Ledger
    task: str = TASK
    ports: tuple[int, int] | None = None  # first and last that the task gets

    def launch(self, command: str | None = "true", **assignment: Any) -> None:
        self.send_task(encode(Assignment(job_id="job-1", attempt=2, command=command, **assignment)))

    def send_task(self, data: bytes) -> None:
        task: dict[str, Any] = {"task_id": {"value": self.task}, "data": base64.b64encode(data).decode()}
        if self.ports is not None:
            ranges = {"range": [{"begin": self.ports[0], "end": self.ports[1]}]}
            task["resources"] = [{"name": "ports", "type": "RANGES", "ranges": ranges}]
        self.agent.send({"type": "LAUNCH", "launch": {"task": task}})

    def kill(self, task: str = "", *, grace_s: float | None = None) -> None:
        event: dict[str, Any] = {"task_id": {"value": task or self.task}}
        if grace_s is not None:
            event["kill_policy"] = {"grace_period": {"nanoseconds": int(grace_s * 1e9)}}
        self.agent.send({"type": "KILL", "kill": event})

    def states(self) -> list[str]:
        return self.agent.states(self.task)

    def update(self, state: str) -> tuple[str, bytes]:
        """Message and data of the first update of that state; waited for."""
        self.agent.wait_for(lambda: {state, *TERMINAL} & set(self.states()))
        assert state in self.states(), f"{self.agent.updates}\n{self.stdout()}{self.stderr()}"
        status = next(status for status in self.agent.updates if status["state"] == state)
        return status.get("message", ""), base64.b64decode(status.get("data", ""))

    def end(self, state: str) -> tuple[str, Outcome]:
        """Message and outcome of the last update; the executor has ended, and its task holds nothing."""
        message, data = self.update(state)
        assert self.process.wait(60) == 0
        assert self.held() == []
        return message, decode_outcome(data)

    def held(self) -> list[Holding]:
        """Return what this executor holds of the host, not what others of the same task's name have left."""
        return [each for each in self.ledger.holdings() if each.owner.pid == self.process.pid]

    def stderr(self) -> str:
        return (self.sandbox / "stderr").read_text()

    def stdout(self) -> str:
        return (self.sandbox / "stdout").read_text()


@contextmanager
def host(
    directory: Path,
    agent: ScriptedAgent,
    *,
    task: str = TASK,
    prefix: str = "",
    container: str = "",
    **env: str,
) -> Iterator[Host]:
    """Start an executor as Mesos does: in the sandbox, with its streams there, from a shell command with `prefix`
    before it."""
    sandbox, node = directory / (container or f"sandbox-{time.monotonic_ns()}"), directory / "node"
    sandbox.mkdir()
    write_inventory(node, INVENTORY)
    given = {
        "PATH": os.environ["PATH"], "MESOS_EXECUTOR_ID": task, "MESOS_GPU_NODE_DIR": str(node),
        "MESOS_GPU_ALLOW_ROOT": "host", "MESOS_GPU_ISOLATION": "auto" if os.geteuid() == 0 else "off", **env,
    }  # fmt: skip
    with open(sandbox / "stdout", "ab") as out, open(sandbox / "stderr", "ab") as err:
        process = subprocess.Popen(
            ["/bin/sh", "-c", prefix + executor_command()],
            env=agent.environment(str(sandbox), **given),
            cwd=sandbox,
            stdout=out,
            stderr=err,
        )
    try:
        yield Host(agent, sandbox, process, Ledger(node / "ledger.sqlite"), task)
    finally:
        if process.poll() is None:
            process.terminate()  # not SIGKILL: what runs below a test that failed goes, too
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()


@contextmanager
def memory_directory() -> Iterator[Path]:
    """Make a directory in memory: a file there costs a tenth of the system time of one on a disk. Where programs in
    memory cannot be executed it is on a disk."""
    memory = Path("/dev/shm")
    fits = memory.is_dir() and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    with tempfile.TemporaryDirectory(dir=memory if fits else None) as path:
        yield Path(path)


def small_tree(root: Path, version: str, kernel: str = "") -> None:
    """Fill a directory with the fewest files that a driver has on a host."""
    driver_tree(root, version, machine="aarch64", kernel=kernel, beside=False)
    for path in root.glob(f"usr/lib/aarch64-linux-gnu/*.so.{version}"):
        if not path.name.startswith(("libcuda", "libnvidia-ml.", "libnvcuvid.", "libnvidia-ptxjit")):
            path.unlink()
