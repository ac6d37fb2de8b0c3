"""Compile the tests, and what schedulers compile at each start, once: `python -m tests.compiled`.

Each worker of pytest-xdist collects all tests. In a fresh checkout each would rewrite the asserts of all files, though
the result is kept: that takes four processes a minute of two processors, and one for each processor a few seconds.

Methods of dataclasses are written as text when a class is made, and compiled at each start: a quarter of a scheduler's
start, of which a run of the tests makes hundreds. `python tests/compiled.py MODULE [arguments]` runs a module with
those that were kept; a text that is not is compiled as ever.
"""

import builtins
import contextlib
import dataclasses
import importlib
import importlib.util
import marshal
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

TESTS = Path(__file__).parent
PROGRAM = "mesos_gpu.scheduler.__main__"
KEPT = Path(__file__).parent / "__pycache__" / f"methods.{sys.implementation.cache_tag}"


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


def read(path: Path = KEPT) -> Mapping[str, CodeType]:
    """What is kept, by its text; nothing, if another Python wrote it."""
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        if data.startswith(importlib.util.MAGIC_NUMBER):
            return dict(marshal.loads(data[len(importlib.util.MAGIC_NUMBER) :]))
    return {}


def write(module: str, path: Path) -> None:
    """Keep what an import of this module compiles."""
    made: dict[str, CodeType] = {}

    def run(text: str, *names: dict[str, Any]) -> None:
        made[text] = compile(text, "<string>", "exec", dont_inherit=True)
        builtins.exec(made[text], *names)

    vars(dataclasses)["exec"] = run
    importlib.import_module(module)
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(importlib.util.MAGIC_NUMBER + marshal.dumps(made))
    new.replace(path)


def main(module: str) -> None:
    """Run a module as `python -m` does; its arguments are behind it in `sys.argv`."""
    kept = read()
    vars(dataclasses)["exec"] = lambda text, *names: builtins.exec(kept.get(text, text), *names)
    sys.path[0] = os.getcwd()
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def keep_methods(sources: Path, path: Path = KEPT, program: str = PROGRAM) -> None:
    """Compile what a program compiles at each start, if one of the sources is newer than what is kept."""
    newest = max(each.stat().st_mtime for each in sources.rglob("*.py"))
    if not path.exists() or path.stat().st_mtime < newest:
        command = [sys.executable, __file__, "--write", program, str(path)]
        subprocess.run(command, cwd=TESTS.parent, check=True)


def begin() -> None:
    """Do what the arguments say; none: compile all."""
    match sys.argv[1:]:
        case []:
            keep_methods(TESTS.parent / "mesos_gpu")
            compile_all(TESTS, len(os.sched_getaffinity(0)))
        case ["--write", module, path]:
            sys.path[0] = os.getcwd()
            write(module, Path(path))
        case [module, *_]:
            main(module)


if __name__ == "__main__":
    begin()
