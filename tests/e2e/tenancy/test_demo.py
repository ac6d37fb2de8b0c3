"""`make demo-tenants`: the story of several teams on one pool of a real Mesos, and its output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.long
def test_demo_of_tenants_runs_to_its_end(tmp_path: Path) -> None:
    env = {**os.environ, "MESOS_GPU_HOME": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "mesos_gpu", "demo", "--tenants"]
    told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "\x1b" not in told.stdout
    for words in ("production is guaranteed two whole nodes", "MESOS_GPU_NOTICE", "makes room for job"):
        assert words in told.stdout, told.stdout
    assert re.search(r"^ +dev/vision +0 +- +16 +16 ", told.stdout, re.MULTILINE), told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 200
