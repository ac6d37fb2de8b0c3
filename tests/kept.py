"""Start a module with methods of dataclasses that were compiled before: `python tests/kept.py MODULE [arguments]`.

Python writes these methods as text when a class is made, and compiles them at each start. That is a quarter of a
scheduler's start, of which a run of the tests makes hundreds. `python -m tests.compiled` keeps what it compiles; a
text that is not kept is compiled as ever.
"""

import builtins
import contextlib
import dataclasses
import importlib
import importlib.util
import marshal
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

KEPT = Path(__file__).parent / "__pycache__" / f"methods.{sys.implementation.cache_tag}"


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


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        sys.path[0] = os.getcwd()
        write(sys.argv[2], Path(sys.argv[3]))
    else:
        main(sys.argv[1])
