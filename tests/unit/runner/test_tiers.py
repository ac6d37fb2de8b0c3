"""Tiers of tests, and the groups that run on changes."""

import ast
import os
import re
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


def test_groups_change_until_their_digest_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "PASSED", tmp_path / "passed.toml")
    monkeypatch.setattr(tiers, "read_groups", lambda: {"one": ["README.md"], "two": ["Makefile"]})
    assert tiers.changed_groups(tmp_path / "passed.toml") == {"one", "two"}
    tiers.write_passed({**tiers.digests(), "two": "0" * 64}, tmp_path / "passed.toml")
    assert tiers.changed_groups(tmp_path / "passed.toml") == {"two"}


def test_record_is_written_only_when_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "passed.toml"
    tiers.write_passed({"one": "a"}, path)
    path.write_text(path.read_text() + "# kept\n")
    tiers.write_passed({"one": "a"}, path)
    assert "# kept" in path.read_text()
    assert tiers.read_passed(path) == {"one": "a"}


@pytest.mark.on_change("runner")
@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], {"quick"}),
        (["tests"], {"quick", "gate", "change"}),
        (["tests/e2e"], {"gate"}),
        (["tests", "-m", "long"], {"nightly"}),
        (["tests", "--changed"], {"quick", "gate"}),
    ],
)
def test_arguments_of_pytest_choose_tiers(tmp_path: Path, arguments: list[str], chosen: set[str]) -> None:
    files = {
        "tests/unit/test_q.py": "def test_quick(): pass\n",
        "tests/unit/test_c.py": "import pytest\n@pytest.mark.on_change('runner')\ndef test_change(): pass\n",
        "tests/e2e/test_g.py": "def test_gate(): pass\n",
        "tests/unit/test_n.py": "import pytest\n@pytest.mark.long\ndef test_nightly(): pass\n",
        "setup.cfg": "[tool:pytest]\ntestpaths = tests/unit\naddopts = -m 'not long and not gpu'\n"
        "markers =\n    long\n    gpu\n    cluster\n    kernel\n    on_change\n",
        "tests/conftest.py": "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import pathlib, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('tiers', {tiers.__file__!r})\n"
        "tiers = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(tiers)\n"
        "tiers.TESTS = pathlib.Path(__file__).parent\n"
        "tiers.changed_groups = lambda path=None: set()\n"
        "from_tiers = ('pytest_addoption', 'pytest_collection_modifyitems')\n"
        "globals().update({name: getattr(tiers, name) for name in from_tiers})\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert set(re.findall(r"::test_(\w+) PASSED", done.stdout)) == chosen, done.stdout + done.stderr
