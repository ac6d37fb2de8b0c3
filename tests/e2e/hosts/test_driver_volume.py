"""NVIDIA's real driver files, from the host's packages into a container: what an image needs is there, and loads.

There is no GPU here: a library that is loaded is asked, and answers that there is no driver.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.devices.facts import write_inventory
from mesos_gpu.cli.client import Client
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.driver_packages import CURRENT, NEXT, fetch, install
from tests.doubles.python_image import LOADER_CONF, python_image
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import GPUS, INVENTORY, host
from tests.kernel.conftest import needs
from volumes.build import make
from volumes.discover import discover
from volumes.manifest import LOADERS, is_driver_name, plan, stem_of
from volumes.store import Store, verify

pytestmark = [pytest.mark.cluster, pytest.mark.long]
IMAGE = "cuda:python"
NO_DEVICE, NOT_LOADED = 100, 9  # CUDA_ERROR_NO_DEVICE; NVML_ERROR_DRIVER_NOT_LOADED
LOOK = """
import ctypes, json, os, subprocess
def loaded(name):
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return ""
def lacking(path):
    # as ldd does: the loader's own --list ends at the first that is lacking, and names no other
    done = subprocess.run(["/lib64/ld-linux-x86-64.so.2", path], env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True, text=True)
    assert done.returncode == 0 and "libc.so.6" in done.stdout, path + done.stderr
    return [l.split()[0] for l in (done.stdout + done.stderr).splitlines() if "not found" in l]
def egl():
    # as a headless program does: the vendors that libglvnd finds, and what the driver's says of its devices
    lib = ctypes.CDLL("libEGL.so.1")
    lib.eglGetProcAddress.restype = ctypes.c_void_p
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    count = ctypes.c_int(-1)
    asked = query(lib.eglGetProcAddress(b"eglQueryDevicesEXT"))(0, None, ctypes.byref(count))
    maps = sorted({l.split()[5] for l in open("/proc/self/maps") if "libEGL_nvidia" in l})
    return {"asked": asked, "devices": count.value, "error": lib.eglGetError(), "maps": maps}
top = "/usr/local/nvidia/lib64"
smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True)
print(json.dumps({
    "found_outside": [n for d in ("/lib", "/usr/lib", "/lib64") for _, _, f in os.walk(d) for n in f if "nvidia" in n],
    "loads": {name: loaded(name) for name in os.environ["NAMES"].split()},
    "lacking": {name: lacking(f"{top}/{name}") for name in sorted(os.listdir(top)) if ".so" in name},
    "cuInit": ctypes.CDLL("libcuda.so.1").cuInit(0),
    "nvmlInit": ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2(),
    "smi": [smi.returncode, smi.stdout + smi.stderr],
    "mount": [l.split()[5] for l in open("/proc/self/mountinfo") if l.split()[4] == "/usr/local/nvidia"],
    "LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"],
    "VK_DRIVER_FILES": os.environ.get("VK_DRIVER_FILES"),
    "egl": egl() if "__EGL_VENDOR_LIBRARY_DIRS" in os.environ else None,
    "loader": {n: open(f"/etc/{n}").read() for n in os.listdir("/etc") if n.startswith("ld.so")},
}))
"""
NAMES = (
    "libcuda.so.1 libcuda.so libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4 libnvcuvid.so.1 "
    "libnvidia-encode.so.1 libnvidia-opencl.so.1 libnvidia-opticalflow.so.1 libcudadebugger.so.1 libnvidia-cfg.so.1 "
    "libnvidia-allocator.so.1"
)


@pytest.fixture(scope="module")
def roots(open_directory: Path) -> dict[str, Path]:
    """Roots of two drivers, as Debian installs them."""
    lacks = dockerd.missing()
    if "busybox" in lacks:
        pytest.skip(lacks)
    sets = {CURRENT: (CURRENT, "glvnd", f"{CURRENT} i686"), NEXT: (NEXT,)}
    try:
        fetch(*(name for names in sets.values() for name in names))
    except Unavailable as error:
        pytest.skip(error.what)
    for version, names in sets.items():
        install(open_directory / version, *names)
    return {version: open_directory / version for version in sets}


@pytest.fixture(scope="module")
def images(open_directory: Path, roots: dict[str, Path]) -> Path:
    (open_directory / "images").mkdir()
    glvnd = roots[CURRENT] / "usr/lib/x86_64-linux-gnu"
    libraries = [path for stem in ("libEGL", "libGLdispatch") for path in glvnd.glob(f"{stem}.so.*")]
    python_image(open_directory / "images", IMAGE, libraries)
    return open_directory / "images"


@contextmanager
def running(directory: Path, root: Path, images: Path) -> Iterator[Stack]:
    """A node whose monitor builds the volume from the driver's root, as it would from /."""
    needs("cgroup1")
    given = {"MESOS_GPU_DRIVER_ROOT": str(root), "MESOS_GPU_ISOLATION": "cgroup1"}
    nodes = [NodeSpec(2, driver=CURRENT)]
    with Stack(directory, nodes, images=images, devices="mesos", executor_environment=given) as stack:
        with Client(stack.url) as client:
            wait_until("the volume is reported", lambda: volumes(client) == [CURRENT])
        yield stack


