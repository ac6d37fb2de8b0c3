"""The latest events, for any thread; each is here once it is on disk."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from mesos_gpu.model.tasks.event import MAX_EVENTS, LogEvent

SPARE: Final = 1000  # beyond `MAX_EVENTS`, so that few of them are forgotten at once


class EventLog:
    """What was told, oldest first."""

    def __init__(self, known: Iterable[LogEvent] = ()) -> None:
        """`known`: of earlier runs, by number."""
        self._events = list(known)
        self._news = threading.Condition()

    @property
    def first(self) -> int:
        """The number of the oldest one that is kept; 0: there is none."""
        with self._news:
            return self._events[0].number if self._events else 0

    @property
    def last(self) -> int:
        """The number of the latest one; 0: there is none."""
        with self._news:
            return self._events[-1].number if self._events else 0

    def after(self, number: int, most: int = MAX_EVENTS) -> Sequence[LogEvent]:
        """At most so many that come after the one of that number, oldest first."""
        with self._news:
            begin = bisect_right(self._events, number, key=lambda event: event.number)
            return self._events[begin : begin + most]

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait until there is one after that number; whether there is."""
        with self._news:
            return self._news.wait_for(
                lambda: bool(self._events) and self._events[-1].number > number, timeout_s
            )

    def wake(self) -> None:
        """Let go whoever waits."""
        with self._news:
            self._news.notify_all()

    def too_many(self) -> int:
        """The number up to which events are to be forgotten; 0: there is room."""
        with self._news:
            over = len(self._events) - MAX_EVENTS
            return self._events[over - 1].number if over >= SPARE else 0

    def add(self, events: Sequence[LogEvent], forgotten_up_to: int = 0) -> None:
        """Take in what is on disk by now, and drop what is there no more."""
        with self._news:
            self._events += events
            if forgotten_up_to:
                del self._events[
                    : bisect_right(self._events, forgotten_up_to, key=lambda event: event.number)
                ]
            self._news.notify_all()
