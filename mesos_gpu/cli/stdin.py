"""Our own stdin: no job gets it, so what is written there is refused and not dropped."""

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

_WHAT = "stdin has data, and a job gets none"
_REMEDY = "let the job read a file (--fetch, --volume), or write </dev/null after the command"


def refuse_stdin() -> None:
    """Refuse data that waits in a file, pipe or socket; a terminal and /dev/null are not looked at.

    Raises:
        UsageError: There is some.
    """
    descriptor = _descriptor()
    if descriptor is not None and _waiting(descriptor):
        raise click.UsageError(f"{_WHAT}: {_REMEDY}")


def watch_stdin() -> None:
    """Say so once if data comes later, as the writer of a pipe may be slower than we are."""
    descriptor = _descriptor()
    if descriptor is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        threading.Thread(target=_watch, args=(descriptor,), name="stdin", daemon=True).start()


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    if _waiting(descriptor):  # else it is closed: nothing was lost
        output.note(f"{_WHAT}; it is left there: {_REMEDY}")


def _descriptor() -> int | None:
    """The descriptor of a stdin that may hold data for a job; None: it cannot."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        return None
    return descriptor if stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) else None


def _waiting(descriptor: int) -> int:
    """The number of bytes that can be read now."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return max(os.fstat(descriptor).st_size - os.lseek(descriptor, 0, os.SEEK_CUR), 0)
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return int(count)
