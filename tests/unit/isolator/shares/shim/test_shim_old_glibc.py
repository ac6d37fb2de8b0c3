"""Our library under the C library of Ubuntu 18.04: it loads, and it enforces."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from tests.cuda import PROGRAM, compiler_or_skip
from tests.doubles.cuda import MIB
from tests.doubles.driver_packages import OLD_GLIBC, install

GPU = GpuId("GPU-01020304-0506-0708-090a-0b0c0d0e0f10")
REFUSED_BY_INIT, SECOND_REFUSED = 100, 2
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason=f"the host is {platform.machine()}, not x86_64"
)


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install that C library in a directory."""
    top = tmp_path_factory.mktemp("glibc")
    try:
        install(top / "root", OLD_GLIBC)
    except Unavailable as error:
        pytest.skip(str(error))
    return top


@pytest.fixture(scope="module")
def run(top: Path, libraries: tuple[Path, dict[str, str]]) -> list[str]:
    """Compile the program; return the command that starts it under that C library."""
    old, lib64, compiler = top / "root/lib/x86_64-linux-gnu", top / "task/lib64", compiler_or_skip()
    lib64.mkdir(parents=True)
    shutil.copy(libraries[1]["libcuda.so.1"], lib64)
    real, client = lib64 / "libmgpu-real-cuda.so", top / "client"
    tiny = [*compiler, "-O2", "-nostdlib", "-fno-stack-protector"]
    soname = "-Wl,-soname,libcuda.so.1"
    driver, program = (str(PROGRAM.with_name(f"tiny_{name}.c")) for name in ("driver", "client"))
    subprocess.run([*tiny, "-shared", "-fPIC", soname, "-o", real, driver], check=True, timeout=60)
    subprocess.run([*tiny, "-o", client, program, str(real)], check=True, timeout=60)
    return [str(old / "ld-2.27.so"), "--library-path", f"{lib64}:{old}", str(client)]


def test_shim_under_glibc_2_27_keeps_a_share(run: list[str], top: Path) -> None:
    region = Region(top / "task/region")
    region.create([CardLimits(GPU, 1000 * MIB)])
    assert subprocess.run(run, timeout=60).returncode == SECOND_REFUSED
    region.remove()


def test_shim_under_glibc_2_27_gives_no_gpu_without_a_share(run: list[str]) -> None:
    done = subprocess.run(run, timeout=60, capture_output=True, text=True)
    assert done.returncode == REFUSED_BY_INIT
    assert done.stderr.startswith("mesos_gpu: no GPU is given, for this task's share cannot be kept: ")
