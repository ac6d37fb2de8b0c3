"""Modules of the core take time and chance as arguments: the linter refuses clocks and random draws there."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

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


CORE = ("access", "model", "policy/room", "wire/mesos", "engine")


def test_linter_refuses_clocks_and_chance_in_core_modules_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "ruff.toml", tmp_path)
    written = {
        f"mesos_gpu/{package}/{name.replace(' ', '_')}.py": source
        for package in (*CORE, "scheduler")
        for name, source in (*SOURCES.items(), ("harmless", HARMLESS))
    }
    for path, source in written.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--no-cache", "--select", "TID251", "--output-format", "json", "."]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 1, done.stderr
    refused = {str(Path(each["filename"]).relative_to(tmp_path)) for each in json.loads(done.stdout)}
    assert refused == {
        path
        for path in written
        if not path.startswith("mesos_gpu/scheduler") and not path.endswith("harmless.py")
    }
