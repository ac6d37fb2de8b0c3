"""Tasks of one user on one host: what each is given of the agent's environment, and whom its commands may signal."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolator.runs.environment import PASSED
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.testing import dockerd
from tests.clients import client_of
from tests.conftest import wait_until
from tests.e2e.hosts.test_tries import FORMS, PYTHON, images

__all__ = ["images"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
#: Of the agent: what operators have there, and what is ours.
CANARIES = {
    "https_proxy": "http://user:CANARY@proxy:3128",
    "AWS_SECRET_ACCESS_KEY": "CANARY",
    "KUBECONFIG": "CANARY",
    "MESOS_GPU_VOLUME_ROOTS": "/CANARY",
    "MESOS_GPU_FETCH_LIMIT": "77777",
    "MESOS_CREDENTIAL": "CANARY",
    "LIBPROCESS_SSL_KEY_FILE": "/CANARY",
    "LD_PRELOAD_OF_AGENT": "CANARY",
}
GIVEN = {
    "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_SANDBOX", "MESOS_TASK_ID", "MESOS_GPU_JOB_ID",
    "MESOS_GPU_ATTEMPT", "MESOS_GPU_NOTICE", "MESOS_GPU_CHECKPOINT", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "PATH", "HOST", "NO_PROXY",
}  # fmt: skip
#: Beside those, by the form of the task: a process of the host, and what the image, the agent and the engine add.
BESIDE: Mapping[str, set[str]] = {
    "process": {"MESOS_DIRECTORY", "HOME", "USER", "LOGNAME", "PYTHONUNBUFFERED", "LC_MESSAGES", "TZ"},
    "nested": {"PYTHONHOME"},
    "docker": {"PYTHONHOME", "HOME", "HOSTNAME"},
}


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path) -> Iterator[Stack]:
    given = {**CANARIES, "NO_PROXY": "localhost", PASSED: "NO_PROXY", "LC_MESSAGES": "C", "TZ": "UTC"}
    with (
        dockerd.Dockerd() as engine,
        Stack(
            open_directory / "of-one-user",
            [NodeSpec(1)],
            images=images,
            devices="mesos",
            executor_environment={**given, "MESOS_GPU_DOCKER_SOCKET": str(engine.socket)},
        ) as stack,
    ):
        engine.load(images / "tries:1.tar")
        with client_of(stack, 1):
            pass
        yield stack


@contextmanager
def running(stack: Stack, form: str, **more: object) -> Iterator[str]:
    """A job of that form, as the user nobody, until the end of the block."""
    with Client(stack.url) as client:
        client.patience_s = 60
        request = {"name": f"one-{form}", "cpus": 0.1, "mem_mib": 64, "user": "nobody", **FORMS[form]}
        job = client.submit({"command": "exec sleep 600", **request, **more})["id"]
        try:
            wait_until("it runs", lambda: client.job(job)["state"] == "running", 60)
            yield job
        finally:
            client.kill(job)
            wait_until("it has ended", lambda: client.job(job)["ended_at"], 60)


def run_in(stack: Stack, job: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    """A command in a job, by `exec`."""
    words = [sys.executable, "-m", "mesos_gpu", "exec", "--url", stack.url, job, "--", *argv]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def python_of(form: str) -> str:
    return PYTHON if form == "process" else "/usr/bin/python3"


OF_PROGRAMS = {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}  # what shells and Python set themselves
NAMES = "import os; print(*sorted(os.environ)); print(*os.environ.values())"


@pytest.mark.parametrize("form", FORMS)
def test_environment_of_a_task_is_what_the_documents_list(stack: Stack, form: str) -> None:
    """The names that a task and a command in it see are exactly those that docs/isolation.md lists; the values of the
    agent's other variables are nowhere."""
    script = f"{python_of(form)} -c '{NAMES}' > \"$MESOS_SANDBOX/seen\"; exec sleep 600"
    with running(stack, form, command=script, env={"OWN": "1"}) as job:
        own = wait_until(
            "it says", lambda: run_in(stack, job, "/bin/sh", "-c", 'cat "$MESOS_SANDBOX/seen"').stdout
        )
        of_command = run_in(stack, job, python_of(form), "-c", NAMES)
    names = set(own.splitlines()[0].split())
    assert names - OF_PROGRAMS == {*GIVEN, *BESIDE[form], "OWN"}
    assert set(of_command.stdout.splitlines()[0].split()) - names <= {"MESOS_GPU_CHANNEL"}, of_command
    assert "CANARY" not in own + of_command.stdout
    documented = Path("docs/isolation.md").read_text()
    assert [name for name in sorted(GIVEN - {"NO_PROXY", "HOST"}) if f"`{name}`" not in documented] == []
