"""Command lines that start programs of this installation in an interpreter of their own.

They add the directory of this code to the path, so that they also work for an unpacked archive.
"""

import os
import sys
from typing import Final

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def command(program: str, python: str = sys.executable, flags: str = "-I") -> tuple[str, ...]:
    """Return the command line of a program of `isolator.__main__`.

    Args:
        program: Name of the program there.
        python: Path of the interpreter.
        flags: Flags of the interpreter; `-IS` starts in a tenth of the time, but without the packages
            installed beside this code.
    """
    # `isolator.__main__` exists in all versions: a scheduler may run on while its installation is replaced.
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); sys.argv[1:] = [{program!r}]; "
        "from isolator.__main__ import main; sys.exit(main())"
    )
    return (python, flags, "-c", code)


def statement(code: str, *arguments: str) -> list[str]:
    """Return the command line that runs a statement with imports from here, for trials that need a process of
    their own.
    """
    return [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}", *arguments]
