"""Check of this process's stdin: jobs do not get it, so data there is refused instead of ignored."""

import fcntl
import os
import select
import stat
import struct
import sys
import termios
import threading

import click

from mesos_gpu.cli import output

_WHAT = "stdin has data, but jobs get no stdin"
_REMEDY = "let the job read a file (--fetch, --volume), use -i, or add </dev/null to the command"


def refuse_stdin() -> None:
    """Refuse data that waits in a file, pipe or socket; terminals and /dev/null are not checked.

    Raises:
        UsageError: Data waits on stdin.
    """
    descriptor = _descriptor()
    if descriptor is not None and _waiting(descriptor):
        raise click.UsageError(f"{_WHAT}: {_REMEDY}")


def watch_stdin() -> None:
    """Note once on stderr if data arrives later, since the writer of a pipe may be slow."""
    descriptor = _descriptor()
    if descriptor is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        threading.Thread(target=_watch, args=(descriptor,), name="stdin", daemon=True).start()


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    if _waiting(descriptor):  # otherwise stdin was closed, and nothing was lost
        output.note(f"{_WHAT}, so the data is not read: {_REMEDY}")


def _descriptor() -> int | None:
    """Return the descriptor of a stdin that may hold data; None for others."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return None
    return descriptor if stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) else None


def _waiting(descriptor: int) -> int:
    """Return the number of bytes that can be read now."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return max(os.fstat(descriptor).st_size - os.lseek(descriptor, 0, os.SEEK_CUR), 0)
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return int(count)
