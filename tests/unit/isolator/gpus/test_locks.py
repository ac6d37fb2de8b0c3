"""Locks on files that are waited for within a time, by a clock of the test."""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.gpus import locks
from isolator.gpus.locks import locked_now, locked_within


class Clock:
    """A clock that moves only in sleeps, and calls a function in each."""

    def __init__(self) -> None:
        """Begin at 100 s."""
        self.now, self.sleeps = 100.0, 0
        self.asleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now, self.sleeps = self.now + seconds, self.sleeps + 1
        self.asleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(locks, "time", clock)
    return clock


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], int]]:
    fds: list[int] = []

    def make() -> int:
        fds.append(os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR))
        return fds[-1]

    yield make
    for fd in fds:
        os.close(fd)


def test_lock_that_is_free_is_had_without_a_wait(clock: Clock, opened: Callable[[], int]) -> None:
    assert locked_within(opened(), 5.0)
    assert clock.sleeps == 0


def test_lock_excludes_all_others_while_it_is_held(opened: Callable[[], int]) -> None:
    first, second = opened(), opened()
    assert locked_now(first)
    assert not locked_now(second)
    fcntl.flock(first, fcntl.LOCK_UN)
    assert locked_now(second)


def test_lock_that_stays_held_is_given_up_after_the_time(clock: Clock, opened: Callable[[], int]) -> None:
    assert locked_now(opened())
    assert not locked_within(opened(), 2.0)
    assert 2.0 < clock.now - 100.0 < 2.1


def test_lock_that_is_let_go_in_time_is_had(clock: Clock, opened: Callable[[], int]) -> None:
    holder = opened()
    assert locked_now(holder)
    clock.asleep = lambda: fcntl.flock(holder, fcntl.LOCK_UN) if clock.sleeps == 3 else None
    assert locked_within(opened(), 2.0)
    assert clock.sleeps == 3
