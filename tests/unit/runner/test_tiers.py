"""Tiers of tests, and the groups that run on changes."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runner import tiers

ROOT = Path(__file__).parents[3]


def item(path: str, *marks: pytest.MarkDecorator) -> Any:
    by_name = {mark.name: mark.mark for mark in marks}
    return SimpleNamespace(
        nodeid=f"tests/{path}::test_x", path=tiers.TESTS / path, get_closest_marker=by_name.get
    )


@pytest.mark.parametrize(
    ("path", "marks", "tier"),
    [
        ("unit/test_a.py", (), "quick"),
        ("contract/api/test_a.py", (), "quick"),
        ("contract/test_a.py", (pytest.mark.cluster,), "gate"),
        ("property/test_a.py", (pytest.mark.kernel,), "gate"),
        ("kernel/test_a.py", (pytest.mark.kernel,), "gate"),
        ("e2e/test_a.py", (), "gate"),
        ("e2e/test_a.py", (pytest.mark.long,), "nightly"),
        ("unit/test_a.py", (pytest.mark.on_change("runner"),), "change"),
        ("unit/test_a.py", (pytest.mark.on_change("runner"), pytest.mark.long), "nightly"),
        ("gpu/test_a.py", (pytest.mark.gpu,), "gpu"),
    ],
)
def test_tier_follows_from_folder_and_marks(path: str, marks: tuple[Any, ...], tier: str) -> None:
    assert tiers.tier_of(item(path, *marks)) == tier


@pytest.mark.parametrize(
    ("path", "marks"),
    [
        ("elsewhere/test_a.py", ()),
        ("unit/test_a.py", (pytest.mark.gpu, pytest.mark.on_change("runner"))),
        ("unit/test_a.py", (pytest.mark.on_change("no such group"),)),
        pytest.param("unit/test_a.py::test_b[<function f at 0x7f435e2f8220>]", (), id="address"),
    ],
)
def test_tier_is_refused_where_marks_and_folder_give_none(path: str, marks: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="tests/"):
        tiers.tier_of(item(path, *marks))


def test_groups_of_marks_are_those_of_the_table() -> None:
    marked = {
        call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        for path in tiers.TESTS.rglob("test_*.py")
        if "on_change" in (text := path.read_text()) and path != Path(__file__)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "on_change"
    }
    assert marked == set(tiers.read_groups())


def test_patterns_of_groups_match_files() -> None:
    empty = [
        pattern
        for patterns in tiers.read_groups().values()
        for pattern in patterns
        if not any(ROOT.glob(pattern))
    ]
    assert empty == []


def test_digest_follows_names_and_contents_of_matching_files(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("one")
    patterns = ["docs/**/*", "README.md"]
    first = tiers.digest_of(patterns, tmp_path)
    (tmp_path / "other.py").write_text("not of the group")
    assert tiers.digest_of(patterns, tmp_path) == first
    page.write_text("two")
    second = tiers.digest_of(patterns, tmp_path)
    page.rename(page.with_name("other.md"))
    assert len({first, second, tiers.digest_of(patterns, tmp_path)}) == 3


def test_patterns_of_a_group_match_the_tests_that_it_has() -> None:
    names = "|".join(tiers.read_groups())
    unmatched = [
        f"{path.relative_to(ROOT)}: {group}"
        for path in tiers.TESTS.rglob("test_*.py")
        for group in set(re.findall(rf"mark\.on_change\(\"({names})\"\)", path.read_text()))
        if path.parent.name != "runner"
        and not any(path in ROOT.glob(each) for each in tiers.read_groups()[group])
    ]
    assert unmatched == []


def test_groups_change_until_their_digest_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "passed.toml"
    monkeypatch.setattr(tiers, "read_groups", lambda: {"one": ["README.md"], "two": ["Makefile"]})
    present = tiers.digests()
    assert tiers.changed_groups(present, path) == ["one", "two"]
    tiers.record_passed({"one": present["one"]}, path)
    assert tiers.changed_groups(present, path) == ["two"]


def test_record_keeps_other_groups_and_forgets_those_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "passed.toml"
    path.write_text('one = "a"\ngone = "b"\n')
    monkeypatch.setattr(tiers, "read_groups", lambda: {"one": [], "two": []})
    tiers.record_passed({"two": "c"}, path)
    assert tiers.read_passed(path) == {"one": "a", "two": "c"}


def test_record_is_written_only_when_it_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "passed.toml"
    monkeypatch.setattr(tiers, "read_groups", lambda: {"one": []})
    tiers.record_passed({"one": "a"}, path)
    path.write_text(path.read_text() + "# kept\n")
    tiers.record_passed({"one": "a"}, path)
    assert "# kept" in path.read_text()


@pytest.mark.parametrize(
    ("outcomes", "judged", "complete"),
    [
        (["passed"], True, True),
        (["passed", "skipped"], True, True),
        (["passed", "skipped"], False, False),
        (["skipped"], True, False),
        ([], True, False),
    ],
)
def test_group_is_complete_if_tests_of_it_passed_and_skips_are_judged(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[str], judged: bool, complete: bool
) -> None:
    monkeypatch.setattr(tiers, "digests", lambda: {"one": "a"})
    monkeypatch.setattr(tiers, "read_passed", lambda path: {})
    recorder = tiers.Recorder()
    for outcome in outcomes:
        report = SimpleNamespace(
            user_properties=[("group", "one")], when="call", outcome=outcome, passed=outcome == "passed"
        )
        recorder.pytest_runtest_logreport(report)  # type: ignore[arg-type]
    assert recorder.complete(judged) == ({"one": "a"} if complete else {})


def tree(directory: Path, files: dict[str, str]) -> dict[str, str]:
    """Write a checkout with this runner of tests, and return the environment of its runs."""
    setup = (ROOT / "setup.cfg").read_text()
    begin = setup.index("[tool:pytest]")
    section = setup[begin : setup.index("\n[", begin)].replace("-n auto", "-n 0")
    (directory / "setup.cfg").write_text(section.replace("    error\n", "    default\n"))
    shutil.copytree(tiers.TESTS / "runner", directory / "tests" / "runner")
    engine = (tiers.TESTS / "doubles" / "dockerd.py").read_text()  # tests/runner/run.py imports it
    double = {"tests/doubles/__init__.py": "", "tests/doubles/dockerd.py": engine}
    for name, text in {"tests/__init__.py": "", **double, **files}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**clean, "MESOS_GPU_TEST_HISTORY": str(directory / "history.jsonl")}


QUICK, CHANGE, GATE, NIGHTLY = (
    f"import pytest\n{mark}def test_{name}(): pass\n"
    for name, mark in (
        ("quick", ""),
        ("change", "@pytest.mark.on_change('runner')\n"),
        ("gate", ""),
        ("nightly", "@pytest.mark.long\n"),
    )
)
FILES = {
    "tests/tiers.toml": '[runner]\nfiles = ["Makefile"]\n',
    "tests/budget.toml": (ROOT / "tests" / "budget.toml").read_text(),
    "tests/allowed_skips.txt": "",
    "tests/unit/test_q.py": QUICK,
    "tests/unit/test_c.py": CHANGE,
    "tests/contract/test_contract.py": "",
    "tests/property/test_property.py": "",
    "tests/e2e/test_g.py": GATE,
    "tests/unit/test_n.py": NIGHTLY,
}


def run(
    directory: Path, *arguments: str, files: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    env = tree(directory, {**FILES, **(files or {})}) if not (directory / "tests").exists() else None
    env = env or {**os.environ, "MESOS_GPU_TEST_HISTORY": str(directory / "history.jsonl")}
    command = [sys.executable, "-m", "tests.runner.run", "--again", "-v", "-p", "no:randomly", *arguments]
    return subprocess.run(command, cwd=directory, env=env, check=False, capture_output=True, text=True)


@pytest.mark.on_change("runner")
def test_groups_are_recorded_after_a_green_run_and_left_out_then(tmp_path: Path) -> None:
    first = run(tmp_path, "--changed", "tests")
    assert first.returncode == 0, first.stdout + first.stderr
    assert ran(first) == {"quick", "gate", "change"}
    second = run(tmp_path, "--changed", "tests")
    assert ran(second) == {"quick", "gate"}
    assert "left out, for they passed with the present files: runner" in second.stdout
    assert run(tmp_path, "--changed", "-m", "on_change and not long", "tests").returncode == 0
    (tmp_path / "Makefile").write_text("changed")
    assert ran(run(tmp_path, "--changed", "tests")) == {"quick", "gate", "change"}


@pytest.mark.on_change("runner")
@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (("--changed", "-k", "change or quick", "tests"), {}),
        (("--changed", "tests/unit"), {}),
        (("--changed", "tests"), {"tests/e2e/test_g.py": "def test_gate(): assert False\n"}),
        (("--changed", "tests"), {"tests/unit/test_c.py": CHANGE.replace("pass", "pytest.skip('no')")}),
    ],
    ids=["filter", "folder", "failure", "skip"],
)
def test_groups_are_not_recorded_after_a_run_that_is_not_whole_or_not_green(
    tmp_path: Path, arguments: tuple[str, ...], files: dict[str, str]
) -> None:
    run(tmp_path, *arguments, files=files)
    assert not (tmp_path / "tests" / "passed.toml").exists()


def ran(done: "subprocess.CompletedProcess[str]") -> set[str]:
    return set(re.findall(r"::test_(\w+) PASSED", done.stdout))


@pytest.mark.on_change("runner")
@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], {"quick"}),
        (["tests"], {"quick", "gate", "change"}),
        (["tests/e2e"], {"gate"}),
        (["tests", "-m", "long"], {"nightly"}),
        (["tests", "-m", "long or on_change"], {"nightly", "change"}),
        (["tests", "--changed", "-m", "on_change and not long"], {"change"}),
    ],
)
def test_arguments_of_pytest_choose_tiers(tmp_path: Path, arguments: list[str], chosen: set[str]) -> None:
    done = run(tmp_path, *arguments)
    assert ran(done) == chosen, done.stdout + done.stderr


@pytest.mark.on_change("runner")
def test_test_without_a_tier_fails_and_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2", "tests", files={"tests/odd/test_o.py": "def test_odd(): pass\n"})
    assert done.returncode == 1
    assert "tests/odd/test_o.py::test_odd is in no folder of the gate" in done.stdout


def test_commands_of_the_makefile_name_the_folder_of_tests() -> None:
    lines = [
        line
        for line in (ROOT / "Makefile").read_text().splitlines()
        if "$(RUN)" in line and "RUN :=" not in line
    ]
    assert len(lines) >= 6
    assert [line for line in lines if not re.search(r" tests\b( \|\|.*)?$", line)] == []
