"""Every command of the README and the guide, in their order, on the cluster that they start."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mesos_gpu
from mesos_gpu.local.cluster import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(mesos_gpu.__file__).parents[1]
# What a line must begin with, and why it cannot run here.
NOT_HERE = {
    "make ": "sets the machine up, or runs these tests",
    ". .venv/bin/activate": "the test's PATH has it",
    "mesos-gpu run --gpus 1 --image": "no registry of images is reachable",
    "mesos-gpu context add lab --url https://gpu.example.org": "that host stands for a real one",
    "mesos-gpu login": "somebody has to open a page",
    "mesos-gpu scheduler --master HOST": "HOST stands for a real cluster",
}
# Exit codes besides 0, and why.
ALSO = {
    "mesos-gpu app scale web +1": {1},  # diff: the file says another number of instances now
    "mesos-gpu doctor": {1},  # this machine is no GPU host
    "mesos-gpu volume plan": {1, 66, 78},  # it has no NVIDIA driver
    "mesos-gpu plan defrag": {1},  # there is no such room
}
# What the guide's app runs, which this machine does not have.
SERVE = "touch health; exec python3 -m http.server $PORT0"


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(document: str) -> list[str]:
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [re.sub(r"\s+# .*$", "", line) for line in lines if line.strip()]


@pytest.fixture
def home(open_directory: Path) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(dir=open_directory))
    home.chmod(0o755)
    yield home
    shell("mesos-gpu down", home)
    shutil.rmtree(home)


def shell(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a person types it, in a directory of its own, with a port that is free for `up`."""
    env = {
        **os.environ,
        "MESOS_GPU_HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    env.pop("MESOS_GPU_URL", None)
    line = line.replace("mesos-gpu up ", f"mesos-gpu up --port {free_port()} ")
    return subprocess.run(
        ["bash", "-c", line], cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )  # fmt: skip


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md"])
def test_every_command_works_in_its_order(document: str, home: Path) -> None:
    for block in blocks("docs/guide.md", "yaml"):
        if "id: /shop/model" in block:
            (home / "model.yaml").write_text(re.sub(r"(?m)^cmd: .*$", f"cmd: {SERVE}", block))
    lines = commands(document)
    assert len(lines) > 8, "they are found"
    for line in lines:
        rest = line.removeprefix("make setup && . .venv/bin/activate")
        if not rest or any(rest.startswith(word) for word in NOT_HERE):
            continue
        done = shell(rest, home)
        good = {0, *(code for word, codes in ALSO.items() if rest.startswith(word) for code in codes)}
        assert done.returncode in good, f"{document}: {rest}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, rest
