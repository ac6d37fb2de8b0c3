"""Our library under the C library of Ubuntu 18.04: it loads, and it enforces."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.testing.cuda import MIB
from mesos_gpu.testing.driver_packages import OLD_GLIBC, install
from tests.cuda import PROGRAM, compiler_or_skip

GPU = GpuId("GPU-01020304-0506-0708-090a-0b0c0d0e0f10")
REFUSED_BY_INIT, SECOND_REFUSED = 100, 2
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason=f"the host is {platform.machine()}, not x86_64"
)


@pytest.fixture
def run(tmp_path: Path, libraries: tuple[Path, dict[str, str]]) -> list[str]:
    """What starts the program under that C library."""
    try:
        install(tmp_path / "root", OLD_GLIBC)
    except Unavailable as error:
        pytest.skip(str(error))
    old, lib64, compiler = tmp_path / "root/lib/x86_64-linux-gnu", tmp_path / "task/lib64", compiler_or_skip()
    lib64.mkdir(parents=True)
    shutil.copy(libraries[1]["libcuda.so.1"], lib64)
    real, client = lib64 / "libmgpu-real-cuda.so", tmp_path / "client"
    tiny = [*compiler, "-O2", "-nostdlib", "-fno-stack-protector"]
    soname = "-Wl,-soname,libcuda.so.1"
    driver, program = (str(PROGRAM.with_name(f"tiny_{name}.c")) for name in ("driver", "client"))
    subprocess.run([*tiny, "-shared", "-fPIC", soname, "-o", real, driver], check=True, timeout=60)
    subprocess.run([*tiny, "-o", client, program, str(real)], check=True, timeout=60)
    return [str(old / "ld-2.27.so"), "--library-path", f"{lib64}:{old}", str(client)]


def test_under_glibc_2_27_a_share_is_kept(run: list[str], tmp_path: Path) -> None:
    Region(tmp_path / "task/share").create([CardLimits(GPU, 1000 * MIB)])
    assert subprocess.run(run, timeout=60).returncode == SECOND_REFUSED


def test_under_glibc_2_27_no_share_is_no_gpu(run: list[str]) -> None:
    done = subprocess.run(run, timeout=60, capture_output=True, text=True)
    assert done.returncode == REFUSED_BY_INIT
    assert done.stderr.startswith("mesos_gpu: no GPU is given, for this task's share cannot be kept: ")
