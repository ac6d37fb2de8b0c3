"""kill -9 of an executor at steps of a launch with an image: nothing stays of its root, and no half layer is used."""

import pwd
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from isolator.host import processes
from isolator.node.reaper import reap
from tests.conftest import wait_until
from tests.doubles.images import busybox_layer, save
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import GPUS, host
from tests.kernel.conftest import needs
from tests.kernel.test_kill_at_every_step import bootstrap, traces_of

pytestmark = pytest.mark.kernel
APPLETS = ["sh", "true"]
NOBODY = pwd.getpwuid(65534).pw_name


@pytest.mark.parametrize("steps", [(150,), pytest.param(range(5, 2000, 4), marks=pytest.mark.long)])
def test_kill_in_a_launch_of_an_image_is_undone(
    open_directory: Path, steps: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("cgroup2")
    busybox = shutil.which("busybox")
    if busybox is None or subprocess.run(["ldd", busybox], capture_output=True, check=False).returncode == 0:
        pytest.skip("no static busybox (Debian: busybox-static)")
    base = busybox_layer(Path(busybox), APPLETS)
    save(open_directory / "archives", "plain:1", [base], {"Env": ["PATH=/bin"]})
    command = bootstrap("prepare", "start", "undo", "seal")
    monkeypatch.setattr("tests.hosts.executor_command", lambda: command)
    node = open_directory / f"kills-{time.monotonic_ns()}"
    node.mkdir()
    killed: list[str] = []
    for number in steps:
        now = time.monotonic_ns()
        task, container, cache = f"job-{number}-{now}.0", f"step-{number}-{now}", node / f"cache-{number}"
        given = {
            "MESOS_GPU_ISOLATION": "cgroup2", "MESOS_GPU_IMAGE_REGISTRY": str(open_directory / "archives"),
            "MESOS_GPU_IMAGE_CACHE": str(cache),
        }  # fmt: skip
        with (
            scripted_agent() as agent,
            host(node, agent, task=task, container=container, **given, KILL_AT=str(number)) as one,
        ):
            one.launch("true", image="plain:1", user=NOBODY, gpus=GPUS)
            if one.process.wait(60) == 0:
                assert one.states()[-1] == "TASK_FINISHED"
                break
            killed.append(one.stderr().splitlines()[-1])
            reap(one.ledger)
            assert traces_of(container) == [], killed[-1]
            assert one.ledger.holdings() == (), killed[-1]
            assert [*cache.glob("roots/*")] == [], killed[-1]
            gone = partial(processes.of_task, task)
            wait_until("nothing of it runs", lambda gone=gone: gone() == [], 30)  # type: ignore[misc]
        for tree in (path for path in cache.glob("*") if path.suffix == "" and path.name != "roots"):
            assert (tree / "bin/busybox").stat().st_size == Path(busybox).stat().st_size, killed[-1]
            assert {path.name for path in (tree / "bin").iterdir()} == {"busybox", *APPLETS}
        with scripted_agent() as agent, host(node, agent, **given, KILL_AT="0") as one:
            one.launch("true", image="plain:1", user=NOBODY, gpus=GPUS)
            one.end("TASK_FINISHED")
        assert [*cache.glob("*.part")] == [], killed[-1]
    if len(steps) > 1:
        assert len(killed) > 40, killed
        assert "_write" in {step.split()[4] for step in killed}, "files of the layer"
    else:
        assert len(killed) == len(steps), "the launch came through"
