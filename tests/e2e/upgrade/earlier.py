"""An earlier program, from this repository's history: its scheduler, and the archive that its hosts run."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import pytest

from mesos_gpu.local.stack import SchedulerProcess

ROOT: Final = Path(__file__).parents[3]
#: The last that speaks wire 1 alone. A later release of ours takes its place once hosts of this one need not be met.
EARLIER: Final = "d8d7696de82d1dbe9ef15ec986b9e9659bbc079d"
#: The last whose schedulers, several of one cluster, know nothing of webhooks in their log.
HA_EARLIER: Final = "0e15dce36d8a5c0313c39e33c254fb5d64e976f6"
OURS: Final = ("mesos_gpu", "isolator", "volumes")


def unpacked(into: Path, commit: str = EARLIER) -> Path:
    """The sources of an earlier program, in a new directory."""
    told = subprocess.run(["git", "archive", commit, *OURS], cwd=ROOT, capture_output=True)
    if told.returncode:
        pytest.skip(f"the history of git, with {commit[:12]}, is not in this clone")
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", str(into)], input=told.stdout, check=True)
    return into


def archive_of(tree: Path, into: Path) -> Path:
    """The mesos-gpu-executor.pyz of a tree of sources."""
    program = (
        "import sys; from pathlib import Path; "
        "from mesos_gpu.install.archive import build; build(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "-c", program, str(into)], cwd=tree, env=environment, check=True)
    return into


def with_wires(into: Path, wire: int, oldest: int) -> Path:
    """These sources, whose programs speak other versions of messages."""
    packed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *OURS],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in packed.stdout.splitlines():
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    path = into / "mesos_gpu/model/nodes/wires.py"
    text = re.sub(r"^WIRE: Final = \d+", f"WIRE: Final = {wire}", path.read_text(), flags=re.M)
    path.write_text(re.sub(r"^OLDEST: Final = \d+", f"OLDEST: Final = {oldest}", text, flags=re.M))
    return into


class AnyScheduler(SchedulerProcess):
    """A scheduler whose program can be another at each start."""

    tree: Path = ROOT

    def start(self, *more: str) -> Self:
        """Start the program of `tree`."""
        with contextlib.chdir(self.tree):  # where Python looks for it first
            return super().start(*more)
