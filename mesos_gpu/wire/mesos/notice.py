"""Messages to executors about notices, and their answers and checkpoints in the data of TASK_RUNNING; pure functions.

The host side imports this module, so it uses only the standard library's json.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.wire.body import MAX_AMOUNT, parsed

if TYPE_CHECKING:  # not imported by executors
    from mesos_gpu.model.jobs.job import NoticeSignal
    from mesos_gpu.model.tasks.notice import Notice

MARK: Final = b'"notice"'  # contained in each such message
SIGNALS: Final = (
    "SIGHUP",
    "SIGINT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
)  # values of `NoticeSignal`, without importing its module
_NOTICE: Final = "notice"
_MAX_TEXT: Final = 2000


@dataclass(frozen=True, slots=True)
class Word:
    """A notice as the task gets it.

    Attributes:
        number: Number of the `Notice`.
        reason: Value of `NoticeReason`, possibly one of a later scheduler.
        why: Reason as text.
        by: Id of the job for which the GPUs are freed; "" if for no job.
        recalled: Whether it was recalled, or is a warning, so that the task will not be ended now.
        age_s: Time since it was given.
        left_s: Time until the task is ended.
        signal: Signal to send to the task; "" for none.
        warning: Whether it only announces what will happen without a change; older programs see `recalled`.
    """

    number: int
    reason: str
    why: str
    by: str
    recalled: bool
    age_s: float
    left_s: float
    signal: str = ""
    warning: bool = False


def encode_notice(notice: "Notice", left_s: float, signal: "NoticeSignal | None" = None) -> bytes:
    """Encode a notice as a message. It has durations instead of times, as clocks of hosts differ."""
    fields = {
        "number": notice.number,
        "reason": notice.reason.value,
        "why": notice.why[:_MAX_TEXT],
        "by": notice.by or "",
        "recalled": not notice.stands,
        "age_s": max(notice.until - left_s - notice.at, 0.0),
        "left_s": left_s,
        "signal": signal.value if signal is not None else "none",
        **({"warning": True} if notice.warning else {}),
    }
    return json.dumps({_NOTICE: fields}, separators=(",", ":")).encode()


def decode_notice(data: bytes) -> Word | None:
    """Decode a notice; None for another message.

    Raises:
        ValueError: The message is a notice with a missing or invalid field.
    """
    notice = _of(data, _NOTICE)
    if notice is None:
        return None
    if not isinstance(notice, dict):
        raise ValueError(f"a notice must be an object, got {notice!r}")
    return Word(
        number=_number(notice.get("number")),
        reason=_text("reason", notice.get("reason")),
        why=_text("why", notice.get("why")),
        by=_text("by", notice.get("by")),
        recalled=notice.get("recalled") is True,
        age_s=_span("age_s", notice.get("age_s")),
        left_s=_span("left_s", notice.get("left_s")),
        signal=_signal(notice.get("signal")),
        warning=notice.get("warning") is True,
    )


def encode_told(number: int) -> bytes:
    """Encode the report of an executor that its task can read the notice with a number, as status data."""
    return json.dumps({"noticed": number}, separators=(",", ":")).encode()


def decode_told(data: bytes) -> int | None:
    """Decode a report from `encode_told`; None for other data.

    Raises:
        ValueError: The data has an invalid number.
    """
    number = _of(data, "noticed")
    return None if number is None else _number(number)


def encode_checkpoint(ago_s: float) -> bytes:
    """Encode the report of an executor of how long ago its task made a checkpoint, as status data."""
    return json.dumps({"checkpoint": {"ago_s": ago_s}}, separators=(",", ":")).encode()


def decode_checkpoint(data: bytes) -> float | None:
    """Decode a report from `encode_checkpoint`, in seconds; None for other data.

    Raises:
        ValueError: The data has an invalid duration.
    """
    checkpoint = _of(data, "checkpoint")
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, dict):
        raise ValueError(f"a checkpoint must be an object, got {checkpoint!r}")
    return _span("ago_s", checkpoint.get("ago_s"))


def _of(data: bytes, name: str) -> Any:
    try:
        value = parsed(data)
    except ValueError:
        return None
    return value.get(name) if isinstance(value, Mapping) else None


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < MAX_AMOUNT:
        raise ValueError(f"a notice's number must be a whole number from 1, got {value!r}")
    return value


def _signal(value: object) -> str:
    """Return a known signal; "" for another one, which a later scheduler may use, and which is not sent."""
    return value if isinstance(value, str) and value in SIGNALS else ""


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"{name} must be a string of at most {_MAX_TEXT} characters, got {value!r}")
    return value


def _span(name: str, value: object) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    if not ok or not math.isfinite(float(value)) or not 0 <= float(value) < MAX_AMOUNT:  # type: ignore[arg-type]
        raise ValueError(f"{name} must be a number of seconds from 0, got {value!r}")
    return float(value)  # type: ignore[arg-type]
