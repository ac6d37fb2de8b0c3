"""What is installed: bounded in setup.cfg, by hash in requirements.lock, and nothing that the index cannot give."""

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def declared(section: str, key: str) -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in setup[section][key].split("\n") if line]


def locked() -> list[tuple[Requirement, list[str]]]:
    """Each release of the lock with its hashes."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [(Requirement(line.split("--hash")[0]), re.findall(r"--hash=(\S+)", line)) for line in lines]


RUNTIME = declared("options", "install_requires")


@pytest.mark.parametrize("wanted", RUNTIME, ids=str)
def test_a_runtime_requirement_has_both_bounds(wanted: Requirement) -> None:
    assert {one.operator for one in wanted.specifier} == {">=", "<"}


@pytest.mark.parametrize("wanted", [*RUNTIME, *declared("options.extras_require", "dev")], ids=str)
def test_the_lock_holds_what_setup_cfg_asks_for(wanted: Requirement) -> None:
    names = [
        found for found, _ in locked() if canonicalize_name(found.name) == canonicalize_name(wanted.name)
    ]
    assert names, "run: make lock"
    for found in names:
        version = str(found.specifier).removeprefix("==")
        assert wanted.specifier.contains(version), "run: make lock"


def test_the_lock_has_hashes_and_no_address() -> None:
    for found, hashes in locked():
        assert hashes, found
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), found
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_nothing_asks_for_what_does_not_build() -> None:
    assert not {"http-parser", "pymesos"} & {canonicalize_name(found.name) for found, _ in locked()}