@pytest.fixture(scope="module")
def stack(open_directory: Path, roots: dict[str, Path], images: Path) -> Iterator[Stack]:
    with running(open_directory / "stack", roots[CURRENT], images) as stack:
        yield stack


def volumes(client: Client) -> list[str | None]:
    return [node["volume"] for node in client.nodes()]


def look(client: Client, **more: Any) -> dict[str, Any]:
    request = {"name": "look", "argv": ["python3", "-c", LOOK], "gpus": 1, "cpus": 0.1, "mem_mib": 512}
    job = client.submit({**request, "env": {"NAMES": NAMES}, **more})
    end = [job, *client.follow(job)][-1]
    errors = client.logs(job["id"], stream="stderr", offset=0, length=60000)["data"]
    assert end["state"] == "finished", f"{end['message']}\n{errors}"
    report = json.loads(client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"])
    assert isinstance(report, dict)
    return report


def look_by_docker(directory: Path, root: Path, archive: Path) -> dict[str, Any]:
    """Look from a container of a Docker Engine; the executor is real, and the agent scripted."""
    if lacks := dockerd.missing():
        pytest.skip(lacks)
    needs("cgroup1")
    (directory / "volumes").mkdir(parents=True)
    make(directory / "volumes", root, CURRENT)
    with Dockerd() as engine, scripted_agent() as agent:
        engine.load(archive)
        given = {"MESOS_GPU_DOCKER_SOCKET": str(engine.socket), "MESOS_GPU_ISOLATION": "cgroup1"}
        with host(directory, agent, MESOS_GPU_VOLUMES=str(directory / "volumes"), **given) as one:
            inventory = replace(INVENTORY, driver_version=CURRENT, cuda_version="12.2")
            write_inventory(directory / "node", inventory)
            argv = ("python3", "-c", LOOK)
            one.launch(
                None, argv=argv, image=IMAGE, container_engine="docker", gpus=GPUS[:1], env={"NAMES": NAMES}
            )
            one.end("TASK_FINISHED")
            report = json.loads(one.stdout())
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module", params=["mesos", "docker"])
def seen(
    request: pytest.FixtureRequest, open_directory: Path, roots: dict[str, Path], images: Path
) -> dict[str, Any]:
    """What a task sees of the volume in a container of each engine."""
    if request.param == "docker":
        return look_by_docker(open_directory / "docker", roots[CURRENT], images / f"{IMAGE}.tar")
    with Client(request.getfixturevalue("stack").url) as client:
        return look(client, image=IMAGE)


def test_libraries_that_a_cuda_image_needs_load(seen: dict[str, Any]) -> None:
    assert seen["found_outside"] == [], "all that is of NVIDIA is the volume's"
    assert seen["loads"] == dict.fromkeys(NAMES.split(), "")
    assert seen["cuInit"] == NO_DEVICE
    assert seen["nvmlInit"] == NOT_LOADED


def test_libraries_of_the_volume_lack_none_of_nvidia(seen: dict[str, Any]) -> None:
    lacking = {
        name: [n for n in lacks if is_driver_name(n) and stem_of(n) not in LOADERS]
        for name, lacks in seen["lacking"].items()
    }
    assert len(lacking) >= 50
    assert not any(lacking.values()), seen["lacking"]
    assert "libX11.so.6" in seen["lacking"]["libGLX_nvidia.so.0"], (
        "what is lacking is seen: this image has no X"
    )


def test_a_headless_egl_program_finds_the_drivers_vendor_library(seen: dict[str, Any]) -> None:
    """The image has libglvnd alone. Without a GPU the driver has no devices, and says so itself."""
    assert seen["egl"]["maps"] == [f"/usr/local/nvidia/lib64/libEGL_nvidia.so.{CURRENT}"]
    assert seen["egl"]["devices"] <= 0
    assert seen["VK_DRIVER_FILES"] == "/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json"


def test_nvidia_smi_starts_and_fails_only_for_want_of_a_driver(seen: dict[str, Any]) -> None:
    code, said = seen["smi"]
    assert code == NOT_LOADED
    assert "couldn't communicate with the NVIDIA driver" in said


def test_the_volume_is_read_only_and_stands_after_cudas_own(seen: dict[str, Any]) -> None:
    (options,) = seen["mount"]
    assert "ro" in options.split(",")
    assert seen["LD_LIBRARY_PATH"] == "/usr/local/cuda/compat:/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert seen["loader"] == {"ld.so.conf": LOADER_CONF}


def test_command_on_the_host_has_the_driver_volume(stack: Stack) -> None:
    with Client(stack.url) as client:
        command = "ls -l /usr/local/nvidia/lib64/libcuda.so.1; nvidia-smi"
        job = client.submit({"name": "host", "command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 64})
        end = [job, *client.follow(job)][-1]
        assert end["exit_code"] == NOT_LOADED, end["message"]
        said = client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]
        assert f"libcuda.so.{CURRENT}" in said
        assert "couldn't communicate with the NVIDIA driver" in said


def test_driver_upgrade_leaves_a_running_task_its_volume(
    open_directory: Path, roots: dict[str, Path], images: Path
) -> None:
    """535 to 550 on the node while a task runs on 535: fault 10."""
    root = open_directory / "upgraded"
    shutil.copytree(roots[CURRENT], root, symlinks=True, copy_function=os.link)
    with running(open_directory / "upgrading", root, images) as stack, Client(stack.url) as client:
        store = Store(stack.directory / "volumes" / "1")
        go = open_directory / "go"
        watch = f"until [ -e {go} ]; do sleep 0.1; done; ls /usr/local/nvidia/lib64/libcuda.so.5*; nvidia-smi"
        job = client.submit({"name": "long", "command": watch, "gpus": 1, "cpus": 0.1, "mem_mib": 64})
        wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
        old = store.get(CURRENT)
        install(root, NEXT)
        for path in root.rglob(f"*.so.{CURRENT}"):
            path.unlink()
        inventory = json.loads(stack.inventory(1).read_text())
        upgraded = {**inventory, "driver_version": NEXT, "cuda_version": "12.4"}
        stack.inventory(1).write_text(json.dumps(upgraded))
        wait_until("the new volume is reported", lambda: volumes(client) == [NEXT])
        assert verify(old) == ()
        assert look(client, image=IMAGE, env={"NAMES": "libcuda.so.1"})["loads"] == {"libcuda.so.1": ""}
        assert {volume.version for volume in store.volumes()} == {CURRENT, NEXT}
        go.touch()
        assert list(client.follow(job))[-1]["exit_code"] == NOT_LOADED
        said = client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"]
        assert said.splitlines()[0] == f"/usr/local/nvidia/lib64/libcuda.so.{CURRENT}"
        assert "couldn't communicate with the NVIDIA driver" in said, "by the program and libraries of 535"


def test_drivers_of_foreign_machines_are_planned(open_directory: Path, roots: dict[str, Path]) -> None:
    """POWER and ARM: found and planned here, though they cannot run here."""
    for version, name, machine in ((CURRENT, "aarch64", "aarch64"), ("535.216.03", "ppc64le", "powerpc64le")):
        root = open_directory / machine
        install(root, f"{version} {name}")
        made = plan(discover(root), version)
        assert f"lib64/libcuda.so.{version}" in {entry.target for entry in made.entries}
        assert f"/{machine}-linux-gnu/" in made.entries[-1].source
        assert "lib64/libcuda.so.1" in {link.target for link in made.links}
