"""Cache of a value that is computed from the whole state, shared by all requests within a few seconds."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mesos_gpu.engine.reading.view import View

T = TypeVar("T")
#: A value is valid for this many times as long as it took to make: at most 1 % of the time goes into making it.
_TIMES: Final = 100.0
_MAX_S: Final = 3.0
_QUICK_S: Final = 0.005  # a value that is made faster is not cached


class Kept(Generic[T]):
    """Cache of a value that is computed from the state.

    A value that is quickly made is made for each caller; on large clusters a cached value may be up to 3 s old.

    Args:
        make: Function that computes the value from a view of the state.
        now: Monotonic clock, in seconds.
    """

    def __init__(self, make: Callable[[View], T], now: Callable[[], float] = time.perf_counter) -> None:
        self._make, self._now = make, now
        self._value: tuple[T, float] | None = None  # with the time at which it expires
        self._changes = 0  # calls of `forget`: a value that was begun before the latest one is not stored

    def forget(self) -> None:
        """Discard the cached value, because the next caller must see a change. For any thread."""
        self._changes += 1
        self._value = None

    def of(self, view: View) -> T:
        """Return the value. To be called inside `SchedulerApi.read_copy`, which runs one function after the other."""
        begun, changes = self._now(), self._changes
        if self._value is not None and begun < self._value[1]:
            return self._value[0]
        value = self._make(view)
        ended = self._now()
        took = ended - begun
        keep = took >= _QUICK_S and changes == self._changes
        self._value = (value, ended + min(_MAX_S, _TIMES * took)) if keep else None
        return value
