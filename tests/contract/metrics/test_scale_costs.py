"""Costs of launches and reports of `bench scale`, beside a fixed loop and a stored baseline of the same run."""

import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[3]
BASELINE: Final = ROOT / "tests" / "data" / "scale.toml"
RUN: Final = ("--agents", "500", "--running", "1500", "--jobs", "2000", "--seconds", "3", "--json")
MIN_RATIO: Final = 0.8  # to the baseline; rounds of one program differ by a tenth
ROUNDS: Final = 3
LOOPS: Final = 300


def loops_per_cpu_s() -> float:
    """Measure the fixed loop, which allocates, hashes and sorts, as a scheduler does."""
    began = time.thread_time()
    for _ in range(LOOPS):
        made = {f"task-{number}": (number * 7919 % 1000, number) for number in range(1000)}
        assert sorted(made.items(), key=itemgetter(1))[0][0] == "task-0"
    return LOOPS / (time.thread_time() - began)


def bench_scale() -> dict[str, Any]:
    command = [sys.executable, "-m", "bench", "scale", *RUN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ)
    return dict(json.loads(done.stdout))


def rates() -> dict[str, float]:
    """Give operations of the scheduler's thread for each loop, in its processor time."""
    before, told = loops_per_cpu_s(), bench_scale()
    loops = (before + loops_per_cpu_s()) / 2
    return {
        "launches": told["launches_per_cpu_s"] / loops,
        "engine_launches": told["engine_launches_per_cpu_s"] / loops,
        "reports": 50 / (told["idle_core_pct"] / 100) / loops,  # 500 agents report every 10 s
    }


@pytest.mark.long
def test_launches_and_reports_cost_no_more_than_the_baseline() -> None:
    stored = tomllib.loads(BASELINE.read_text(encoding="utf-8"))
    rounds = [rates() for _ in range(ROUNDS)]
    measured = {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}
    too_few = [name for name, rate in measured.items() if rate < MIN_RATIO * stored["rates"][name]]
    assert not too_few, (
        f"{too_few} of {measured} are less than {MIN_RATIO} of commit {stored['commit']}: {stored}"
    )
