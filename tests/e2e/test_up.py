"""`mesos-gpu up` and `down`, as a person uses them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mesos_gpu.local.cluster import free_port
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def home(open_directory: Path) -> Iterator[Path]:
    home = open_directory / "home"
    home.mkdir()
    home.chmod(0o755)
    yield home
    mesos_gpu(home, "down")
    for entry in home.iterdir():
        entry.unlink()
    home.rmdir()


def mesos_gpu(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MESOS_GPU_HOME": str(home)}
    env.pop("MESOS_GPU_URL", None)
    command = [sys.executable, "-m", "mesos_gpu", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=env)


def up(home: Path, *words: str) -> str:
    port = free_port()
    done = mesos_gpu(home, "up", "--detach", "--agents", "1", "--gpus", "2", "--port", str(port), *words)
    assert done.returncode == 0, done.stderr
    assert f"http://127.0.0.1:{port}" in done.stdout
    return f"http://127.0.0.1:{port}"


def test_up_use_down(home: Path) -> None:
    url = up(home)
    assert json.loads((home / "up.json").read_text())["url"] == url

    second = mesos_gpu(home, "up")
    assert second.returncode == 73
    assert f"it is up already: {url}" in second.stderr
    assert "mesos-gpu down" in second.stderr

    job = mesos_gpu(home, "run", "--gpus", "1", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith("GPU-")
    assert "2" in mesos_gpu(home, "nodes").stdout

    assert mesos_gpu(home, "down").stdout == "down\n"
    assert left_of(home) == []
    gone = mesos_gpu(home, "ps")
    assert gone.returncode == 69
    assert "mesos-gpu up" in gone.stderr
    assert "Traceback" not in gone.stderr


def test_a_part_that_dies_is_started_again(home: Path) -> None:
    up(home)
    (scheduler,) = [p for p in processes_of(home) if "mesos_gpu.scheduler" in " ".join(p.cmdline())]
    scheduler.send_signal(signal.SIGKILL)
    job = wait_until(
        "it is back", lambda: (j := mesos_gpu(home, "run", "--", "echo", "back")).returncode == 0 and j, 60
    )
    assert isinstance(job, subprocess.CompletedProcess)
    assert job.stdout == "back\n"


def test_down_cleans_up_after_a_killed_up(home: Path) -> None:
    up(home)
    os.kill(json.loads((home / "up.json").read_text())["pid"], signal.SIGKILL)
    assert processes_of(home), "the cluster outlives its owner"
    assert "what an earlier one left is removed" in mesos_gpu(home, "down").stdout
    assert left_of(home) == []


def test_a_port_in_use_is_said(home: Path) -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        done = mesos_gpu(home, "up", "--agents", "1", "--port", str(port))
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert left_of(home) == []


def processes_of(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(home) in value for value in process.environ().values()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_of(home: Path) -> list[str]:
    left = [f"{p.pid} {p.cmdline()}" for p in processes_of(home)]
    return left + [str(p) for p in home.iterdir() if p.name != "up.log"]
