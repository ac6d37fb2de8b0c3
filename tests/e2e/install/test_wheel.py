"""The wheel in an environment that has nothing but what it requires: no clone, no network, no pymesos beside it."""

import os
import platform
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from scripts import locks
from tests.cuda import compiler_or_skip

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def program(open_directory: Path) -> Path:
    """`mesos-gpu` of a fresh virtual environment, into which pip has put the wheel by its requirements alone."""
    compiler_or_skip()
    machine = platform.machine()
    made = subprocess.run(
        [
            sys.executable,
            ROOT / "scripts/wheel.py",
            "--into",
            open_directory,
            "--host-compiler",
            "--machine",
            machine,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    bare = open_directory / "bare"
    venv.create(bare, with_pip=True, symlinks=True)
    (site,) = bare.glob("lib/python*/site-packages")
    for distribution in required("mesos_gpu"):
        for top in tops(distribution):
            (site / top.name).symlink_to(top)
    # pip asks no index, so it fails if the wheel requires anything that is not one of those.
    pip = [
        str(bare / "bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
    ]
    done = subprocess.run(
        [*pip, made.stdout.strip()], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return bare / "bin/mesos-gpu"


def required(name: str) -> set[str]:
    """All that a distribution requires here, by its metadata."""
    names, open_names = set[str](), [name]
    while open_names:
        more = set(locks.needs(open_names.pop())) - names
        names |= more
        open_names += more
    return names


def tops(name: str) -> set[Path]:
    """What of a distribution lies directly in site-packages."""
    files = metadata.distribution(name).files or []
    return {Path(str(file.locate())) if len(file.parts) == 1 else Path(str(file.locate())).parents[len(file.parts) - 2]
            for file in files if file.parts[0] not in ("..", "__pycache__")}  # fmt: skip


def run(program: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MESOS_GPU_", "PYTHON"))}
    env |= {"MESOS_GPU_HOME": str(home), "MESOS_GPU_CONFIG": str(home / "no-config")}
    command = [str(program), *words]
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)


def test_it_has_the_schedulers_driver_and_requires_what_can_be_installed(
    program: Path, open_directory: Path
) -> None:
    (site,) = (open_directory / "bare").glob("lib/python*/site-packages")
    assert not list(site.glob("pymesos*"))
    assert not list(site.glob("http_parser*"))
    assert (site / "mesos_gpu/vendored/pymesos/scheduler.py").is_file()
    assert "OSI Approved :: BSD License" in (site / "mesos_gpu/vendored/pymesos/METADATA.txt").read_text()
    check = [str(program.with_name("python")), "-m", "pip", "check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "No broken requirements found.\n"


@pytest.fixture
def home(program: Path, open_directory: Path) -> Iterator[Path]:
    home = open_directory / "home"
    home.mkdir(mode=0o755)
    yield home
    run(program, home, "down")


def test_it_runs_a_job_against_a_real_master(program: Path, home: Path) -> None:
    done = run(program, home, "up", "--detach", "--agents", "1", "--gpus", "2")
    assert done.returncode == 0, done.stderr
    job = run(program, home, "run", "--gpus", "1", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith("GPU-")
    assert run(program, home, "down").stdout == "down\n"
