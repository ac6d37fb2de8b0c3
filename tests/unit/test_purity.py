"""The core is told the time and what was drawn: the linter refuses what reads a clock or draws a chance there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "the time of day": "from datetime import datetime\n\nNOW = datetime.now()\n",
    "the day": "from datetime import date\n\nTODAY = date.today()\n",
    "a clock": "import time\n\nNOW = time.monotonic()\n",
    "an id by chance": "from uuid import uuid4\n\nID = uuid4()\n",
    "a secret": "import secrets\n\nKEY = secrets.token_bytes(8)\n",
    "a number by chance": "from random import random\n\nX = random()\n",
}
HARMLESS = """
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

X = datetime.fromtimestamp(0, UTC), uuid5(NAMESPACE_URL, "")
"""


def refusals(source: str, name: str) -> int:
    """How many uses of what is banned the linter finds in a file of that name."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--no-cache", "--select", "TID251", "--output-format", "concise"]
    run = subprocess.run(
        [*command, "--stdin-filename", name, "-"], input=source, cwd=ROOT, text=True, capture_output=True
    )
    assert run.returncode in (0, 1), run.stderr
    return run.stdout.count("TID251")


@pytest.mark.parametrize("package", ["access", "model", "policy/room", "wire/mesos", "engine"])
@pytest.mark.parametrize("what", SOURCES)
def test_the_core_is_refused(what: str, package: str) -> None:
    assert refusals(SOURCES[what], f"mesos_gpu/{package}/invented.py") > 0


@pytest.mark.parametrize("what", SOURCES)
def test_the_shell_may_read(what: str) -> None:
    assert refusals(SOURCES[what], "mesos_gpu/scheduler/invented.py") == 0


def test_the_core_may_reckon_with_times_and_ids_that_it_is_given() -> None:
    assert refusals(HARMLESS, "mesos_gpu/engine/invented.py") == 0
