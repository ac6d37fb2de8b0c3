"""A full disk: the scheduler takes no change and launches nothing, says why, and goes on when there is room."""

import contextlib
import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.local.test_up import mesos_gpu, processes_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root"),
]


@pytest.fixture(scope="module")
def small(open_directory: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    at = open_directory / "small"
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(at)], check=True)
    yield at
    subprocess.run(["umount", str(at)], check=True)
    at.rmdir()


@pytest.fixture(scope="module")
def stack(open_directory: Path, small: Path) -> Iterator[Stack]:
    more = [
        "--state",
        str(small / "scheduler" / "state.sqlite"),
        "--journal",
        str(small / "scheduler" / "journal"),
    ]
    with Stack(open_directory / "stack", [NodeSpec(2)], scheduler_arguments=more) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2, 60)
        yield client


def outcome(stack: Stack) -> str:
    """ "": not known yet."""
    if stack.scheduler.exit_code is not None:
        return str(stack.scheduler.exit_code)
    try:
        status = stack.scheduler.get("/v1/status")
        if status["connected"]:
            return "runs"
        return "waits" if status["unsaved"] else ""
    except (OSError, http.client.HTTPException, Unavailable):
        return ""


def readiness(stack: Stack) -> tuple[int, object]:
    answer = requests.get(f"{stack.url}/v1/health", timeout=20)
    return answer.status_code, answer.json()


def metric(stack: Stack, name: str) -> float:
    text = requests.get(f"{stack.url}/metrics", headers={"Accept": "text/plain"}, timeout=20).text
    (value,) = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(value)


def fill(directory: Path) -> Path:
    """All of it, to the last byte."""
    path = directory / "ballast"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


@pytest.mark.long
def test_full_disk_refuses_changes_and_launches_until_there_is_room(
    stack: Stack, client: Client, small: Path, open_directory: Path
) -> None:
    flag = open_directory / "flag"
    request = {"command": f"while [ ! -e {flag} ]; do sleep 0.1; done", "gpus": 1, "cpus": 0.1, "mem_mib": 32}
    job = client.submit({**request, "name": "works"})["id"]
    wait_until("it runs", lambda: client.job(job)["state"] == "running", 60)
    pid, host = stack.scheduler.pid, client.nodes()[0]["hostname"]
    launched, offset = launched_by_mesos(stack), stack.scheduler.log.stat().st_size
    ballast = fill(small)

    def refused() -> Refused | None:
        """A place in the file may still be free: until one is refused."""
        try:
            client.submit({"name": "more", "command": "true", "gpus": 2, "env": {"X": "x" * 100_000}})
        except Refused as error:
            return error
        return None

    error = wait_until("a change is refused", refused, 60)
    assert error is not None
    assert (error.http_status, error.exit_code) == (507, 74)
    assert "state.sqlite cannot be written" in error.what
    assert "make room" in error.remedy
    known = {job["id"] for job in client.jobs()}
    again = refused()
    assert again is not None
    assert "kept in memory" not in again.what
    for verb, path, body in (
        ("DELETE", f"/v1/jobs/{job}", None),
        ("POST", "/v2/apps", {"id": "/web", "cmd": "sleep 1"}),
        ("POST", f"/v1/nodes/{host}/drain", {"reason": "full"}),
    ):
        assert requests.request(verb, stack.url + path, json=body, timeout=20).status_code == 507, path
    assert {job["id"] for job in client.jobs()} == known
    assert "cannot be written" in (client.status()["unsaved"] or "")
    assert readiness(stack) == (503, {"ok": False, "connected": True, "saves": False})
    assert metric(stack, "mesos_gpu_unsaved") == 1
    assert "cannot be written" in mesos_gpu(open_directory, "--url", stack.url, "status").stderr

    flag.touch()
    wait_until("Mesos knows that it ended", lambda: f"{job}.1" not in running_by_mesos(stack), 60)
    assert client.job(job)["state"] == "running", (
        "its end is not saved, so it is not shown, and not acknowledged"
    )
    assert launched_by_mesos(stack) == launched, "nothing was launched"
    assert (stack.scheduler.running, stack.scheduler.pid) == (True, pid)

    ballast.unlink()
    wait_until("its end is saved", lambda: client.job(job)["state"] == "finished", 60)
    assert client.status()["unsaved"] is None
    assert readiness(stack) == (200, {"ok": True, "connected": True, "saves": True})
    assert metric(stack, "mesos_gpu_unsaved") == 0
    later = client.submit({"name": "later", "command": "true", "cpus": 0.1, "mem_mib": 32})["id"]
    wait_until("work goes on", lambda: client.job(later)["state"] == "finished", 60)
    wait_until("what waits is launched", lambda: not client.jobs(states=["active"]), 120)
    log = stack.scheduler.log.read_bytes()[offset:].decode()
    assert log.count("until this is fixed nothing is launched") == 1
    assert "the state can be written again" in log
    assert "Traceback" not in log
    flag.unlink()


