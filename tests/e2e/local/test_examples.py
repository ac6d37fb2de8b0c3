"""The examples of training, run as their first lines say: several tasks with live output, and a sweep."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import command
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("documents")]
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SMALL = ("--cpus", "0.2", "--mem", "64")


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(4)] * 2) as running:
        with Client(running.url) as client:
            wait_until("the nodes report", lambda: len(client.gpus()) == 8)
        yield running


def words(stack: Stack, *said: str) -> list[str]:
    return [sys.executable, "-m", "mesos_gpu", "--url", stack.url, *said]


def mesos_gpu(stack: Stack, *said: str) -> str:
    done = command("--url", stack.url, *said)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@contextmanager
def staying(stack: Stack, *said: str) -> Iterator["subprocess.Popen[str]"]:
    """`mesos-gpu run` of docs/examples, while it stays with the job."""
    argv = words(stack, "run", "--upload", str(EXAMPLES), *said)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def read(process: "subprocess.Popen[str]", *beginnings: str) -> None:
    """Read lines until one begins with each of these."""
    assert process.stdout is not None
    missing = set(beginnings)
    for line in process.stdout:
        missing = {each for each in missing if not line.startswith(each)}
        if not missing:
            return
    assert process.stderr is not None
    pytest.fail(f"{missing} did not come: {process.stderr.read()}")


def latest(stack: Stack) -> str:
    with Client(stack.url) as client:
        return str(client.jobs()[0]["id"])


def test_ring_example_shows_live_output_and_ends_with_its_run(stack: Stack, tmp_path: Path) -> None:
    with staying(stack, *SMALL, "--gpus", "1", "--tasks", "2", "--", "python3", "ring.py", "--steps", "9999",
                 "--pause", "0.3") as process:  # fmt: skip
        read(process, "[0] rank 0 of 2", "[1] rank 1 of 2", "[0] step 20", "[1] step 20")
        job = latest(stack)
        assert process.poll() is None, "live: the job still runs"
        assert mesos_gpu(stack, "exec", job, "--rank", "1", "--", "printenv", "RANK") == "1\n"
        kept = json.loads(mesos_gpu(stack, "exec", job, "--rank", "1", "--", "cat", "checkpoint.json"))
        assert kept["step"] >= 20
        assert kept["weights"] == pytest.approx([3, -2, 0.5], abs=1), "the ranks learn the same"
        mesos_gpu(stack, "cp", f"{job}:checkpoint.json", str(tmp_path / "now"))
        assert json.loads((tmp_path / "now").read_text())["step"] >= 20
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    mesos_gpu(stack, "cp", f"{job}:checkpoint.json", str(tmp_path / "last"))
    assert json.loads((tmp_path / "last").read_text())["step"] >= 20, "also after the end"
    assert process.returncode == 130, errors
    assert f"job {job} killed" in errors


def test_sweep_example_sends_its_code_once_and_its_jobs_learn_the_same(stack: Stack) -> None:
    jobs = mesos_gpu(stack, "submit", str(EXAMPLES / "sweep.yaml")).split()
    assert len(jobs) == 3
    mesos_gpu(stack, "wait", *jobs, "--timeout", "60s")
    assert set(mesos_gpu(stack, "ps", "--all", "-q", "--label", "sweep=lr").split()) == set(jobs)
    for job in jobs[1:]:
        said = mesos_gpu(stack, "logs", job).splitlines()[-1]
        assert said.startswith("weights")
        assert [float(word) for word in said.split()[1:]] == pytest.approx([3, -2, 0.5], abs=0.1)
