"""Programs that use CUDA, as tests have them: they evaluate expressions, one after the other."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import pytest

from isolator.shares.shim import build, sources
from isolator.shares.shim.region import CardLimits, CardUsage, Region, uuid_bytes
from mesos_gpu.model.ids import GpuId
from mesos_gpu.policy.sharing.windows import Window
from tests.doubles import cuda as doubles
from tests.doubles.cuda import MIB, Cards, Host, compile_stubs
from tests.doubles.elf_files import driver_tree
from volumes.build import make
from volumes.shim import Shim

UUID_AT: Final = 32  # of the file that is a card
PROGRAM: Final = Path(__file__).with_name("program.py")
_KEPT: Final = Path(__file__).parent / "__pycache__"


class Program:
    """A process that evaluates expressions over the names of program.py."""

    def __init__(
        self, env: Mapping[str, str], way: str, script: Path = PROGRAM, python: str = sys.executable
    ) -> None:
        """Start it; `started` is its first line: what cuInit answered."""
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  it is closed with the program
        self._process = subprocess.Popen(
            [python, str(script), way],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid
        self.started = self.hear()

    def ask(self, expression: str) -> str:
        """Evaluate, and wait for the answer."""
        self.tell(expression)
        return self.hear()

    def tell(self, expression: str) -> None:
        """Have it evaluated; `hear` brings the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """The next answer; empty: it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def said(self) -> str:
        """What it wrote to stderr so far."""
        self._stderr.seek(0)
        return self._stderr.read()

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self._process.kill()
        self._process.wait(30)

    def __enter__(self) -> Self:
        """Give the program."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


class Bench:
    """Our libraries and the doubles of the driver's, compiled; and cards on which tasks have shares."""

    def __init__(self, path: Path, stubs: Path, ours: Mapping[str, str]) -> None:
        """Make one card."""
        self._path, self._stubs, self._ours = path, stubs, ours
        self.cards = Cards(path / "cards")
        self._tasks = 0

    def task(
        self,
        memory_mib: int = 1000,
        *,
        card: int = 0,
        context_mib: int = 0,
        window: Window | None = None,
    ) -> "Task":
        """Give a new task a share of a card."""
        limits = CardLimits(GpuId(self.cards.uuid(card)), memory_mib * MIB, context_mib * MIB, window=window)
        return self.task_of([limits])

    def task_of(self, limits: list[CardLimits]) -> "Task":
        """Give a new task these shares."""
        self._tasks += 1
        host = Host(self._path / f"task{self._tasks}", self._stubs, self.cards, self._ours)
        region = Region(host.region)
        region.create(limits)
        return Task(host, region, limits)

    def bare(self) -> Host:
        """Have a task without our libraries."""
        self._tasks += 1
        return Host(self._path / f"task{self._tasks}", self._stubs, self.cards)


class Task:
    """A task with a share."""

    def __init__(self, host: Host, region: Region, limits: list[CardLimits]) -> None:
        """`limits`: what it was given first."""
        self.host, self.region = host, region
        self.gpus = [each.gpu for each in limits]

    def program(self, way: str = "gpa", **env: str) -> Program:
        """Start a program in it."""
        return Program(self.host.env(**env), way)

    def usage(self, number: int = 0) -> CardUsage:
        """What it says of its cards."""
        usage = self.region.usage(self.gpus)
        assert usage.problem == ""
        return usage.cards[self.gpus[number]]


def compiler_or_skip() -> list[str]:
    """The compiler of this host; the test is skipped where there is none."""
    command = build.compiler({})
    if command is None or not shutil.which(command[0]):
        pytest.skip("no C compiler (gcc, libc6-dev)")
    return command


def volume_of_doubles(store: Path, root: Path, version: str, stubs: Path, ours: Mapping[str, str]) -> None:
    """Build the volume for shares of a driver that is the doubles. `root`: made, with what a host has of the driver."""
    driver_tree(root, version)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        path = root / f"usr/lib/x86_64-linux-gnu/{name}.{version}"
        path.unlink()
        shutil.copy(stubs / f"{name}.1", path)
    shim = Shim(sources.digest(), ours["libcuda.so.1"], ours["libnvidia-ml.so.1"])
    make(store, root, version, shim=shim)


def card_of(path: Path, gpu: GpuId) -> Cards:
    """Make a card of that UUID, which every user may use."""
    cards = Cards(path)
    card = path / "card0"
    content = card.read_bytes()
    card.write_bytes(content[:UUID_AT] + uuid_bytes(gpu) + content[UUID_AT + 16 :])
    card.chmod(0o666)
    return cards


def compiled(path: Path) -> tuple[Path, dict[str, str]]:
    """Copy the doubles of the driver's libraries, and ours, to a directory; they are compiled once for all processes
    of a checkout and for each content of their sources.

    Returns:
        The directory of the doubles, and paths of our files by their names.
    """
    shutil.copytree(_kept(compiler_or_skip()), path, dirs_exist_ok=True)
    return path, {name: str(path / "ours" / name) for name in build.FILES}


def _kept(command: Sequence[str]) -> Path:
    """Compile the libraries unless another process has done it."""
    _KEPT.mkdir(exist_ok=True)
    kept = _KEPT / f"libraries-{_digest(command)}"
    with open(_KEPT / "libraries.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            for old in _KEPT.glob("libraries-*"):
                shutil.rmtree(old)
            part = _KEPT / "libraries-part"
            compile_stubs(part, command)
            build.compile_into(part / "ours", command)
            part.rename(kept)
    return kept


def _digest(command: Sequence[str]) -> str:
    """Return the digest of all that decides what is compiled."""
    digest = hashlib.blake2b(f"{command} {sources.digest()}".encode(), digest_size=16)
    program = Path(shutil.which(command[0]) or command[0]).resolve()
    digest.update(f"{program} {program.stat().st_mtime_ns}".encode())
    for source in (Path(build.__file__), *sorted(doubles.HERE.glob("*.[chp]*"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()
