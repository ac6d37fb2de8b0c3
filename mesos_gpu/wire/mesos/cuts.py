"""What is known of a log beside its bytes: what stands at its beginning if it was cut, and when it was written.

A log is cut by a hole in its file, so that an offset means the same byte before and after. Times are in a file beside
the logs, a line for each look at which one had grown: its stream, its size, and milliseconds since the epoch.
"""

from collections.abc import Sequence
from typing import Final

HEAD_BYTES: Final = 4096  # a block of its own, so that all behind it can be given back
_BEGIN: Final = b"[mesos-gpu] "
_END: Final = b" bytes of this log were cut off here: "


def is_mark(text: bytes) -> bool:
    """Return whether a stderr has nothing but the line of Mesos' containerizer about its mounts (filesystem/linux).

    The executor removes the line before the task begins, so its bytes are not the first of the task's output.
    """
    return text.startswith(b"Marked '") and text.endswith(b"' as rslave\n") and text.count(b"\n") == 1


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


TIMES: Final = ".mesos-gpu-times"  # the file, in the sandbox
MAX_TIMES: Final = 1 << 20  # bytes of it
_LETTERS: Final = {"stdout": "o", "stderr": "e"}
_MAX_DIGITS: Final = 18
_LATEST_MS: Final = 253_370_764_800_000  # 9999-01-01: later moments nobody can show
Times = Sequence[tuple[int, float]]  # sizes, rising, and when the stream had them, seconds since the epoch


def time_line(stream: str, size: int, at: float) -> bytes:
    """The line that says that a stream had `size` bytes at that moment, seconds since the epoch."""
    return f"{_LETTERS[stream]} {size} {round(at * 1000)}\n".encode()


def times_of(text: bytes, stream: str) -> list[tuple[int, float]]:
    """What the file says of a stream; lines that are none, as tasks may write, are passed over."""
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
    """Half of the lines, which say less exactly when something was written; the last one stays."""
    lines = text.split(b"\n")[:-1]
    return b"".join(line + b"\n" for line in lines[-1::-2][::-1])


def written_by(times: Times, end: int) -> float | None:
    """When a stream had its first `end` bytes at the latest; None: that is not known."""
    from bisect import bisect_left  # executors, which only write moments, need not pay for it

    index = bisect_left(times, (end, 0.0))
    return times[index][1] if index < len(times) else None


def size_at(times: Times, at: float) -> int:
    """How many bytes a stream had at that moment at least: what comes later is behind them."""
    from bisect import bisect_right

    moments = [moment for _, moment in times]
    index = bisect_right(moments, at)
    return times[index - 1][0] if index else 0


def times_within(times: Times, begin: int, end: int) -> Times:
    """The moments that tell when the bytes from `begin` to `end` were written."""
    from bisect import bisect_left, bisect_right

    first, last = bisect_right([size for size, _ in times], begin), bisect_left(times, (end, 0.0))
    return times[first : last + 1]
