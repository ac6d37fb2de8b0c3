"""Another job of one's own user, as an attacker: what it gets of helpers of a task, and of the task. v1 and v2."""

import errno
import json
import os
import platform
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mesos_gpu.libmesos import helpers
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import GPUS, host
from tests.kernel.conftest import needs
from tests.kernel.test_isolation import PYTHON, nodes

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the attacker's code is for x86-64"),
]
ATTACKER = Path(__file__).parent / "attacker.py"
NOBODY = 65534


def attack(mark: str, device: Path, directory: Path) -> "subprocess.Popen[str]":
    """By a process of the user nobody that nothing keeps: stronger than any job."""
    program = directory / "attacker.py"
    program.write_text(ATTACKER.read_text())
    return subprocess.Popen(
        [PYTHON, str(program), mark, str(device)],
        user=NOBODY, group=NOBODY, extra_groups=(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def slow_tar(directory: Path, seconds: str) -> str:
    """A PATH in which tar takes its time, and a process of its own name."""
    bin = directory / "bin"
    bin.mkdir()
    (bin / "tar").write_text(f'#!/bin/sh\nsleep {seconds}\nexec /bin/tar "$@"\n')
    (bin / "tar").chmod(0o755)
    return f"{bin}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("kept", "got"),
    [("cgroup1", errno.EPERM), ("cgroup2", errno.EPERM), ("off", errno.ENXIO)],
    ids=["v1", "v2", "isolation off, where the attack works"],
)
def test_unpacking_of_an_archive_opens_no_card_for_another_job(
    open_directory: Path, agent: ScriptedAgent, kept: str, got: int
) -> None:
    needs("cgroup1" if kept == "off" else kept)
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "weights").write_text("7")
    with tarfile.open(directory / "model.tgz", "w:gz") as archive:
        archive.add(directory / "weights", "model/weights")
    helpers.write(directory / "libexec", directory)
    seconds = f"2.{os.getpid()}{time.monotonic_ns() % 1000}"
    given = {
        "MESOS_GPU_FETCHER": f"{directory}/libexec/mesos-fetcher",
        "PATH": slow_tar(directory, seconds),
        "MESOS_GPU_ISOLATION": kept,
    }
    with host(directory, agent, **given) as one:
        nodes(one)
        attacking = attack(seconds, one.sandbox / "nvidia1", directory)
        one.launch(
            "cat model/weights; stat -c %U model; ls -A -I '.*mesos-gpu-times*'", user="nobody", gpus=GPUS[:1],
            fetch=({"value": f"{directory}/model.tgz"},),
        )  # fmt: skip
        said = json.loads(attacking.communicate(timeout=60)[0])
        one.end("TASK_FINISHED")
        assert said["open"] == got, "ENXIO: the card's driver would have been asked"
        assert one.stdout().split() == [
            "7nobody", "caps", "containers", "executor.log", "model", "model.tgz", "nvidia0",
            "nvidia1", "nvidia2", "nvidiactl", "stderr", "stdout",
        ]  # fmt: skip


@pytest.fixture
def victim(open_directory: Path, agent: ScriptedAgent) -> Iterator[tuple[Path, str]]:
    """A job of nobody's that sleeps, in a directory of its own; and for how long, which no other process does."""
    needs("cgroup1")
    directory = open_directory / f"victim-{time.monotonic_ns()}"
    directory.mkdir()
    directory.chmod(0o755)
    seconds = f"600.{os.getpid()}{time.monotonic_ns() % 1000}"
    with host(directory, agent, task=f"victim.{seconds}") as one:
        nodes(one)
        one.launch(f"exec sleep {seconds}", user="nobody", gpus=GPUS[:1])
        one.update("TASK_RUNNING")
        yield one.sandbox, seconds
        one.kill()
        one.end("TASK_KILLED")


DENIED = {
    "open": errno.EPERM,
    "mem": errno.EACCES,
    "seize": errno.EPERM,
    "vm": errno.EPERM,
    "fd": errno.EPERM,
}
OPEN_TO_ALL = {"open": errno.ENXIO, "mem": 0, "seize": 0, "vm": errno.EFAULT, "fd": 0, "kill": 0}


@pytest.mark.parametrize(
    ("how", "got"),
    [
        ("auto", DENIED),
        ("strict", {**DENIED, "kill": errno.EPERM}),
        ("off", OPEN_TO_ALL),
    ],
)
def test_a_job_cannot_use_another_of_its_user(
    victim: tuple[Path, str], open_directory: Path, how: str, got: Mapping[str, int]
) -> None:
    """`off` shows that the attack works: the other's card is opened, from the other's cgroup."""
    sandbox, seconds = victim
    directory = open_directory / f"attacker-{time.monotonic_ns()}"
    directory.mkdir()
    directory.chmod(0o755)
    with (
        scripted_agent() as agent,
        host(directory, agent, task=f"attacker.{seconds}", MESOS_GPU_TASK_FILTER=how) as one,
    ):
        (one.sandbox / "attacker.py").write_text(ATTACKER.read_text())
        one.launch(f"{PYTHON} attacker.py {seconds} {sandbox}/nvidia0", user="nobody")
        one.end("TASK_FINISHED")
        said = json.loads(one.stdout())
    assert {name: said[name] for name in got} == got
