"""The suite of both clocks."""

import time

import pytest

from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.ports import Clock
from tests.doubles.fake_driver import FakeClock


@pytest.fixture(params=["system", "fake"])
def clock(request: pytest.FixtureRequest) -> Clock:
    return SystemClock() if request.param == "system" else FakeClock(time.time())


def test_clock_gives_seconds_since_the_epoch(clock: Clock) -> None:
    assert isinstance(clock.now(), float)
    assert abs(clock.now() - time.time()) < 3600


def test_clock_does_not_go_back_between_two_looks(clock: Clock) -> None:
    looks = [clock.now() for _ in range(1000)]
    assert looks == sorted(looks)


def test_the_fake_one_stands_where_a_test_puts_it() -> None:
    clock = FakeClock(5.0)
    assert (clock.now(), clock.now()) == (5.0, 5.0)
    clock.time += 1.5
    assert clock.now() == 6.5
