"""Tests are compiled before the workers start, and only those that changed."""

import os
from pathlib import Path

from tests import compiled


def test_what_pytest_keeps_is_made_once_and_anew_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\n")
    one, broken = tmp_path / "test_one.py", tmp_path / "sub" / "test_broken.py"
    broken.parent.mkdir()
    one.write_text("def test_it():\n    assert True\n")
    broken.write_text("def test_it(:\n")
    assert set(compiled.stale(tmp_path)) == {one, broken}
    compiled.compile_all(tmp_path, processors=2)
    assert compiled.stale(tmp_path) == [broken]  # of which the run itself tells
    later = one.stat().st_mtime + 10
    os.utime(one, (later, later))
    assert set(compiled.stale(tmp_path)) == {one, broken}
