"""What a task is told of its end: a file in its sandbox, whole or not at all, and the signal that its job asked for.

A message that comes twice is answered twice and done once.
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
    """What the scheduler is told, in words and as data; no data: nothing, so that it says it again."""

    words: str
    data: bytes = b""


class Notices:
    """Gives a task its notices. Not for several threads at once."""

    def __init__(
        self,
        sandbox: str,
        below: tuple[str, ...],
        send: Callable[[int], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """There was none yet.

        Args:
            sandbox: The executor's directory.
            below: Where the task's own is, there.
            send: Sends a signal to those of the task's processes that handle it.
            now: Seconds since the epoch, by the clock that the task sees.
        """
        self._sandbox, self._below, self._send, self._now = sandbox, below, send, now
        self._latest, self._signalled = NONE_YET, NONE_YET

    def hear(self, data: bytes) -> Answer:
        """Have the task read what a message says, if that is new."""
        try:
            word = decode_notice(data)
        except ValueError as error:
            return Answer(f"a notice that cannot be understood: {error}")
        if word is None:
            return Answer(f"a message that cannot be understood: {data[:200]!r}")
        if word.number <= self._latest:
            return Answer(f"notice {self._latest} was given before", encode_told(self._latest))
        problem = self._write(word)
        self._signal(word)
        if problem:
            return Answer(f"notice {word.number} cannot be given: {problem}")
        self._latest = word.number
        return Answer(_words(word), encode_told(word.number))

    def _write(self, word: Word) -> str:
        """Put the file there; why that cannot be, "": it is there."""
        text = json.dumps(body_of(word, self._now()), indent=1) + "\n"
        try:
            with Sandbox(self._sandbox) as place, place.enter(*self._below) as own:
                own.put(NOTICE, text.encode())
        except OSError as error:  # a full disk, or the task has a directory in its place
            return str(error)
        return ""

    def _signal(self, word: Word) -> None:
        if word.signal and word.number > self._signalled:
            self._signalled = word.number
            self._send(signal.Signals[word.signal].value)


def body_of(word: Word, now: float) -> dict[str, object]:
    """The file's JSON. Times are of this host's clock, which is the task's."""
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


def _words(word: Word) -> str:
    if word.warning:
        return f"warned of its end in {word.left_s:.1f} s: {word.why}"
    if word.recalled:
        return f"told to go on: notice {word.number} calls off what was said before"
    return f"told of its end in {word.left_s:.1f} s: {word.why}"
