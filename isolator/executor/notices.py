"""Notices of its end to a task: a file in its sandbox, written atomically, and the signal that its job
requested.

A message that arrives twice is answered twice and carried out once.
"""

import json
import signal
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from isolator.host.sandbox import NOTICE, Sandbox
from mesos_gpu.wire.mesos.notice import Word, decode_notice, encode_told

NONE_YET: Final = 0


class Answer(NamedTuple):
    """Answer to the scheduler, as text and as data; without data nothing is sent, so that the scheduler
    repeats the notice.
    """

    words: str
    data: bytes = b""


class Notices:
    """Delivery of notices to one task; not thread-safe.

    Args:
        sandbox: Sandbox directory of the executor.
        below: Path of the task's own sandbox below it.
        send: Function that sends a signal to those of the task's processes that handle it.
        now: Clock in seconds since the epoch, as the task sees it.
    """

    def __init__(
        self,
        sandbox: str,
        below: tuple[str, ...],
        send: Callable[[int], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sandbox, self._below, self._send, self._now = sandbox, below, send, now
        self._latest, self._signalled = NONE_YET, NONE_YET

    def hear(self, data: bytes) -> Answer:
        """Write the notice in a message for the task, if it is new; return the answer."""
        try:
            notice = decode_notice(data)
        except ValueError as error:
            return Answer(f"a notice that is not valid: {error}")
        if notice is None:
            return Answer(f"a message that is not valid: {data[:200]!r}")
        if notice.number <= self._latest:
            return Answer(f"notice {self._latest} was given before", encode_told(self._latest))
        problem = self._write(notice)
        self._signal(notice)
        if problem:
            return Answer(f"notice {notice.number} cannot be given: {problem}")
        self._latest = notice.number
        return Answer(_words(notice), encode_told(notice.number))

    def _write(self, notice: Word) -> str:
        """Write the notice's file; return the error, "" if it is written."""
        text = json.dumps(body_of(notice, self._now()), indent=1) + "\n"
        try:
            with Sandbox(self._sandbox) as place, place.enter(*self._below) as own:
                own.put(NOTICE, text.encode())
        except OSError as error:  # for example a full disk, or a directory that the task has put in its place
            return str(error)
        return ""

    def _signal(self, notice: Word) -> None:
        if notice.signal and notice.number > self._signalled:
            self._signalled = notice.number
            self._send(signal.Signals[notice.signal].value)


def body_of(word: Word, now: float) -> dict[str, object]:
    """Return the content of the notice's file. Times are of this host's clock, which the task shares."""
    return {
        "number": word.number,
        "reason": word.reason,
        "why": word.why,
        "by": word.by or None,
        "at": round(now - word.age_s, 3),
        "until": round(now + word.left_s, 3),
        "recalled": word.recalled,
        "warning": word.warning,
    }


def _words(notice: Word) -> str:
    if notice.warning:
        return f"the task was warned of its end in {notice.left_s:.1f} s: {notice.why}"
    if notice.recalled:
        return f"the task may go on: notice {notice.number} cancels the one before"
    return f"the task was notified of its end in {notice.left_s:.1f} s: {notice.why}"
