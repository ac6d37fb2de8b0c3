"""The latest saved events, for any thread."""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from mesos_gpu.model.tasks.event import MAX_EVENTS, LogEvent

SPARE: Final = 1000  # events kept beyond `MAX_EVENTS` before the excess is removed in one go


class EventLog:
    """Saved events, oldest first.

    Args:
        known: Events of earlier runs, by ascending number.
    """

    def __init__(self, known: Iterable[LogEvent] = ()) -> None:
        self._events = list(known)
        self._news = threading.Condition()

    @property
    def first(self) -> int:
        """Number of the oldest event; 0 without events."""
        with self._news:
            return self._events[0].number if self._events else 0

    @property
    def last(self) -> int:
        """Number of the latest event; 0 without events."""
        with self._news:
            return self._events[-1].number if self._events else 0

    def after(self, number: int, most: int = MAX_EVENTS) -> Sequence[LogEvent]:
        """Return at most `most` events after the event `number`, oldest first."""
        with self._news:
            begin = bisect_right(self._events, number, key=lambda event: event.number)
            return self._events[begin : begin + most]

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for an event after `number`; return whether there is one."""
        with self._news:
            return self._news.wait_for(
                lambda: bool(self._events) and self._events[-1].number > number, timeout_s
            )

    def wake(self) -> None:
        """Wake up all waiting threads."""
        with self._news:
            self._news.notify_all()

    def too_many(self) -> int:
        """Return the number up to which events are to be removed; 0 if there are not too many."""
        with self._news:
            over = len(self._events) - MAX_EVENTS
            return self._events[over - 1].number if over >= SPARE else 0

    def add(self, events: Sequence[LogEvent], forgotten_up_to: int = 0) -> None:
        """Add saved events, and remove those up to the number `forgotten_up_to`."""
        with self._news:
            self._events += events
            if forgotten_up_to:
                del self._events[
                    : bisect_right(self._events, forgotten_up_to, key=lambda event: event.number)
                ]
            self._news.notify_all()
