"""Whether others than root can change what executors import."""

import os
import sys
from pathlib import Path

import pytest

from isolator.host.own_code import places, weak
from isolator.node.doctor import own_code as check
from isolator.node.findings import Host, Level

ME = (0, os.geteuid())
GROUPS = (0, os.getegid())


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory of modules that is as it should be."""
    top = tmp_path / "lib"
    (top / "package").mkdir(parents=True)
    (top / "package/module.py").touch()
    for path in (top, top / "package"):
        path.chmod(0o755)
    (top / "package/module.py").chmod(0o644)
    return top


def faults(*paths: Path) -> list[str]:
    return weak(paths, users=ME, groups=GROUPS)


def test_code_that_only_its_owner_can_write_has_no_fault(code: Path) -> None:
    assert faults(code, code / "package/module.py", code / "not-there") == []


@pytest.mark.parametrize("name", ["", "package", "package/module.py"])
def test_code_that_everybody_can_write_is_found_wherever_it_lies(code: Path, name: str) -> None:
    (code / name).chmod(0o777)
    assert faults(code) == [f"{(code / name)} can be written by every user"]


def test_a_directory_on_the_way_counts_too(code: Path) -> None:
    code.chmod(0o777)
    assert faults(code / "package") == [f"{code} can be written by every user"]


def test_a_sticky_directory_on_the_way_is_no_fault(code: Path) -> None:
    code.chmod(0o1777)
    assert faults(code / "package") == []


def test_code_behind_a_link_is_checked(code: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(code / "package")
    (code / "package/module.py").chmod(0o666)
    code.chmod(0o777)
    weaknesses = faults(tmp_path / "link")
    assert f"{code} can be written by every user" in weaknesses
    assert any(text.endswith("module.py can be written by every user") for text in weaknesses)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert faults(tmp_path / "a") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_owners_and_groups_that_tasks_may_have_are_found(code: Path) -> None:
    os.chown(code / "package/module.py", 1000, 0)
    (code / "package").chmod(0o775)
    os.chown(code / "package", 0, 65534)
    assert faults(code) == [
        f"{code}/package can be written by the group 65534",
        f"{code}/package/module.py belongs to uid 1000",
    ]


def test_the_doctor_looks_at_the_interpreter_and_all_that_it_imports(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(code))
    assert {code, Path(sys.executable)} <= set(places())
    monkeypatch.setattr("isolator.node.doctor.places", lambda: (code,))
    assert [finding.level for finding in check(Host(tmp_path, None))] == [Level.OK]
    for number in range(9):
        (code / f"m{number}.py").touch()
        (code / f"m{number}.py").chmod(0o666)
    findings = list(check(Host(tmp_path, None)))
    assert {each.level for each in findings} == {Level.FAIL}
    assert (len(findings), "4 more" in findings[-1].text) == (6, True)
