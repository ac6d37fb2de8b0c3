"""What is installed: bounded in setup.cfg, by hash in requirements.lock, and nothing that the index cannot give."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def declared(section: str, key: str) -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in setup[section][key].split("\n") if line]


def locked(name: str = "requirements.lock") -> list[tuple[Requirement, list[str]]]:
    """Each release of a lock with its hashes."""
    text = (ROOT / name).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [(Requirement(line.split("--hash")[0]), re.findall(r"--hash=(\S+)", line)) for line in lines]


EXTRAS = [
    each for extra in ("scheduler", "agent", "all") for each in declared("options.extras_require", extra)
]
RUNTIME = [each for each in (*declared("options", "install_requires"), *EXTRAS) if each.name != "mesos_gpu"]


@pytest.mark.parametrize("wanted", RUNTIME, ids=str)
def test_a_runtime_requirement_has_both_bounds(wanted: Requirement) -> None:
    assert {one.operator for one in wanted.specifier} == {">=", "<"}


@pytest.mark.parametrize("wanted", [*RUNTIME, *declared("options.extras_require", "dev")], ids=str)
def test_the_lock_holds_what_setup_cfg_asks_for(wanted: Requirement) -> None:
    names = [
        pinned for pinned, _ in locked() if canonicalize_name(pinned.name) == canonicalize_name(wanted.name)
    ]
    assert names, "run: make lock"
    for pinned in names:
        version = str(pinned.specifier).removeprefix("==")
        assert wanted.specifier.contains(version), "run: make lock"


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-run.lock", "requirements-tools.lock", "pymesos.lock"]
)
def test_a_lock_has_hashes_and_no_address(name: str) -> None:
    for requirement, hashes in locked(name):
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    assert "://" not in (ROOT / name).read_text()


def test_nothing_asks_for_what_does_not_build() -> None:
    assert not {"http-parser", "pymesos"} & {
        canonicalize_name(requirement.name) for requirement, _ in locked()
    }


def test_pymesos_is_installed_by_hash_without_its_dependencies() -> None:
    ((requirement, hashes),) = locked("pymesos.lock")
    assert str(requirement) == "pymesos==0.3.15"
    assert len(hashes) == 1
    assert (
        "--require-hashes --no-deps --no-build-isolation -r pymesos.lock"
        in (ROOT / "scripts/setup.sh").read_text()
    )


def test_without_pymesos_the_scheduler_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['pymesos'] = None; from mesos_gpu.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "scheduler", "--master", "127.0.0.1:1", "--executor-command", "x",
         "--monitor-command", "x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 69, done.stderr
    assert "pip install --no-deps pymesos==0.3.15" in done.stderr
