"""`mesos-gpu up` and `down`, as a person uses them."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests

from mesos_gpu.local.own_ports import free_port
from tests.certificates import Authority
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@contextmanager
def made(home: Path) -> Iterator[Path]:
    """Make a home, and remove it with what runs there."""
    home.mkdir()
    home.chmod(0o755)
    yield home
    command("down", "--home", str(home))
    for entry in home.iterdir():
        entry.unlink()
    home.rmdir()


@pytest.fixture
def home(open_directory: Path) -> Iterator[Path]:
    with made(open_directory / "home") as home:
        yield home


@pytest.fixture(scope="module")
def started(open_directory: Path) -> Iterator[tuple[Path, str]]:
    """A home whose cluster is up, and the address of that."""
    with made(open_directory / "started") as home:
        yield home, up(home)


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
    steps = [line for line in done.stderr.splitlines() if line.startswith("mesos-gpu: waiting for ")]
    assert [step.split(" for ")[1] for step in steps][:: len(steps) - 1] == [
        "the Mesos master",
        "the scheduler",
    ]
    return f"http://127.0.0.1:{port}"


def test_up_run_ps_and_down_work(started: tuple[Path, str]) -> None:
    home, url = started
    assert json.loads((home / "up.json").read_text())["url"] == url

    second = command("up", "--home", str(home))
    assert second.returncode == 73
    assert f"it is up already: {url}" in second.stderr.decode()
    assert b"mesos-gpu down" in second.stderr

    job = command("--home", str(home), "run", "--gpus", "1", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith(b"GPU-")
    listed = command("--home", str(home), "ps", "--all", "--json")
    assert [each["state"] for each in json.loads(listed.stdout)] == ["finished"]

    assert command("down", "--home", str(home)).stdout == b"down\n"
    assert left_of(home) == []
    gone = command("--home", str(home), "ps")
    assert gone.returncode == 69
    assert b"mesos-gpu up" in gone.stderr
    assert b"Traceback" not in gone.stderr


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others have no jobs of other users")
def test_up_below_tmp_works_with_a_private_tmp_of_tasks() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mesos-gpu-up-") as directory:
        home = Path(directory)
        home.chmod(0o755)
        try:
            up(home)
            job = mesos_gpu(
                home, "run", "--gpus", "1", "--", "sh", "-c", f"ls {home}/up/mesos/agent-1/work; ls /tmp"
            )
            assert job.returncode == 0, job.stderr
            assert job.stdout.split() == ["slaves", home.name], (
                "on a slow machine, stderr says what the job waits for"
            )
        finally:
            assert mesos_gpu(home, "down").stdout == "down\n"
        assert left_of(home) == []


@pytest.mark.on_change("documents")
def test_up_secure_authenticates_callers_and_serves_its_user(home: Path) -> None:
    url = up(home, "--secure")
    job = mesos_gpu(home, "run", "--gpus", "1", "--", "echo", "mine")
    assert (job.returncode, job.stdout) == (0, "mine\n"), job.stderr
    assert requests.get(f"{url}/v1/jobs", timeout=60).status_code == 401
    (home / "access.yaml").write_text("bindings: [{names: [ann], roles: [user]}]\n")
    assert mesos_gpu(home, "access", "apply", str(home / "access.yaml"), "--yes").returncode == 0
    made = mesos_gpu(home, "token", "create", "--name", "ann")
    assert made.returncode == 0, made.stderr
    env = {**os.environ, "MESOS_GPU_HOME": str(home), "MESOS_GPU_TOKEN": made.stdout.split()[-1]}
    command = [sys.executable, "-m", "mesos_gpu", "--url", url, "run", "--", "id", "-u"]
    hers = subprocess.run(command, capture_output=True, text=True, timeout=90, env=env)
    if os.geteuid() == 0:  # each job has a user of its own
        assert (hers.returncode, 60000 <= int(hers.stdout) <= 60999) == (0, True), hers.stderr
    else:
        assert (hers.returncode, "the hosts have no user ann" in hers.stderr) == (65, True)
    (home / "access.yaml").unlink()
    inside = mesos_gpu(
        home, "run", "--", "sh", "-c", f"{sys.executable} -m mesos_gpu --url {url} ps; echo ended"
    )
    assert inside.stdout == "ended\n", "a task reaches no scheduler"
    assert mesos_gpu(home, "down").stdout == "down\n"
    assert left_of(home) == []


@pytest.mark.on_change("documents")
def test_up_restarts_a_scheduler_that_dies(home: Path) -> None:
    up(home)
    scheduler_of(home).send_signal(signal.SIGKILL)
    job = wait_until(
        "it is back", lambda: (j := mesos_gpu(home, "run", "--", "echo", "back")).returncode == 0 and j, 60
    )
    assert isinstance(job, subprocess.CompletedProcess)
    assert job.stdout == "back\n"


@pytest.mark.on_change("documents")
def test_down_cleans_up_after_a_killed_up(home: Path) -> None:
    up(home)
    os.kill(json.loads((home / "up.json").read_text())["pid"], signal.SIGKILL)
    assert processes_of(home), "the cluster outlives its owner"
    assert "what an earlier one left is removed" in mesos_gpu(home, "down").stdout
    assert left_of(home) == []


def test_up_at_a_port_in_use_is_refused(home: Path) -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        done = mesos_gpu(home, "up", "--agents", "1", "--port", str(port))
    assert done.returncode != 0
    assert done.stderr.count(f"cannot listen on 127.0.0.1:{port}") == 1
    assert "starting Mesos" not in done.stderr
    assert "--port" in done.stderr
    assert left_of(home) == []


@pytest.mark.long
def test_up_starts_two_clusters_of_one_user(home: Path, open_directory: Path) -> None:
    other = open_directory / "other"
    url = up(home)
    port = str(free_port())
    started = mesos_gpu(
        home, "--home", str(other), "up", "-d", "--agents", "1", "--gpus", "1", "--port", port
    )
    try:
        assert started.returncode == 0, started.stderr
        assert mesos_gpu(home, "run", "--", "echo", "first").stdout == "first\n"
        assert mesos_gpu(home, "--home", str(other), "run", "--", "echo", "second").stdout == "second\n"
    finally:
        down = mesos_gpu(home, "down", "--home", str(other))
    assert down.stdout == "down\n"
    assert json.loads((home / "up.json").read_text())["url"] == url
    (other / "up.log").unlink()
    other.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others have no jobs of other users")
def test_up_in_a_home_that_users_of_jobs_cannot_pass_is_refused(home: Path) -> None:
    home.chmod(0o700)
    done = mesos_gpu(home, "up", "--port", str(free_port()))
    assert done.returncode == 78, done.stderr
    assert f"below {home}, which the users that jobs run as cannot pass" in done.stderr
    assert f"chmod o+x {home}" in done.stderr


@pytest.mark.on_change("documents")
def test_tasks_reach_each_other_by_their_hosts_names(home: Path) -> None:
    """By a port of any number that is free on the node, and by one that every node has."""
    up(home, "--agents", "2")
    hosts = sorted(node["hostname"] for node in json.loads(mesos_gpu(home, "nodes", "--json").stdout))
    assert hosts == ["127.0.0.11", "127.0.0.12"]
    (port,) = re.findall(r"ports of every node +(\d+) to", (home / "up.log").read_text())
    serve = "cd $MESOS_SANDBOX && echo $HOST > name && exec python3 -m http.server --bind $HOST $PORT0"
    common = ["--detach", "--port", port, "--shell"]
    for host in hosts:
        placed = ["--constraint", f"hostname:CLUSTER:{host}", "--name", f"on-{host}"]
        done = mesos_gpu(home, "run", *common, *placed, "--", serve)
        assert done.returncode == 0, done.stderr
    for host in hosts:
        try:
            assert wait_until("it serves", partial(_get, f"http://{host}:{port}/name"), 60) == f"{host}\n"
        except AssertionError as error:
            raise AssertionError(mesos_gpu(home, "ps", "--all", "--json").stdout) from error


def _get(url: str) -> str:
    try:
        return requests.get(url, timeout=10).text
    except requests.ConnectionError:
        return ""


@pytest.fixture
def demo(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a demo that has its master already, in a directory below `home`."""
    command = [sys.executable, "-m", "mesos_gpu", "demo"]
    env = {**os.environ, "MESOS_GPU_HOME": str(home), "TMPDIR": str(home)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until("Mesos runs", lambda: len(processes_of(home)) >= 3, 60)
        yield process
        process.kill()


@pytest.mark.on_change("documents")
def test_a_demo_that_is_interrupted_twice_leaves_nothing(home: Path, demo: subprocess.Popen[bytes]) -> None:
    for _ in range(3):
        demo.send_signal(signal.SIGINT)
        time.sleep(0.3)
    demo.wait(60)
    assert left_of(home) == []


@pytest.mark.on_change("documents")
def test_down_cleans_up_after_a_killed_demo(
    home: Path, demo: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(home))
    assert mesos_gpu(home, "down").stdout == "it is not up\n", "a demo that runs is left alone"
    demo.kill()
    demo.wait(60)
    assert processes_of(home)
    assert "what an earlier one left is removed" in mesos_gpu(home, "down").stdout
    assert left_of(home) == []


def processes_of(home: Path) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        try:
            if any(str(home) in value for value in process.environ().values()):
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def scheduler_of(home: Path) -> psutil.Process:
    """Return the scheduler of a home; wait until it has its own arguments, which it has not as soon as it is forked."""

    def seen() -> list[psutil.Process]:
        return [p for p in processes_of(home) if "mesos_gpu.scheduler" in " ".join(p.cmdline())]

    (scheduler,) = wait_until("its scheduler runs", seen)
    return scheduler


def left_of(home: Path) -> list[str]:
    left = [f"{p.pid} {p.cmdline()}" for p in processes_of(home)]
    return left + [str(p) for p in home.iterdir() if p.name != "up.log"]


@pytest.mark.on_change("documents")
def test_up_by_https_is_found_and_believed_by_every_command(home: Path, tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    own, away = ca.server(), ca.server("away", "gpu.example.com")
    refused = mesos_gpu(home, "up", "--tls-cert", str(away.cert), "--tls-key", str(away.key))
    assert (refused.returncode, "certificate for gpu.example.com, not for" in refused.stderr) == (78, True)
    port = free_port()
    words = ["--agents", "1", "--port", str(port), "--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    done = mesos_gpu(home, "up", "--detach", *words)
    assert done.returncode == 0, done.stderr
    assert f"dashboard and REST interface  https://127.0.0.1:{port}" in done.stdout
    (code := tmp_path / "code").mkdir()
    (code / "hello").write_text("came by https\n")
    brought = mesos_gpu(home, "run", "--upload", str(code), "--", "cat", "hello")
    assert (brought.returncode, brought.stdout) == (0, "came by https\n"), brought.stderr
    status = mesos_gpu(home, "status")
    assert (status.returncode, status.stderr) == (0, "")
    assert f"dashboard  https://127.0.0.1:{port}" in status.stdout
    assert "tls        CN=localhost,O=Example, until 20" in status.stdout
    doctor = json.loads(mesos_gpu(home, "doctor", "--json").stdout)
    said = {each["check"]: each for each in doctor if each["check"] in ("scheduler", "tls")}
    assert {each["level"] for each in said.values()} == {"OK"}
    ca.server()  # renewed, under what the command line believes
    wait_until("the new one is believed", lambda: mesos_gpu(home, "ps").returncode == 0)
    assert mesos_gpu(home, "down").returncode == 0
