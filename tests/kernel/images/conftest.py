"""Images in a directory of archives, and an executor that runs them itself."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.images import busybox_layer, layer, save
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import Host, host

APPLETS = [
    "sh", "cat", "cut", "echo", "env", "find", "grep", "head", "id", "kill", "ls", "mkdir", "mknod", "mount",
    "pwd", "readlink", "rm", "sleep", "sort", "stat", "touch", "true", "umount", "wc",
]  # fmt: skip


@pytest.fixture(scope="module")
def base() -> bytes:
    busybox = shutil.which("busybox")
    if busybox is None or subprocess.run(["ldd", busybox], capture_output=True, check=False).returncode == 0:
        pytest.skip("no static busybox (Debian: busybox-static)")
    return busybox_layer(Path(busybox), APPLETS)


@pytest.fixture(scope="module")
def images(open_directory: Path, base: bytes) -> Path:
    """A directory of archives."""
    directory = open_directory / "images"
    config = {"Env": ["PATH=/bin", "GREETING=hello"], "Entrypoint": ["/bin/echo", "entry"], "Cmd": ["cmd"]}
    save(directory, "plain:1", [base], config)
    save(
        directory,
        "placed:1",
        [base, layer({"opt": None, "opt/x": b"1"})],
        {"Env": ["PATH=/bin"], "WorkingDir": "/opt/new"},
    )
    save(directory, "driver:1", [base], {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"]})
    accounts = layer(
        {"etc/passwd": b"root:x:0:0::/:/bin/sh\nweb:x:4321:4322::/:/bin/sh\n", "etc/group": b"web:x:4323:\n"}
    )
    for number, user in enumerate(("web", "web:web", "77", "77:88", "root", "strange-one")):
        save(directory, f"user:{number}", [base, accounts], {"Env": ["PATH=/bin"], "User": user})
    return directory


@pytest.fixture
def directory(open_directory: Path) -> Path:
    path = open_directory / f"own-{time.monotonic_ns()}"
    path.mkdir()
    return path


@pytest.fixture
def one(
    directory: Path, images: Path, agent: ScriptedAgent, isolation: str, request: pytest.FixtureRequest
) -> Iterator[Host]:
    """An executor with archives of images; a parameter is more of its environment."""
    more = getattr(request, "param", {})
    given = {"MESOS_GPU_IMAGE_REGISTRY": str(images), "MESOS_GPU_VOLUMES": str(directory / "volumes"), **more}
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation, **given) as one:
        yield one
    assert [*directory.glob("node/images/roots/*")] == []  # nothing stays of what a task wrote to its image
