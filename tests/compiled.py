"""Compile the tests, and what schedulers compile at each start, once: `python -m tests.compiled`.

Each worker of pytest-xdist collects all tests. In a fresh checkout each would rewrite the asserts of all files, though
the result is kept: that takes four processes a minute of two processors, and one for each processor a few seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests import kept

TESTS = Path(__file__).parent
PROGRAM = "mesos_gpu.scheduler.__main__"  # whose starts are made quicker: tests/kept.py


def stale(root: Path) -> list[Path]:
    """The files of tests below `root` that are newer than what pytest keeps of them, largest first."""
    changed = [path for path in root.rglob("test_*.py") if not _kept(path)]
    return sorted(changed, key=lambda path: path.stat().st_size, reverse=True)


def _kept(path: Path) -> bool:
    version = sys.implementation.cache_tag
    kept = (path.parent / "__pycache__").glob(f"{path.stem}.{version}-pytest-*.pyc")
    return any(each.stat().st_mtime >= path.stat().st_mtime for each in kept)


def compile_all(root: Path, processors: int) -> None:
    """Have pytest collect what is stale, a part in each process. What is wrong with a file, the run itself tells."""
    files = stale(root)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    options = ["--collect-only", "--quiet", "-p", "no:cacheprovider", "-n", "0"]
    running = []
    for part in filter(None, (files[number::processors] for number in range(processors))):
        command = [sys.executable, "-m", "pytest", *options, *map(str, part)]
        running.append(
            subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
    for process in running:
        process.wait()


def keep_methods(sources: Path, path: Path = kept.KEPT, program: str = PROGRAM) -> None:
    """Compile what a program compiles at each start, if one of the sources is newer than what is kept."""
    newest = max(each.stat().st_mtime for each in sources.rglob("*.py"))
    if not path.exists() or path.stat().st_mtime < newest:
        command = [sys.executable, kept.__file__, "--write", program, str(path)]
        subprocess.run(command, cwd=TESTS.parent, check=True)


if __name__ == "__main__":
    keep_methods(TESTS.parent / "mesos_gpu")
    compile_all(TESTS, len(os.sched_getaffinity(0)))
