"""Leftovers in a master's state after a soak."""

from typing import Any

import pytest

from tests.soak.witness import in_mesos

pytestmark = pytest.mark.on_change("soak")

RUNNING, FINISHED = "TASK_RUNNING", "TASK_FINISHED"


def told(state: str, *statuses: str, gpus: float = 0.0) -> list[str]:
    task = {"id": "w1-x.1", "state": state, "statuses": [{"state": each} for each in statuses]}
    framework: dict[str, Any] = {"used_resources": {"gpus": gpus}, "tasks": [task]}
    return list(in_mesos({"frameworks": [framework], "slaves": []}))


@pytest.mark.parametrize(
    "state, statuses",
    [
        ("TASK_STAGING", ()),
        (RUNNING, (RUNNING,)),
        (FINISHED, (RUNNING, FINISHED)),
        (FINISHED, (RUNNING, FINISHED, RUNNING, FINISHED)),
        (FINISHED, ()),
    ],
)
def test_witness_reports_a_task_that_the_master_still_has(state: str, statuses: tuple[str, ...]) -> None:
    assert told(state, *statuses) == [f"task: Mesos has w1-x.1, {state}"]


def test_witness_ignores_a_task_listed_for_a_late_earlier_update() -> None:
    assert told(FINISHED, RUNNING, FINISHED, RUNNING) == []


def test_witness_reports_resources_of_an_ignored_task() -> None:
    assert told(FINISHED, RUNNING, FINISHED, RUNNING, gpus=1.0) == ["gpus: Mesos has 1 in use"]