def test_full_disk_and_a_killed_scheduler_lose_nothing(stack: Stack, client: Client, small: Path) -> None:
    job = client.submit({"name": "lasts", "command": "sleep 600", "gpus": 1, "cpus": 0.1, "mem_mib": 32})[
        "id"
    ]
    wait_until("it runs", lambda: client.job(job)["state"] == "running", 60)
    ballast = fill(small)
    stack.scheduler.kill()
    fill(small)
    offset = stack.scheduler.log.stat().st_size
    stack.scheduler.start()
    ended = wait_until("it ends, waits for room, or runs all the same", lambda: outcome(stack), 60)
    said = stack.scheduler.log.read_bytes()[offset:].decode()
    assert "Traceback" not in said
    assert "older" not in said, "what cannot be read now is not taken for old"
    assert ended == "runs" or (ended in {"74", "waits"} and "make room" in said), said
    if ended == "waits":
        ballast.unlink()
        wait_until("it goes on by itself", lambda: outcome(stack) == "runs", 60)
    else:
        stack.scheduler.kill()
        ballast.unlink()
        stack.scheduler.start().wait()
    assert client.job(job)["state"] == "running"
    client.patience_s = 30
    client.kill(job)
    wait_until("it ends", lambda: client.job(job)["state"] == "killed", 60)


@pytest.mark.long
def test_full_disk_does_not_end_up_and_down_leaves_nothing(open_directory: Path) -> None:
    """Fill the disk that has its own log, the agents', and the note of what it runs."""
    home = open_directory / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0755", "tmpfs", str(home)], check=True)
    try:
        words = ["up", "--detach", "--agents", "1", "--gpus", "1", "--port", str(free_port())]
        done = mesos_gpu(home, *words)
        assert done.returncode == 0, done.stderr
        up = json.loads((home / "up.json").read_text())["pid"]
        # Found before the disk is full: then the agent may end by itself.
        (agent,) = (
            p
            for p in processes_of(home)
            if any(word.startswith("--work_dir=") and "/agent-" in word for word in p.cmdline())
        )
        ballast = fill(home)
        with contextlib.suppress(psutil.NoSuchProcess):
            agent.kill()
        wait_until(
            "its end is seen", lambda: not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE
        )
        time.sleep(3)  # several looks of `up`, each of which fails
        assert psutil.pid_exists(up)
        ballast.unlink()
        wait_until(
            "it is back", lambda: mesos_gpu(home, "run", "--mem", "32", "--", "echo", "b").stdout == "b\n", 90
        )
        ballast = fill(home)
        down = mesos_gpu(home, "down")
        assert down.returncode == 0, down.stderr
        assert processes_of(home) == []
        assert sorted(entry.name for entry in home.iterdir()) == ["ballast", "up.log"]
    finally:
        ballast.unlink(missing_ok=True)
        mesos_gpu(home, "down")
        subprocess.run(["umount", str(home)], check=True)
        home.rmdir()


def running_by_mesos(stack: Stack) -> set[str]:
    (framework,) = stack.cluster.master.state()["frameworks"]
    return {task["id"] for task in framework["tasks"] if task["state"] == "TASK_RUNNING"}


def launched_by_mesos(stack: Stack) -> set[str]:
    (framework,) = stack.cluster.master.state()["frameworks"]
    task_ids = {task["id"] for kind in ("tasks", "completed_tasks") for task in framework[kind]}
    return {task_id for task_id in task_ids if not task_id.startswith("gpu-monitor")}
