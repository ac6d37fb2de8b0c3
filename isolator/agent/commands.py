"""The shell commands that Mesos starts executors and monitors with, on a host that has this installation."""

import os
import shlex
import sys

from isolator.program import command


def executor_command(program: str = "executor") -> str:
    """What to put into CommandInfo.value. `program`: executor, monitor or keeper.

    The bare interpreter starts in a tenth of the time that a virtual environment's does; the monitor needs
    site-packages, for NVML. `exec`, so that no shell stays behind.
    """
    if program == "monitor":
        return f"exec {shlex.join(command(program))}"
    return f"exec {shlex.join(command(program, os.path.realpath(sys.executable), '-IS'))}"
