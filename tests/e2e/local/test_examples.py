"""The examples of training, run as their first lines say: several tasks with live output, a sweep, torch over Gloo."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
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
PYTHON = "/usr/bin/python3"  # that of tasks, whose PATH is fixed
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


@pytest.fixture(scope="module")
def torch() -> Iterator[Path]:
    """Where tasks find PyTorch and torchrun: below a directory that all may read, and that no task has for itself."""
    version = subprocess.check_output([PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-torch-", dir="/opt"))
    try:
        directory.chmod(0o755)
        installed = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory), "--only-binary",
             ":all:", "--python-version", version.decode().strip(), "torch==2.13.0+cpu", "numpy"],
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        if installed.returncode != 0:
            pytest.skip(f"no PyTorch for CPUs can be had here: {installed.stderr.strip()[-200:]}")
        program = directory / "bin" / "torchrun"
        program.write_text(f"#!{PYTHON}\nfrom torch.distributed.run import main\n\nmain()\n")
        yield directory
    finally:
        shutil.rmtree(directory)


def torch_commands() -> list[str]:
    """Commands of the documents that run the example by torchrun, each once."""
    root = EXAMPLES.parents[1]
    pages = [EXAMPLES / "ddp.py", root / "README.md", *sorted((root / "docs").glob("*.md"))]
    by_page = (
        re.findall(r"mesos-gpu run --upload docs/examples [^`\n]*ddp\.py", page.read_text()) for page in pages
    )
    return sorted({command for commands in by_page for command in commands})


def printed(command: str, torch: Path) -> list[str]:
    """Words of a command of the documents behind `--upload DIR`; in place of an image the host has PyTorch."""
    options, _, program = command.partition(" -- ")
    words = shlex.split(options)[4:]
    if "--image" in words:
        place = words.index("--image")
        del words[place : place + 2]
    env = ["--env", f"PYTHONPATH={torch}", "--env", f"PATH={torch}/bin:/usr/bin:/bin"]
    return [*words, *env, "--", *shlex.split(program)]


def test_documents_print_commands_for_torch_on_one_node_and_on_several() -> None:
    commands = torch_commands()
    assert len(commands) == 3, commands
    assert not any("--mem" in command or "--cpus" in command for command in commands)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others have no directory that all tasks see")
@pytest.mark.parametrize("command", torch_commands())
def test_torch_commands_run_as_the_documents_print_them(stack: Stack, torch: Path, command: str) -> None:
    with staying(stack, *printed(command, torch)) as process:
        out, errors = process.communicate(timeout=570)
    assert process.returncode == 0, errors
    assert out.count("rank 0 step") == 10


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others have no directory that all tasks see")
def test_torch_example_trains_on_two_nodes_and_leaves_a_checkpoint(
    stack: Stack, torch: Path, tmp_path: Path
) -> None:
    env = ("--env", f"PYTHONPATH={torch}", "--env", f"PATH={torch}/bin:/usr/bin:/bin")
    needs = ("--gpus", "1", "--constraint", "hostname:UNIQUE")
    with staying(
        stack, *needs, *env, "--tasks", "2", "--", "torchrun", "ddp.py", "--steps", "100000"
    ) as process:
        read(process, "[0] rank 0 of 2 on cpu, gloo", "[1] rank 1 of 2 on cpu, gloo", "[0] rank 0 step 200 ")
        job = latest(stack)
        assert (
            mesos_gpu(stack, "exec", job, "--rank", "1", "--", "printenv", "RANK", "PET_NODE_RANK")
            == "1\n1\n"
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    with staying(stack, *needs, *env, "--tasks", "2", "--", "torchrun", "ddp.py") as process:
        out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("[1] rank 1 step")]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 10
    mesos_gpu(stack, "cp", f"{latest(stack)}:checkpoint.pt", str(tmp_path))
    load = "import sys, torch; print(torch.load(sys.argv[1])['step'])"
    step = subprocess.check_output(
        [PYTHON, "-c", load, str(tmp_path / "checkpoint.pt")], env={"PYTHONPATH": str(torch)}, text=True
    )
    assert step == "200\n"
