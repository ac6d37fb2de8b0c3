"""Tests, and what schedulers compile at each start, are compiled before the workers start, if they changed."""

import os
import subprocess
import sys
import time
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
    later = time.time() + 60  # than what was compiled, however long that took
    os.utime(one, (later, later))
    assert set(compiled.stale(tmp_path)) == {one, broken}


PROGRAM = """
import sys
import time
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2

print(Point(1), Point(1) == Point(1, 2), sys.argv[1:], __name__, sys.path[0])
"""


def test_methods_of_dataclasses_are_kept_until_a_source_changes(tmp_path: Path) -> None:
    sources, path = tmp_path / "sources", tmp_path / "kept" / "methods"
    sources.mkdir()
    (sources / "one.py").touch()
    compiled.keep_methods(sources, path, "mesos_gpu.errors")
    assert compiled.read(path) == {}, "it has no dataclasses"
    os.utime(path, (1, 1))
    compiled.keep_methods(sources, path, "mesos_gpu.model.nodes.offer")
    assert any("def __init__(self" in text for text in compiled.read(path))
    written_at = path.stat().st_mtime_ns
    compiled.keep_methods(sources, path, "mesos_gpu.errors")
    assert path.stat().st_mtime_ns == written_at
    path.write_bytes(b"of another Python")
    assert compiled.read(path) == {}


def test_a_program_with_kept_methods_does_the_same(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    plain, quick = (
        subprocess.run(
            [sys.executable, *words, "program", "a", "-b"], cwd=tmp_path, capture_output=True, text=True
        )
        for words in (["-m"], [compiled.__file__])
    )
    assert plain.stdout == f"Point(x=1, y=2) True ['a', '-b'] __main__ {tmp_path}\n"
    assert (quick.returncode, quick.stdout, quick.stderr) == (0, plain.stdout, "")
