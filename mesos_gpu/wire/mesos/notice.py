"""A notice, as a MESSAGE to an executor; what that answers, and what a task tells of its checkpoints, as the data of a
TASK_RUNNING. Pure.

Only the standard library's json: the host side imports it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.wire.body import MAX_AMOUNT, parsed

if TYPE_CHECKING:  # executors do without
    from mesos_gpu.model.jobs.job import NoticeSignal
    from mesos_gpu.model.tasks.notice import Notice

MARK: Final = b'"notice"'  # each such message has it
SIGNALS: Final = (
    "SIGHUP",
    "SIGINT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
)  # of `NoticeSignal`, whose module few need here
_NOTICE: Final = "notice"
_MAX_TEXT: Final = 2000


@dataclass(frozen=True, slots=True)
class Word:
    """A notice, as its task is to read it.

    Attributes:
        number: As of `Notice`.
        reason: One of the words of `NoticeReason`, or one that a later scheduler has.
        why: The same in words.
        by: The id of the job that it makes room for; "": no job.
        recalled: Whether it was called off, or is a warning: the task is not to end now.
        age_s: How long ago it was given.
        left_s: Until the task is ended.
        signal: That it is sent; "": none.
        warning: Whether it only says what comes if nothing changes; programs that know no warnings see `recalled`.
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
    """The message. Spans, not times: the clocks of hosts differ."""
    word = {
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
    return json.dumps({_NOTICE: word}, separators=(",", ":")).encode()


def decode_notice(data: bytes) -> Word | None:
    """The inverse; None: it is another message.

    Raises:
        ValueError: It is one of this kind, and something is missing or none.
    """
    word = _of(data, _NOTICE)
    if word is None:
        return None
    if not isinstance(word, dict):
        raise ValueError(f"a notice must be an object, got {word!r}")
    return Word(
        number=_number(word.get("number")),
        reason=_text("reason", word.get("reason")),
        why=_text("why", word.get("why")),
        by=_text("by", word.get("by")),
        recalled=word.get("recalled") is True,
        age_s=_span("age_s", word.get("age_s")),
        left_s=_span("left_s", word.get("left_s")),
        signal=_signal(word.get("signal")),
        warning=word.get("warning") is True,
    )


def encode_told(number: int) -> bytes:
    """The data by which an executor says that its task can read the notice of that number."""
    return json.dumps({"noticed": number}, separators=(",", ":")).encode()


def decode_told(data: bytes) -> int | None:
    """The inverse; None: it is other data.

    Raises:
        ValueError: It is of this kind, and no number.
    """
    number = _of(data, "noticed")
    return None if number is None else _number(number)


def encode_checkpoint(ago_s: float) -> bytes:
    """The data by which an executor says how long ago its task kept its work."""
    return json.dumps({"checkpoint": {"ago_s": ago_s}}, separators=(",", ":")).encode()


def decode_checkpoint(data: bytes) -> float | None:
    """The inverse, in seconds; None: it is other data.

    Raises:
        ValueError: It is of this kind, and no span of time.
    """
    said = _of(data, "checkpoint")
    if said is None:
        return None
    if not isinstance(said, dict):
        raise ValueError(f"a checkpoint must be an object, got {said!r}")
    return _span("ago_s", said.get("ago_s"))


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
    """Read a signal that a job may ask for; another one is of a later scheduler, and is not sent."""
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
