"""NVIDIA's real libcuda and NVML of two driver versions under ours. There is no GPU: what is asked answers so."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isolator.shares.shim import sources
from isolator.shares.shim.ability import PROVEN
from isolator.shares.shim.exports import exports, unknown, wrapped
from isolator.shares.shim.region import CardLimits, Region
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from tests.doubles.driver_packages import CURRENT, NEXT, install
from volumes.build import make
from volumes.shim import Shim
from volumes.store import verify

NO_DEVICE, NOT_LOADED, NOT_PERMITTED = 100, 9, 800
#: Names that sound as if memory came by them, and why what is not ours of them is not counted.
SOUNDS = re.compile(r"cu\w*(Alloc|Create|Import|Load|Open|Register|Map|Reserve|Retain|Limit|Bind)\w*")
NOT_COUNTED = {
    "memory of the host": r"cuMem(AllocHost|HostAlloc|HostRegister)(_v2)?",
    "addresses, without memory behind them": r"cuMemAddressReserve",
    "asks, and takes nothing": r"cu(MemGetAllocation\w+|CtxGetLimit|FuncIsLoaded|ModuleGetLoadingMode)",
    "its maker counts it": r"cu(IpcOpenMemHandle(_v2)?|IpcOpenEventHandle|MemPoolImport\w+)",
    "another interface has made it: the watch sees it": r"cu(ImportExternal|ExternalMemory|GL|EGL|Graphics|VDPAU)\w+",
    "it was counted when it was created, and stays so while it is bound": r"cuMulticast(Create|Bind\w+)",
    "code and its variables: the watch sees them": r"cu(Module|Library|Func)Load\w*",
    "a context, its stacks and heap: the watch sees them": r"cu(Green)?Ctx(Create(_v\d)?|SetLimit)",
    "an object of the driver's, of a few bytes": (
        r"cu(Event|Stream|Link|Graph|GraphConditionalHandle|UserObject|TexObject|SurfObject|TexRef)"
        r"Create(WithPriority)?(_v2)?"
    ),
    "a count of users": r"cu(Graph)?(Retain)?UserObject(Retain)?",
    "a function to be called back": r"cuDeviceRegisterAsyncNotification",
    "a description of memory": r"cuTensorMap\w+",
    "parameters of a node that was counted when it was made": r"cuGraphMemAllocNodeGetParams",
}
LOOK = Path(__file__).with_name("look_at_libraries.py")
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason=f"the host is {platform.machine()}, not x86_64"
)


@pytest.fixture(scope="module", params=[CURRENT, pytest.param(NEXT, marks=pytest.mark.long)])
def real_volume(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    libraries: tuple[Path, dict[str, str]],
) -> Path:
    """Build the volume of a real driver with our libraries."""
    top, version, ours = tmp_path_factory.mktemp("real"), request.param, libraries[1]
    shim = Shim(sources.digest(), ours["libcuda.so.1"], ours["libnvidia-ml.so.1"])
    try:
        install(top / version, version)
    except Unavailable as error:
        pytest.skip(str(error))
    built = make(top / "volumes", top / version, version, shim=shim)
    assert verify(built.volume) == ()
    return built.path


@pytest.fixture
def volume(real_volume: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a task a share in a volume of the same files."""
    path = tmp_path_factory.mktemp("task") / "nvidia"
    shutil.copytree(real_volume, path, symlinks=True, copy_function=os.link)
    os.rmdir(path / "region")
    Region(path / "region").create([CardLimits(GpuId("GPU-00112233-4455-6677-8899-aabbccddeeff"), 1 << 30)])
    return path


def look(volume: Path) -> dict[str, Any]:
    """What a program sees there."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(volume / "lib64")}
    names = json.dumps(
        {
            "cuda": sorted(exports(volume / "lib64/libmgpu-real-cuda.so")),
            "nvml": sorted(exports(volume / "lib64/libmgpu-real-ml.so")),
            "wrapped": sorted(wrapped()),
        }
    )
    done = subprocess.run(
        [sys.executable, str(LOOK)], env=env, input=names, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_shim_passes_on_every_export_and_answers_with_its_own_functions(volume: Path) -> None:
    seen = look(volume)
    assert seen["cuInit"] == NO_DEVICE, "as without us"
    assert seen["exports"] >= 600
    assert seen["not coming through"] == []
    assert seen["answers"] > 500, "names of ours, in seven versions, three kinds of streams"
    assert seen["wrong answers"] == []
    assert seen["others' answers that changed"] == []
    assert seen["nvmlInit"] == NOT_LOADED, "as without us"
    assert seen["nvml not coming through"] == []


def test_proven_drivers_are_those_of_these_tests() -> None:
    assert tuple(version.partition(".")[0] for version in (CURRENT, NEXT)) == PROVEN


def test_real_driver_exports_no_way_past_us(real_volume: Path) -> None:
    assert unknown(exports(real_volume / "lib64/libmgpu-real-cuda.so")) == ()


def test_driver_functions_that_are_not_counted_have_a_reason(real_volume: Path) -> None:
    names = exports(real_volume / "lib64/libmgpu-real-cuda.so")
    others = {name for name in names if SOUNDS.fullmatch(name)} - wrapped()
    known = {name for name in others for why in NOT_COUNTED.values() if re.fullmatch(why, name)}
    assert others - known == set()
    assert len(known) > 50


def test_shim_without_a_share_does_not_ask_the_real_driver(volume: Path) -> None:
    shutil.rmtree(volume / "region")
    assert look(volume)["cuInit"] == NOT_PERMITTED


def test_nvidias_own_programs_load_ours(volume: Path) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(volume / "lib64"), "LD_DEBUG": "files"}
    done = subprocess.run([volume / "bin/nvidia-smi"], env=env, capture_output=True, text=True, timeout=60)
    assert "NVIDIA-SMI has failed" in done.stdout
    assert f"calling init: {volume}/lib64/libnvidia-ml.so.1" in done.stderr
    assert f"calling init: {volume}/lib64/libmgpu-real-ml.so" in done.stderr
    names = {line.split("file=")[1].split()[0] for line in done.stderr.splitlines() if "file=" in line}
    assert not any(name.startswith("libnvidia-ml.so.5") for name in names), "none of them names the real one"


def test_nvidias_own_binding_loads_ours(volume: Path) -> None:
    code = (
        "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as e: print(e.value)\n"
        "print(*sorted({l.split('/')[-1].strip() for l in open('/proc/self/maps') if '/nvidia/lib64/' in l}))"
    )
    env = {**os.environ, "LD_LIBRARY_PATH": str(volume / "lib64")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(NOT_LOADED), "libmgpu-real-ml.so", "libnvidia-ml.so.1"]
