"""What stands in for answers in pages has the fields and types of what the scheduler answers."""

from typing import Any

import pytest

from tests.contract.queues.test_keep_api import IDLE, document, idles
from tests.contract.queues.test_keep_api import job as answered
from tests.contract.rig import Rig
from tests.doubles.builders import gpu
from tests.web.teams import doubles

NOON = 1_795_521_600.0  # Tue 2026-11-24 12:00 UTC


@pytest.fixture
def rig() -> Any:
    rig = Rig(now=NOON)
    rig.node(gpus=(gpu("g0"),))
    yield rig
    rig.close()


def alike(real: Any, double: Any, at: str = "") -> list[str]:
    """Where the second is of another shape. Nothing is known of a field that is null, or of an empty list."""
    if isinstance(real, dict) and isinstance(double, dict):
        wrong = [f"{at}/{key} is in one only" for key in sorted(real.keys() ^ double.keys())]
        both = sorted(real.keys() & double.keys())
        return wrong + [each for key in both for each in alike(real[key], double[key], f"{at}/{key}")]
    if isinstance(real, list) and isinstance(double, list):
        return [each for one in double if real for each in alike(real[0], one, f"{at}/0")]
    if real is None or double is None or _kind(real) is _kind(double):
        return []
    return [f"{at} is {type(real).__name__}, and {type(double).__name__} in place of it"]


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def test_shape_check_names_the_field_that_differs() -> None:
    assert alike({"a": 1, "b": [{"c": "x"}]}, {"a": 1.5, "b": [{"c": "y"}]}) == []
    assert alike({"a": 1, "b": [{"c": "x"}]}, {"a": "1", "b": [{"d": "y"}]}) == [
        "/a is int, and str in place of it", "/b/0/c is in one only", "/b/0/d is in one only",
    ]  # fmt: skip


class Listed:
    """What a double asks of the scene: the jobs that run."""

    def __init__(self, *names: str) -> None:
        self._jobs = [{"name": name} for name in names]

    def call(self, verb: str, path: str) -> "Listed":
        return self

    def json(self) -> dict[str, Any]:
        return {"jobs": self._jobs, "queues": {"research": {}}}


def test_idle_jobs_of_the_board_are_as_the_scheduler_tells_them(rig: Rig) -> None:
    assert document(rig, IDLE).status_code == 200
    id = idles(rig, 120)
    warned = answered(rig, id)["idle"]
    assert rig.call("PUT", f"/v1/jobs/{id}/keep", json={"for_s": 60}).status_code == 200
    kept = answered(rig, id)["idle"]
    scene: Any = Listed("dino", "segment", "yolo", "serve")
    for job in doubles.idlers(scene, NOON)["/v1/jobs"]["jobs"]:
        assert [alike(real, job["idle"]) for real in (warned, kept)] == [[], []], job["name"]


def test_bookings_of_the_calendar_are_as_the_scheduler_tells_them(rig: Rig) -> None:
    body = {"name": "exam", "queue": "default", "gpus": 1, "from": "tomorrow 9:00", "for_s": 14400}
    assert rig.call("POST", "/v1/bookings", json=body).status_code == 201
    real = rig.call("GET", "/v1/bookings").json()
    assert len(real["bookings"]) == 1
    scene: Any = Listed()
    answers = doubles.calendar(scene, NOON)
    assert alike(real, answers["/v1/bookings"]) == []
