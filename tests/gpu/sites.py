"""Where tests of cards run: on a card of this host, and on a double of the driver, which proves their code."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.policy.sharing.windows import Window
from tests.cuda import Program
from volumes.keys import REPLACED

MIB = 1 << 20
CHUNK_MIB = 64
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
Record = Callable[[str, object], None]  # keep what was measured, by its name


class RealTask:
    """A task with a share of the card, with our libraries before the driver's own."""

    def __init__(self, path: Path, region: Region, env: Mapping[str, str]) -> None:
        """`env`: of its programs."""
        self.path, self.region, self.env = path, region, env

    def program(self, way: str = "gpa", **env: str) -> Program:
        """Start a program in it."""
        return Program({**self.env, **env}, way)


@dataclass(frozen=True)
class Site:
    """A card, and tasks on it.

    Attributes:
        card: The first of the host's.
        is_real: Whether figures mean something; a double's kernels sleep.
        libraries: Copies of the driver's, by their names.
        others: Where the driver's other libraries are, as LD_LIBRARY_PATH has it.
        ours: Our own, by the same names.
        path: For tasks.
        env: Of programs.
        read: What the driver says of the card now.
    """

    card: Gpu
    is_real: bool
    libraries: Mapping[str, Path]
    others: str
    ours: Mapping[str, str]
    path: Path
    env: Mapping[str, str]
    read: Callable[[], Reading]

    def task(self, memory_mib: int | None = None, window: Window | None = None) -> RealTask:
        """Make a task with so many MiB of the card; without: one with the driver's libraries alone."""
        path = self.path / f"task{len(list(self.path.glob('task*'))) + 1}"
        lib64 = path / "lib64"
        lib64.mkdir(parents=True)
        for _, name, real in REPLACED:
            if memory_mib is None:
                (lib64 / name).symlink_to(self.libraries[name])
            else:
                (lib64 / name).write_bytes(Path(self.ours[name]).read_bytes())
                os.link(self.libraries[name], lib64 / real)  # a file, as in a driver volume
        region = Region(path / "region")
        if memory_mib is not None:
            region.create([CardLimits(self.card.id, memory_mib * MIB, window=window)])
        return RealTask(path, region, {**self.env, "LD_LIBRARY_PATH": f"{lib64}:{self.others}"})

    def bare(self) -> Program:
        """Start a program that finds the driver's libraries as programs of this host do."""
        if self.is_real:
            return Program({**os.environ, "CUDA_VISIBLE_DEVICES": self.card.id}, "gpa")
        return self.task().program()

    @property
    def whole_mib(self) -> int:
        """All memory of the card that tasks may have."""
        return self.card.sharing.memory_mib if self.card.sharing is not None else self.card.memory_mib

    def time_s(self, real_s: float) -> float:
        """How long something is done: long enough to measure it, or to prove that it runs."""
        return real_s if self.is_real else real_s / 20


@dataclass(frozen=True)
class Mps:
    """Clients of an MPS daemon, and its control program.

    Attributes:
        env: Of clients.
        control: The program.
        is_real: As of `Site`.
        compute_capability: The card's.
    """

    env: Mapping[str, str]
    control: str
    is_real: bool = False
    compute_capability: str | None = None

    def program(self, percentage: int | None = None) -> Program:
        """Start a client, with so many percent of the card."""
        own = {} if percentage is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
        return Program({**self.env, **own}, "gpa")

    def servers(self) -> list[str]:
        """The pids of the daemon's servers."""
        return self.answer("get_server_list").split()

    def answer(self, command: str) -> str:
        """What the daemon answers to a command; "": nothing."""
        try:
            done = subprocess.run(
                [self.control],
                env=dict(self.env),
                input=f"{command}\n",
                text=True,
                capture_output=True,
                timeout=30,
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def log(self, name: str) -> str:
        """The end of a log; "": there is none."""
        path = Path(self.env["CUDA_MPS_LOG_DIRECTORY"], name)
        return "\n".join(path.read_text(errors="replace").splitlines()[-30:]) if path.exists() else ""


def ready(program: Program) -> Program:
    """A program that has started, and has its kernels."""
    assert program.started == "0", program.said()
    assert program.ask("load()") == "0", program.said()
    return program
