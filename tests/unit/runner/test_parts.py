"""Files of tests dealt among workers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner import parts

ROOT = Path(__file__).parents[3]
WEIGHTS = st.dictionaries(
    st.integers(0, 999).map(lambda number: Path(f"/t/test_{number}.py")), st.floats(0, 100), max_size=40
)


@given(weights=WEIGHTS, workers=st.integers(1, 5))
def test_deal_gives_each_file_to_one_worker_and_balances(weights: dict[Path, float], workers: int) -> None:
    dealt = parts.deal(weights, workers)
    assert sorted(path for part in dealt for path in part) == sorted(weights)
    sums = [sum(weights[path] for path in part) for part in dealt]
    assert max(sums) - min(sums) <= max(weights.values(), default=0.0) + 1e-6


def test_deal_spreads_files_that_take_nothing() -> None:
    dealt = parts.deal({Path(name): 0.0 for name in "abcdefg"}, 3)
    assert sorted(map(len, dealt)) == [2, 2, 3]


def test_files_are_those_below_the_arguments(tmp_path: Path) -> None:
    for name in ("a/test_one.py", "a/b/test_two.py", "a/helper.py", "c/test_three.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = parts.list_files([f"{tmp_path}/a", f"{tmp_path}/c/test_three.py::test_x"])
    assert [path.name for path in listed] == ["test_two.py", "test_one.py", "test_three.py"]


def test_weight_of_a_file_is_what_was_measured_or_follows_from_its_lines() -> None:
    path = Path(__file__)
    name = path.relative_to(parts.TESTS).as_posix()
    assert parts.weigh(path, {name: 7.0}) == 7.0
    lines = len(path.read_text().splitlines())
    assert parts.weigh(path, {}) == pytest.approx(lines * parts.SECONDS_PER_LINE["unit"])


@pytest.mark.on_change("runner")
@pytest.mark.parametrize("named", [False, True], ids=["folder", "files"])
def test_workers_run_each_test_once(tmp_path: Path, named: bool) -> None:
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text(f"def test_{number}(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.runner.parts", "-n", "2", "--dist", "each", "-v"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path)]
    command += map(str, sorted(tmp_path.glob("test_*.py")) if named else [tmp_path])
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    passed = re.findall(r"(gw\d).*PASSED \S*::test_(\d)", done.stdout)
    assert sorted(number for _, number in passed) == list("012345")
    assert {worker for worker, _ in passed} == {"gw0", "gw1"}
