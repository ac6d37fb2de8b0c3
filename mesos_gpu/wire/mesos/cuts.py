"""What stands at the beginning of a log that was cut, for whom reads it: where what is left begins.

A log is cut by a hole in its file, so that an offset means the same byte before and after.
"""

from typing import Final

HEAD_BYTES: Final = 4096  # a block of its own, so that all behind it can be given back
_BEGIN: Final = b"[mesos-gpu] "
_END: Final = b" bytes of this log were cut off here: "


def head(begin: int, limit_mib: int) -> bytes:
    """The first block of a file of which what is left begins at byte `begin`."""
    why = f"it may keep {limit_mib} MiB (--log-limit of the scheduler, MESOS_GPU_LOG_LIMIT)"
    line = _BEGIN + str(begin).encode() + _END + why.encode()
    return line.ljust(HEAD_BYTES - 1) + b"\n"


def begin_of(first: bytes) -> tuple[int, str] | None:
    """Where what is left begins, and the line that says so; None: nothing was cut. `first`: the file's first bytes."""
    number, end, _ = first.partition(_END)
    digits = number.removeprefix(_BEGIN)
    if not (end and number.startswith(_BEGIN) and digits.isdigit() and len(digits) < 19):
        return None
    return int(digits), first[:HEAD_BYTES].decode("ascii", "replace").rstrip() + "\n"
