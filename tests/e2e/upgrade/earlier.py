"""An earlier program, from this repository's history: its scheduler, and the archive that its hosts run."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
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
FETCH_S: Final = 60


def unpacked(into: Path, commit: str = EARLIER, *, clone: Path = ROOT, parts: Sequence[str] = OURS) -> Path:
    """The sources of an earlier program, in a new directory. A shallow clone fetches that commit, if it can."""
    archive = ["git", "archive", commit, *parts]
    told = subprocess.run(archive, cwd=clone, capture_output=True)
    if told.returncode and _is_fetched(clone, commit):
        told = subprocess.run(archive, cwd=clone, capture_output=True)
    if told.returncode:
        pytest.skip(f"the history of git, with {commit[:12]}, is not in this clone: git fetch --unshallow")
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", str(into)], input=told.stdout, check=True)
    return into


def _is_fetched(clone: Path, commit: str) -> bool:
    """Fetch one commit into a shallow clone; whether that was done. Nothing asks for a password; no branch moves."""
    asked = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=clone, capture_output=True, text=True
    )
    if asked.stdout.strip() != "true":
        return (
            False  # what a whole clone lacks no remote has; to fetch one commit alone would make it shallow
        )
    fetch = ["git", "fetch", "--quiet", "--no-tags", "--depth=1", "--no-write-fetch-head", "origin", commit]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    try:
        done = subprocess.run(fetch, cwd=clone, env=environment, capture_output=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


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
    """Copy these sources with other versions of messages; return the directory."""
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
