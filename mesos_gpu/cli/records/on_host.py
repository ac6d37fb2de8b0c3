"""Records of commands that act on this host without the scheduler: of root alone, whose acts nobody else notes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mesos_gpu.cli import output
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.record import Result
from mesos_gpu.wire.plain import clean

#: The commands, and what their records are about.
COMMANDS: Final = ("backup", "node cdi --output", "node shim build", "restore", "volume build", "volume gc")


@contextmanager
def recorded(command: str, *on: str) -> Iterator[None]:
    """Note a command of root when it has ended, whatever its end. What cannot be noted is done all the same: it may be
    what makes room."""
    try:
        yield
    except BaseException as error:
        _note(command, on, Result.FAILED, type(error).__name__)
        raise
    _note(command, on, Result.DONE, "")


def _note(command: str, on: tuple[str, ...], result: Result, detail: str) -> None:
    if os.geteuid() != 0:
        return  # of a user's own files
    from mesos_gpu.adapters.audit import host

    try:
        host.write(command, tuple(map(clean, on)), result, detail)
    except (MesosGpuError, OSError) as error:
        output.note(f"not on record: {str(error).splitlines()[0]}")
