"""Log files that are cut at their beginning, and files of the times at which logs grew.

A log is cut by a hole in its file, so that offsets keep their meaning. Times are in a file beside the logs, with a line
for each time at which a log was found to have grown: stream, size, and milliseconds since the epoch.
"""

from collections.abc import Sequence
from typing import Final

HEAD_BYTES: Final = 4096  # a separate block, so that all blocks behind it can be freed
_BEGIN: Final = b"[mesos-gpu] "
_END: Final = b" bytes of this log were cut off here: "


def is_mark(text: bytes) -> bool:
    """Return whether a stderr has nothing but the line of Mesos' containerizer about its mounts (filesystem/linux).

    The executor removes the line before the task begins, so its bytes are not the first of the task's output.
    """
    return text.startswith(b"Marked '") and text.endswith(b"' as rslave\n") and text.count(b"\n") == 1


def head(begin: int, limit_mib: int) -> bytes:
    """Return the first block of a cut file whose remaining bytes begin at offset `begin`."""
    why = f"it may keep {limit_mib} MiB (--log-limit of the scheduler, MESOS_GPU_LOG_LIMIT)"
    line = _BEGIN + str(begin).encode() + _END + why.encode()
    return line.ljust(HEAD_BYTES - 1) + b"\n"


def begin_of(first: bytes) -> tuple[int, str] | None:
    """Return the offset of the remaining bytes, and the line that states it; None if the file is not cut.

    Args:
        first: First bytes of the file.
    """
    number, end, _ = first.partition(_END)
    digits = number.removeprefix(_BEGIN)
    if not (end and number.startswith(_BEGIN) and digits.isdigit() and len(digits) < 19):
        return None
    return int(digits), first[:HEAD_BYTES].decode("ascii", "replace").rstrip() + "\n"


TIMES: Final = ".mesos-gpu-times"  # name of the file of times in the sandbox
MAX_TIMES: Final = 1 << 20  # bytes of that file
_LETTERS: Final = {"stdout": "o", "stderr": "e"}
_MAX_DIGITS: Final = 18
_LATEST_MS: Final = 253_370_764_800_000  # 9999-01-01; later times cannot be displayed
#: Sizes of a stream, rising, and times at which it had them, seconds since the epoch.
Times = Sequence[tuple[int, float]]


def time_line(stream: str, size: int, at: float) -> bytes:
    """Return the line that records the size of a stream at a time in seconds since the epoch."""
    return f"{_LETTERS[stream]} {size} {round(at * 1000)}\n".encode()


def times_of(text: bytes, stream: str) -> list[tuple[int, float]]:
    """Return the sizes and times of a stream in the file; invalid lines, which tasks may write, are ignored."""
    times: list[tuple[int, float]] = []
    for line in text.split(b"\n"):
        letter, _, rest = line.partition(b" ")
        size, _, at = rest.partition(b" ")
        if letter != _LETTERS[stream].encode() or not (_is_number(size) and _is_number(at)):
            continue
        if int(at) <= _LATEST_MS and (not times or int(size) > times[-1][0]):
            times.append((int(size), int(at) / 1000))
    return times


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _MAX_DIGITS


def thinned(text: bytes) -> bytes:
    """Return every second line, to reduce the resolution; the last line stays."""
    lines = text.split(b"\n")[:-1]
    return b"".join(line + b"\n" for line in lines[-1::-2][::-1])


def written_by(times: Times, end: int) -> float | None:
    """Return the earliest recorded time at which a stream had `end` bytes; None if not known."""
    from bisect import bisect_left  # not imported by executors, which only write times

    index = bisect_left(times, (end, 0.0))
    return times[index][1] if index < len(times) else None


def size_at(times: Times, at: float) -> int:
    """Return the number of bytes that a stream had at a time, at least; later output is behind them."""
    from bisect import bisect_right

    moments = [moment for _, moment in times]
    index = bisect_right(moments, at)
    return times[index - 1][0] if index else 0


def times_within(times: Times, begin: int, end: int) -> Times:
    """Return the recorded times that bound when the bytes from `begin` to `end` were written."""
    from bisect import bisect_left, bisect_right

    first, last = bisect_right([size for size, _ in times], begin), bisect_left(times, (end, 0.0))
    return times[first : last + 1]
