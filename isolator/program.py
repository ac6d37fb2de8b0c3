"""How this installation starts one of its own programs in an interpreter of its own: the command line.

By the directory that this code is in, so that it works where that is in no interpreter's path: an unpacked archive.
"""

import os
import sys
from typing import Final

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def command(program: str, python: str = sys.executable, flags: str = "-I") -> tuple[str, ...]:
    """The command line of a program of `isolator.__main__`.

    Args:
        program: Its name there.
        python: The interpreter.
        flags: `-IS` starts in a tenth of the time, and does without what is installed beside this code.
    """
    # By the one name that all versions have: a scheduler may run on while its installation is replaced.
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); sys.argv[1:] = [{program!r}]; "
        "from isolator.__main__ import main; sys.exit(main())"
    )
    return (python, flags, "-c", code)


def statement(code: str, *arguments: str) -> list[str]:
    """The command line of a statement that imports from here, for what only a process of its own can try."""
    return [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}", *arguments]
