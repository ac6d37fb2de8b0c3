"""Commands, sessions and ports of jobs with an image, by Mesos and by Docker: the same as on the host."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from mesos_gpu.testing.images import busybox_layer, save
from tests.conftest import wait_until
from tests.e2e.channel.test_exec import EVERY_BYTE, of_this, until
from tests.e2e.channel.test_sessions import terminal, words
from tests.e2e.hosts.test_image_jobs import MODES
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
MODE = "cgroup2"  # of version 1 are the host's in other tests
APPLETS = ["sh", "cat", "echo", "id", "ls", "sleep", "httpd", "grep", "test", "mkdir"]


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory = open_directory / "images"
    save(directory, "plain:1", [busybox_layer(dockerd.busybox(), APPLETS)], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def engine(images: Path) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd() as daemon:
        for archive in sorted(images.glob("*.tar")):
            daemon.load(archive)
        yield daemon


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path, engine: dockerd.Dockerd) -> Iterator[Stack]:
    needs(MODE)
    given = {"MESOS_GPU_DOCKER_SOCKET": str(engine.socket), "MESOS_GPU_ISOLATION": MODE}
    with Stack(
        open_directory / MODE,
        [NodeSpec(2)],
        images=images,
        devices=MODES[MODE],
        executor_environment=given,
    ) as stack:
        with Client(stack.url) as client:
            wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield stack


@pytest.mark.parametrize("engine_of", ["mesos", "docker"])
def test_a_command_and_a_port_of_an_image(stack: Stack, engine_of: str) -> None:
    with Client(stack.url) as client:
        serve = 'cd "$MESOS_SANDBOX"; id > who; ls /dev >> who; exec httpd -f -p 127.0.0.1:$PORT0 -h .'
        asked = {
            "name": "web",
            "image": "plain:1",
            "container_engine": engine_of,
            "command": serve,
            "ports": [0],
        }
        job = client.submit({**asked, "gpus": 1, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
        port = client.tasks(job)[0]["ports"][0]
    same = 'cd "$MESOS_SANDBOX"; cat who; echo --; id; ls /dev'
    ran = subprocess.run(words(stack, "exec", job, "--", "sh", "-c", same), capture_output=True, timeout=120)
    own, _, of_command = ran.stdout.partition(b"--\n")
    assert (own == of_command, b"nvidia" in own) == (True, True), ran
    data = EVERY_BYTE * 8192
    ran = subprocess.run(
        words(stack, "exec", job, "-i", "--", "cat"), input=data, capture_output=True, timeout=120
    )
    assert (ran.stdout == data, ran.returncode) == (True, 0), ran.stderr
    command = words(stack, "port-forward", job, f"0:{port}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as forwards:
        try:
            assert forwards.stderr is not None
            place = forwards.stderr.readline().split()[1]
            with urllib.request.urlopen(f"http://{place}/who", timeout=60) as answer:
                assert answer.read() == own
        finally:
            forwards.kill()
    with subprocess.Popen(
        words(stack, "exec", job, "--", "sh", "-c", "echo ready; exec sleep 86420"), stdout=subprocess.PIPE
    ) as lost:
        assert lost.stdout is not None
        assert lost.stdout.readline() == b"ready\n"
        assert of_this("86420")
        lost.kill()
    wait_until("nothing is left", lambda: not of_this("86420"))
    with Client(stack.url) as client:
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])


@pytest.mark.parametrize("engine_of", ["mesos", "docker"])
def test_a_job_with_an_image_has_this_terminal(stack: Stack, engine_of: str) -> None:
    options = ("--image", "plain:1", "--container-engine", engine_of, "--cpus", "0.1", "--mem", "64MiB")
    with terminal(words(stack, "run", "--name", "tty", *options, "-it", "--", "sh")) as (keys, ran):
        until(keys, b"$ ")
        os.write(keys, b"test -t 0 && echo terminal-$((40 + 2)); exit 6\n")
        until(keys, b"terminal-42\r\n")
        assert ran.wait(60) == 6
    with Client(stack.url) as client:
        jobs = [each for each in client.jobs() if each["name"] == "tty"]
        wait_until(
            "all have their code", lambda: {client.job(each["id"])["exit_code"] for each in jobs} == {6}
        )
