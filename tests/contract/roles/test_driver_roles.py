"""Roles of a framework, as the driver tells a master of them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.pymesos_driver import Registered
from tests.contract.test_pymesos_driver import FRAMEWORK, QUICK, master
from tests.doubles.scripted_master import Inbox, ScriptedMaster

__all__ = ["master"]


@pytest.fixture
def driver(master: ScriptedMaster) -> Iterator[pd.PymesosDriver]:
    framework = replace(FRAMEWORK, roles=("gpu", "gpu-prod"))
    made = pd.PymesosDriver(framework, master.address, inbox := Inbox(), timings=QUICK)
    made.start()
    inbox.wait_for(Registered)
    yield made
    made.stop(teardown=False)


def test_a_framework_of_several_roles_asks_for_the_offers_of_some(
    driver: pd.PymesosDriver, master: ScriptedMaster
) -> None:
    driver.suppress(["gpu"])
    driver.revive(["gpu-prod"])
    info = master.wait_for("SUBSCRIBE").body["subscribe"]["framework_info"]
    assert info["roles"] == ["gpu", "gpu-prod"]
    assert {"type": "MULTI_ROLE"} in info["capabilities"]
    assert master.wait_for("SUPPRESS").body["suppress"] == {"roles": ["gpu"]}
    assert master.wait_for("REVIVE").body["revive"] == {"roles": ["gpu-prod"]}
