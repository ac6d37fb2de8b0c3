"""The Mesos driver without a master: its pauses, and addresses that cannot work."""

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.errors import BadConfiguration
from tests.contract.test_pymesos_driver import FRAMEWORK
from tests.doubles.scripted_master import Inbox


def test_defect_2_pauses_are_short_at_first_and_15_s_at_most() -> None:
    timings = pd.Timings()
    assert all(0.1 <= timings.pause_s(0) <= 0.2 for _ in range(100))
    assert all(7.5 <= timings.pause_s(n) <= 15.0 for n in (20, 100, 10**6))
    assert sum(0.2 * 1.5**n for n in range(4)) > 1.5  # four tries in the first two seconds


@pytest.mark.parametrize("address", ["", "https://master:5050", "host:port", "ftp://host"])
def test_pymesos_refuses_a_configuration_that_cannot_work(address: str) -> None:
    with pytest.raises(BadConfiguration):
        pd.PymesosDriver(FRAMEWORK, address, Inbox())
    with pytest.raises(BadConfiguration, match="principal"):
        pd.PymesosDriver(FRAMEWORK, "127.0.0.1:5050", Inbox(), secret="s")
