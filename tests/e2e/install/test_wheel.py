"""The wheel in an environment that has nothing but what it requires: no clone, no network, no pymesos beside it."""

import os
import platform
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest

from scripts import locks
from tests.cuda import compiler_or_skip

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "mesos_gpu/web/mesos"
pytestmark = [pytest.mark.on_change("install"), pytest.mark.cluster]


@pytest.fixture(scope="module")
def wheel(open_directory: Path) -> Path:
    compiler_or_skip()
    command = [
        sys.executable,
        str(ROOT / "scripts/wheel.py"),
        "--into",
        str(open_directory),
        "--host-compiler",
    ]
    made = subprocess.run(
        [*command, "--machine", platform.machine()], capture_output=True, text=True, timeout=120, check=False
    )
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


def test_wheel_has_the_product_without_test_code(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
    tops = {name.parts[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "isolator", "marathon_templates", "mesos_gpu", "volumes"
    }  # fmt: skip
    words = ("bench", "chaos", "conftest", "doubles", "fake", "testing", "tests")
    test_code = [
        name
        for name in names
        if name.name.startswith("test_") or {part.removesuffix(".py") for part in name.parts} & {*words}
    ]
    assert test_code == []


@pytest.fixture(scope="module")
def program(wheel: Path, open_directory: Path) -> Path:
    """`mesos-gpu` of a fresh virtual environment, into which pip has put the wheel by its requirements alone."""
    return installed(wheel, "all", open_directory / "bare")


@pytest.fixture(scope="module")
def client(wheel: Path, open_directory: Path) -> Path:
    """`mesos-gpu` as a laptop has it."""
    return installed(wheel, "client", open_directory / "light")


def pip(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pip on an environment."""
    command = [sys.executable, "-m", "pip", "--python", str(bare / "bin/python"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def installed(wheel: Path, extra: str, bare: Path) -> Path:
    """Make an environment that has what an extra needs here; then have pip install the wheel, which asks no index: it
    fails if the wheel requires anything that is not one of those. What is imported is compiled then."""
    venv.create(bare, with_pip=False, symlinks=True)
    (site,) = bare.glob("lib/python*/site-packages")
    for name in locks.all_needs("mesos_gpu", extra):
        for top in tops(name):
            (site / top.name).symlink_to(top)
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-compile"]
    done = pip(bare, "install", *options, f"{wheel}[{extra}]")
    assert (done.returncode, done.stderr) == (0, "")
    return bare / "bin/mesos-gpu"


def tops(name: str) -> set[Path]:
    """Return the entries of a distribution that lie directly in site-packages."""
    files = metadata.distribution(name).files or []
    return {Path(str(file.locate())) if len(file.parts) == 1 else Path(str(file.locate())).parents[len(file.parts) - 2]
            for file in files if file.parts[0] not in ("..", "__pycache__")}  # fmt: skip


def run(program: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MESOS_GPU_", "PYTHON"))}
    env |= {"MESOS_GPU_HOME": str(home), "MESOS_GPU_CONFIG": str(home / "no-config")}
    command = [str(program), *words]
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)


def test_wheel_has_the_driver_and_requirements_that_can_be_installed(
    program: Path, open_directory: Path
) -> None:
    (site,) = (open_directory / "bare").glob("lib/python*/site-packages")
    assert not list(site.glob("pymesos*"))
    assert not list(site.glob("http_parser*"))
    assert (site / "mesos_gpu/vendored/pymesos/scheduler.py").is_file()
    page = site / "mesos_gpu/web/mesos"
    assert {path.name for path in (page / "app").iterdir()} == {path.name for path in PAGE.glob("app/*")}
    assert (page / "app/dom.js").read_bytes() == (site / "mesos_gpu/web/dom.js").read_bytes()
    assert "OSI Approved :: BSD License" in (site / "mesos_gpu/vendored/pymesos/METADATA.txt").read_text()
    done = pip(open_directory / "bare", "check")
    assert done.stdout == "No broken requirements found.\n"


@pytest.fixture
def home(program: Path, open_directory: Path) -> Iterator[Path]:
    home = open_directory / "home"
    home.mkdir(mode=0o755)
    yield home
    run(program, home, "down")


def test_wheel_runs_a_job_and_a_client_shows_it(program: Path, client: Path, home: Path) -> None:
    done = run(program, home, "up", "--detach", "--agents", "1", "--gpus", "2")
    assert done.returncode == 0, done.stderr
    job = run(program, home, "run", "--gpus", "1", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith("GPU-")
    listed = run(client, home, "ps", "--all", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert '"finished"' in listed.stdout
    absent = run(client, home, "scheduler", "--master", "m:5050")
    assert absent.returncode == 69, absent.stderr
    assert "pip install 'mesos_gpu[scheduler]'" in absent.stderr
    assert run(program, home, "down").stdout == "down\n"
