"""Whose a job is, where names are proved and where they are not; and whose queue an app may name."""

from collections.abc import Iterator

import pytest

from tests.contract.access.rig import ROOT, AccessRig
from tests.contract.rig import Rig


@pytest.fixture
def alone() -> Iterator[Rig]:
    """A scheduler that asks nobody for a name."""
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


def test_an_unproved_name_is_marked(alone: Rig) -> None:
    assert [alone.submit(user="ann")["owner"], alone.submit()["owner"]] == ["ann?", None]
    assert [each["owner"] for each in alone.call("GET", "/v1/queue").json()["jobs"]] == ["ann?", None]


def test_a_name_that_was_proved_stands_alone(rig: AccessRig) -> None:
    made = rig.call(ROOT, "POST", "/v1/jobs", json={"command": "true", "user": "ann"})
    assert (made.status_code, made.json()["owner"], made.json()["user"]) == (201, "root", "ann")


def test_a_priority_that_is_left_open_is_told_as_it_was_given(alone: Rig) -> None:
    document = {"version": 0, "queues": {"lab": {"default_priority": 7}}}
    assert alone.call("PUT", "/v1/queues", json=document).status_code == 200
    told = [
        alone.submit(queue="lab", **asked)["priority"] for asked in ({}, {"priority": 0}, {"priority": None})
    ]
    assert told == [7, 0, 7]
    assert alone.submit()["priority"] == 0
