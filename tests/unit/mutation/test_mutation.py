"""Mutation testing: which mutants there are, which tests are run for them, and what is reported."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.mutation.__main__ import MUTATED, Fate, Mutant, report
from tests.mutation.stages import ROOT, imported, stages

SOURCE = '''"""One module."""

LIMIT = 3


class Counter:
    """A counter."""

    most: int = 5

    @property
    def left(self) -> int | None:
        """Return 1 or 2."""
        if not self.most:
            raise ValueError(f"{self.most + 1} is too many")
        return max(0, self.most)
'''


def test_imports_of_a_test_file_are_found_in_each_form() -> None:
    text = "import a.b\nfrom c import (d,\n    e as f)\ndef g():\n    from h.i import j\nfrom . import k\n"
    assert list(imported(text)) == ["a.b", "c", "c.d", "c.e", "h.i", "h.i.j"]


def test_stages_begin_with_importers_and_repeat_no_file() -> None:
    chosen = stages("mesos_gpu/policy/room/knapsack.py")
    first, last, every = chosen[0], chosen[-1], [name for stage in chosen for name in stage]
    assert "tests/unit/policy/room/test_knapsack.py" in first
    assert "tests/unit/policy/room/test_defrag.py" in every
    assert any(name.startswith("tests/property/") for name in last)
    assert len(every) == len({*every})


@pytest.mark.long
def test_stages_have_tests_for_each_mutated_module() -> None:
    modules = [path for folder in MUTATED for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 200
    for path in modules:
        assert any(stages(str(path.relative_to(ROOT)))), path


def test_report_counts_and_shows_survivors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fates = [Fate(Mutant(f"m{i}.py", i, f"-{i}\n+{i + 1}", ""), "" if i < 2 else "t::t", 3) for i in range(8)]
    at = tmp_path / "survivors.txt"
    assert report(fates, 7, at) == 25
    assert capsys.readouterr().out.startswith("seed 7: 2 of 8 mutants survive (25 %)")
    assert at.read_text().split("\n\n")[1:] == ["m0.py:0\n-0\n+1", "m1.py:1\n-1\n+2\n"]


@pytest.mark.long
def test_mutants_are_those_of_functions_without_messages(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(SOURCE)
    tools = subprocess.run(
        [ROOT / "scripts/tools.sh"], check=True, capture_output=True, text=True
    ).stdout.strip()
    command = [f"{tools}/python", "scripts/mutants.py", "100", "7", str(module)]
    drawn = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    mutants = [json.loads(line) for line in drawn.splitlines()]
    added = {line[1:].strip() for each in mutants for line in each["diff"].splitlines() if line[:1] == "+"}
    assert added == {
        "if self.most:",
        "return max(1, self.most)",
        "return max((-1), self.most)",
        "return (0)",
        "return (self.most)",
    }
