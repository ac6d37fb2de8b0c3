"""Messages about tasks that ended because they exceeded a limit. Pure."""

from dataclasses import replace
from typing import Final

from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.words import whole_of

_MEMORY: Final = "REASON_CONTAINER_LIMITATION_MEMORY"
_USED: Final = "Maximum Used: "  # Mesos' cgroups/mem, before its counters (subsystems/memory.cpp)
_UNITS: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}  # stout/bytes.hpp
SIGKILL: Final = 9


def out_of_memory(asked_mib: float, used_bytes: int | None) -> str:
    """Return the message that a task exceeded its memory.

    Args:
        asked_mib: Memory that the task requested, in MiB.
        used_bytes: Largest use of the task and its executor, in bytes; None if not known.
    """
    used = "" if used_bytes is None else f", {-(-used_bytes >> 20)} used"
    return f"out of memory: {asked_mib:g} MiB asked{used}; ask for more with --mem"


def is_out_of_memory(reason: str) -> bool:
    """Return whether a reason of a status, or of a nested container's end, says that memory ran out."""
    return reason == _MEMORY


def used_in(message: str) -> int | None:
    """Return the largest memory use in a message of Mesos, in bytes; None if the message has none."""
    words = message.partition(_USED)[2].split(maxsplit=1)
    digits = words[0].rstrip("BKMGT") if words else ""
    unit = words[0][len(digits) :] if words else ""
    number = whole_of(digits)
    return None if number is None or unit not in _UNITS else number * _UNITS[unit]


def in_words(status: Status, outcome: Outcome | None, mem_mib: float) -> tuple[Status, Outcome | None]:
    """Return a status in the form for users: running out of memory as one line, with the signal that ended the task.

    The executor could not report that, as the agent ended it with the container.
    """
    if status.state != "TASK_FAILED" or not is_out_of_memory(status.reason):
        return status, outcome
    message = out_of_memory(mem_mib, used_in(status.message))
    return replace(status, message=message), outcome or Outcome(signal=SIGKILL)
