"""Compile the tests once, before several processes run them: `python -m tests.compiled`.

Each worker of pytest-xdist collects all tests. In a fresh checkout each would rewrite the asserts of all files, though
the result is kept: that takes four processes a minute of two processors, and one for each processor a few seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


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


if __name__ == "__main__":
    compile_all(TESTS, len(os.sched_getaffinity(0)))
