"""What tests with a GPU share. None of them changes a setting of the card: no MIG mode, no compute mode, no reset."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.gpus.probing import ChildProbe
from isolator.shares.shim import build
from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Survey
from tests.cuda import Program
from volumes.keys import REPLACED

MIB = 1 << 20
#: Loads a library and says from where.
_WHERE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/" in line and sys.argv[2] in line))
"""


@pytest.fixture(scope="session")
def survey() -> Iterator[Survey]:
    """Read NVML, in a child."""
    probe = ChildProbe()
    try:
        yield probe.survey()
    except MesosGpuError as error:
        pytest.skip(f"needs a GPU and its driver: {error.what}")
    finally:
        probe.close()


@pytest.fixture(scope="session")
def card(survey: Survey) -> Gpu:
    """The first card."""
    if not survey.readings:
        pytest.skip(f"needs a GPU and its driver: {survey.note}")
    return survey.readings[0].gpu


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    """The driver's libraries by their names."""
    files = {}
    for stem, name, _ in REPLACED:
        done = subprocess.run(
            [sys.executable, "-c", _WHERE, name, stem],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"needs {name} of the driver: {done.stderr.strip().splitlines()[-1]}")
        files[name] = Path(done.stdout.strip())
    return files


class RealTask:
    """A task with a share of the card, with our libraries before the driver's own."""

    def __init__(self, path: Path, region: Region, env: dict[str, str]) -> None:
        """`env`: of its programs."""
        self.path, self.region, self._env = path, region, env

    def program(self, way: str = "gpa") -> Program:
        """Start a program in it."""
        return Program(self._env, way)


MakeTask = Callable[..., RealTask]


@pytest.fixture
def task(card: Gpu, libraries: dict[str, Path], tmp_path: Path) -> MakeTask:
    """Make a task with so many MiB of the card; without: one with the driver's libraries alone."""
    if card.sharing is None or card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    try:
        ours = build.have({})
    except MesosGpuError as error:
        pytest.skip(f"needs a C compiler (gcc, libc6-dev): {error.what}")
    count = 0

    def make(memory_mib: int | None = None) -> RealTask:
        nonlocal count
        count += 1
        path = tmp_path / f"task{count}"
        lib64 = path / "lib64"
        lib64.mkdir(parents=True)
        built = {"libcuda.so.1": ours.cuda, "libnvidia-ml.so.1": ours.nvml}
        for _, name, real in REPLACED:
            if memory_mib is None:
                (lib64 / name).symlink_to(libraries[name])
            else:
                (lib64 / name).write_bytes(Path(built[name]).read_bytes())
                (lib64 / real).symlink_to(libraries[name])
        region = Region(path / "share")
        if memory_mib is not None:
            region.create([CardLimits(GpuId(card.id), memory_mib * MIB)])
        env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(lib64), "CUDA_VISIBLE_DEVICES": card.id}
        return RealTask(path, region, env)

    return make
