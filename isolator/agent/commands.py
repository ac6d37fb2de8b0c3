"""Shell commands with which Mesos starts executors and monitors, on a host that has this installation."""

import os
import shlex
import sys

from isolator.program import command


def executor_command(program: str = "executor") -> str:
    """Return the value of CommandInfo for a program.

    The bare interpreter starts in a tenth of the time that a virtual environment's does; the monitor needs
    site-packages, for NVML. `exec` leaves no shell behind.

    Args:
        program: executor, monitor or keeper.
    """
    if program == "monitor":
        return f"exec {shlex.join(command(program))}"
    return f"exec {shlex.join(command(program, os.path.realpath(sys.executable), '-IS'))}"
