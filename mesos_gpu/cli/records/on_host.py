"""Audit records of root's commands on this host that bypass the scheduler."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mesos_gpu.cli import output
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.record import Result
from mesos_gpu.wire.plain import clean

#: Recorded commands.
COMMANDS: Final = ("backup", "node cdi --output", "node shim build", "restore", "volume build", "volume gc")


@contextmanager
def recorded(command: str, *on: str) -> Iterator[None]:
    """Record a command of root when it has ended, successfully or not.

    A failure to write the record does not stop the command, which may be the one that frees disk space.
    """
    try:
        yield
    except BaseException as error:
        _note(command, on, Result.FAILED, type(error).__name__)
        raise
    _note(command, on, Result.DONE, "")


def _note(command: str, on: tuple[str, ...], result: Result, detail: str) -> None:
    if os.geteuid() != 0:
        return  # commands of other users affect only their own files
    from mesos_gpu.adapters.audit import host

    try:
        host.write(command, tuple(map(clean, on)), result, detail)
    except (MesosGpuError, OSError) as error:
        output.note(f"the command could not be recorded in the audit log: {str(error).splitlines()[0]}")
