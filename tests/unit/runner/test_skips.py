"""Skips that make a whole run red."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner import skips

ROOT = Path(__file__).parents[3]
DEBIAN = {"ID": "debian", "VERSION_ID": "12"}


@pytest.mark.parametrize(
    ("environment", "uid", "release", "expected"),
    [
        ({}, 0, DEBIAN, True),
        ({}, 1000, DEBIAN, False),
        ({}, 0, {"ID": "ubuntu", "VERSION_ID": "24.04"}, False),
        ({}, 0, {}, False),
        ({"CI": "true"}, 1000, {}, True),
        ({"CI": "0"}, 0, DEBIAN, False),
    ],
)
def test_skip_is_judged_in_ci_and_for_root_on_debian(
    environment: dict[str, str], uid: int, release: dict[str, str], expected: bool
) -> None:
    assert skips.judged(environment, uid, release) is expected


def test_skip_list_says_why_for_each_reason() -> None:
    text = skips.ALLOWED.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(" # " in line for line in lines), lines
    assert len(skips.allowed(text)) == len(lines)


@pytest.mark.on_change("runner")
@pytest.mark.parametrize(
    ("processes", "reason", "status"),
    [("2", "no dockerd", 1), ("0", "no loop devices: losetup: cannot find one", 0)],
    ids=["not allowed", "allowed"],
)
def test_skip_that_is_not_allowed_makes_the_run_red(
    tmp_path: Path, processes: str, reason: str, status: int
) -> None:
    skip = f"import pytest\npytest.skip({reason!r}, allow_module_level=True)\n"
    (tmp_path / "test_file.py").write_text(skip)
    (tmp_path / "test_one.py").write_text(
        f"def test_one():\n    {skip.replace(chr(10), '; ')}\ndef test_two(): pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.runner.skips",
        "-n",
        processes,
        "-c",
        os.devnull,
        "-q",
    ]
    command += [f"--rootdir={tmp_path}", "-p", "no:schemathesis", "-p", "no:cacheprovider", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env={**env, "CI": "1"}, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == status, done.stdout
    assert ("not in tests/allowed_skips.txt" in done.stdout) is bool(status)
    assert done.stdout.count(reason) == (2 if status else 0), done.stdout


@pytest.mark.on_change("runner")
@pytest.mark.parametrize(("others", "status"), [("", 5), ("def test_two(): pass\n", 0)], ids=["none", "one"])
def test_run_of_some_tests_is_red_if_all_are_skipped(tmp_path: Path, others: str, status: int) -> None:
    (tmp_path / "test_one.py").write_text(f"import pytest\ndef test_one(): pytest.skip('no GPU')\n{others}")
    command = [sys.executable, "-m", "pytest", "-p", "tests.runner.skips", "-n", "0", "-c", os.devnull]
    environment = {**os.environ, "CI": "0", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, "--some", "-rs", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert ("no test ran" in done.stdout) == (status != 0)
