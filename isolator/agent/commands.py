"""The shell commands that Mesos starts executors and monitors with, on a host that has this installation."""

import os
import shlex
import sys
from pathlib import Path

import isolator


def executor_command(program: str = "executor") -> str:
    """What to put into CommandInfo.value. `program`: executor, monitor or keeper.

    The bare interpreter starts in a tenth of the time that a virtual environment's does; the monitor needs
    site-packages, for NVML. `exec`, so that no shell stays behind.
    """
    root = str(Path(isolator.__file__).resolve().parent.parent)
    if program == "monitor":
        return f"exec {shlex.quote(sys.executable)} -I -m isolator monitor"
    # By the one name that all versions have: a scheduler may run on while its installation is replaced.
    code = (
        f"import sys; sys.path.insert(0, {root!r}); sys.argv[1:] = [{program!r}]; "
        "from isolator.__main__ import main; sys.exit(main())"
    )
    return f"exec {shlex.quote(os.path.realpath(sys.executable))} -IS -c {shlex.quote(code)}"
