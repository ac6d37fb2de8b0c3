"""The specification of `mesos-gpu node cdi` in containers of podman, as Debian packages it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from isolator.devices.facts import write_inventory
from mesos_gpu.cli import main
from mesos_gpu.model.nodes.gpu import Inventory
from tests.doubles import dockerd
from tests.doubles.builders import gpu
from tests.doubles.python_image import WANTS_DRIVER, python_image
from tests.unit.volumes.layouts import Layout, V, plant
from volumes.build import make

RUNC = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
    pytest.mark.skipif(
        shutil.which("podman") is None or RUNC is None, reason="Debian's podman and runc are not there"
    ),
    pytest.mark.skipif("busybox" in dockerd.missing(), reason="there is no static busybox"),
]
#: Mounts of podman's own stay in a namespace; podman reads specifications in /run/cdi.
START = (
    'mount -t tmpfs tmpfs /run && mkdir /run/cdi && cp "$0" /run/cdi/ && exec podman --root "$1/root" '
    '--runroot /run/podman --storage-driver vfs --runtime runc --cgroup-manager cgroupfs "${@:2}"'
)
PARENT = f"mesos-gpu-cdi-{os.getpid()}"
LOOK = """
import ctypes, json, os, shutil
ctypes.CDLL("libcuda.so.1"); ctypes.CDLL("libnvidia-nvvm70.so.4")
devices = {n: [os.major(os.stat("/dev/" + n).st_rdev), os.minor(os.stat("/dev/" + n).st_rdev)]
    for n in sorted(os.listdir("/dev")) if n.startswith("nvidia")}
maps = sorted({l.split()[5] for l in open("/proc/self/maps") if "libcuda" in l})
print(json.dumps({"env": dict(os.environ), "devices": devices, "maps": maps, "smi": shutil.which("nvidia-smi"),
    "optix": open("/usr/share/nvidia/nvoptix.bin").read(),
    "mount": [l.split()[5] for l in open("/proc/self/mountinfo") if l.split()[4] == "/usr/local/nvidia"]}))
"""


@dataclass
class Podman:
    """podman with storage of its own, and one specification."""

    directory: Path
    spec: Path

    def call(self, *arguments: str) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", START, str(self.spec), str(self.directory), *arguments],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def look(self, device: str) -> dict[str, Any]:
        options = (
            *("--pull", "never", "--network", "none", "--cgroup-parent", f"/{PARENT}"),
            *("--security-opt", "seccomp=unconfined"),
            *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),  # no more than any root may set
        )
        text = self.call("run", "--rm", *options, "--device", device, "base:1", "python3", "-c", LOOK)
        report = json.loads(text)
        assert isinstance(report, dict)
        return report


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    directory = tmp_path_factory.mktemp("podman")
    plant(directory / "host", Layout("/usr/lib64", "/usr/bin", described="/usr/lib64"))
    make(directory / "volumes", directory / "host")
    node = directory / "node"
    cards = (replace(gpu("GPU-4"), index=0), replace(gpu("GPU-0"), index=1))
    write_inventory(node, Inventory(cards, "simulated", V))
    archive = python_image(directory, "base:1").rename(directory / "base.tar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESOS_GPU_NODE_DIR", str(node))
        patch.setenv("MESOS_GPU_VOLUMES", str(directory / "volumes"))
        spec = directory / "mesos-gpu.json"
        result = CliRunner().invoke(main, ["node", "cdi", "--output", str(spec)])
        assert result.exit_code == 0, result.output
    one = Podman(directory, spec)
    one.call("load", "--input", str(archive))
    yield one
    one.call("rmi", "--all", "--force")
    for parent in Path("/sys/fs/cgroup").glob(f"*/{PARENT}"):
        for path in sorted((parent, *parent.rglob("*/")), reverse=True):
            path.rmdir()


def test_container_gets_the_card_of_an_nvml_index_and_the_driver(podman: Podman) -> None:
    seen = podman.look("nvidia.com/gpu=0")
    assert {name: numbers for name, numbers in seen["devices"].items() if name[6:].isdigit()} == {
        "nvidia4": [195, 4]
    }
    assert "nvidiactl" in seen["devices"]
    assert seen["maps"] == [f"/usr/local/nvidia/lib64/libcuda.so.{V}"]
    assert seen["smi"] == "/usr/bin/nvidia-smi"
    assert seen["optix"] == "weights"
    assert "ro" in seen["mount"][0].split(",")


def test_container_keeps_the_path_of_its_image(podman: Podman) -> None:
    env = podman.look("nvidia.com/gpu=GPU-0")["env"]
    assert f"PATH={env['PATH']}" in WANTS_DRIVER["Env"]
    assert env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert env["VK_DRIVER_FILES"] == "/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
