"""What is worked out from all of the state, once for all who ask within a moment."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mesos_gpu.engine.reading.view import View

T = TypeVar("T")
#: It is good for so many times as long as it took: at most a hundredth of the time goes into it.
_TIMES: Final = 100.0
_MAX_S: Final = 3.0
_QUICK_S: Final = 0.005  # what takes no longer is made for each


class Kept(Generic[T]):
    """A value that follows from the state. Where it is quickly made it is made anew for each; on large clusters it may
    be up to 3 s old."""

    def __init__(self, make: Callable[[View], T], now: Callable[[], float] = time.perf_counter) -> None:
        """`now`: seconds of a clock that is never set back."""
        self._make, self._now = make, now
        self._value: tuple[T, float] | None = None  # and until when it is good
        self._changes = 0  # calls of `forget`: a value that was begun before the latest one is not stored

    def forget(self) -> None:
        """Make it anew for who asks next: something has changed that he must see. From any thread."""
        self._changes += 1
        self._value = None

    def of(self, view: View) -> T:
        """The value. To be called inside `SchedulerApi.read_copy`, which runs one after the other."""
        begun, changes = self._now(), self._changes
        if self._value is not None and begun < self._value[1]:
            return self._value[0]
        value = self._make(view)
        ended = self._now()
        took = ended - begun
        keep = took >= _QUICK_S and changes == self._changes
        self._value = (value, ended + min(_MAX_S, _TIMES * took)) if keep else None
        return value
