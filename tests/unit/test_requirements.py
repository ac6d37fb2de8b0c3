"""Requirements: bounds in setup.cfg, hashes in the locks, and no package that the index cannot give."""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def declared(section: str, key: str) -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in setup[section][key].split("\n") if line]


def locked(name: str = "requirements.lock") -> list[tuple[Requirement, list[str]]]:
    """Return each release of a lock of the repository with its hashes."""
    return releases((ROOT / name).read_text())


def releases(text: str) -> list[tuple[Requirement, list[str]]]:
    """Return each release of a lock with its hashes."""
    lines = [line for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]
    return [(Requirement(line.split("--hash")[0]), re.findall(r"--hash=(\S+)", line)) for line in lines]


EXTRAS = [
    each for extra in ("scheduler", "agent", "all") for each in declared("options.extras_require", extra)
]
RUNTIME = [each for each in (*declared("options", "install_requires"), *EXTRAS) if each.name != "mesos_gpu"]


def without_bounds(requirements: Iterable[Requirement]) -> list[str]:
    """Return the requirements that do not have a lower and an upper bound."""
    return [str(each) for each in requirements if {one.operator for one in each.specifier} != {">=", "<"}]


def test_runtime_requirements_have_both_bounds() -> None:
    assert without_bounds(RUNTIME) == []
    assert without_bounds([Requirement("one>=1,<2"), Requirement("two>=1")]) == ["two>=1"]


def not_in_lock(requirements: Iterable[Requirement], lock: Iterable[Requirement]) -> list[str]:
    """Return the requirements that a lock does not have, or has in another version."""
    pins: dict[str, list[str]] = {}
    for pinned in lock:
        version = str(pinned.specifier).removeprefix("==")
        pins.setdefault(canonicalize_name(pinned.name), []).append(version)
    return [
        str(each)
        for each in requirements
        if not (versions := pins.get(canonicalize_name(each.name)))
        or not all(each.specifier.contains(version) for version in versions)
    ]


def test_lock_holds_the_requirements_of_setup_cfg() -> None:
    wanted = [*RUNTIME, *declared("options.extras_require", "dev")]
    assert not_in_lock(wanted, [pinned for pinned, _ in locked()]) == [], "run: make lock"


def test_lock_without_a_requirement_is_found() -> None:
    wanted = [Requirement("one>=1,<2"), Requirement("two>=1"), Requirement("three>=3,<4")]
    lock = [Requirement("One==1.5"), Requirement("three==3"), Requirement("three==4")]
    assert not_in_lock(wanted, lock) == ["two>=1", "three<4,>=3"]


def lock_faults(name: str, text: str) -> Iterator[str]:
    """Find releases of a lock without good hashes, and addresses."""
    for requirement, hashes in releases(text):
        if not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes):
            yield f"{name}: {requirement}: no hash, or one that is not sha256"
    for number, line in enumerate(text.splitlines(), 1):
        if "://" in line:
            yield f"{name}:{number}: an address"


def test_locks_have_hashes_and_no_address() -> None:
    names = ("requirements.lock", "requirements-run.lock", "requirements-tools.lock", "pymesos.lock")
    assert [fault for name in names for fault in lock_faults(name, (ROOT / name).read_text())] == []


def test_lock_without_a_hash_or_with_an_address_is_found() -> None:
    text = f"one==1 --hash=sha256:{'a' * 64}\ntwo==2\nthree==3 --hash=md5:aa\n# from https://x\n"
    assert list(lock_faults("a.lock", text)) == [
        "a.lock: two==2: no hash, or one that is not sha256",
        "a.lock: three==3: no hash, or one that is not sha256",
        "a.lock:4: an address",
    ]


def test_lock_asks_for_no_package_that_does_not_build() -> None:
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


def test_scheduler_without_pymesos_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['pymesos'] = None; from mesos_gpu.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "scheduler", "--master", "127.0.0.1:1", "--executor-command", "x",
         "--monitor-command", "x"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 69, done.stderr
    assert "pip install --no-deps pymesos==0.3.15" in done.stderr
