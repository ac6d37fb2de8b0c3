"""What events and the history tell whom: those of what he sees, and in their words nobody else's jobs."""

from collections.abc import Iterator

import pytest

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.past_jobs import PastJob
from mesos_gpu.model.saves import KeepJob
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.wire.job_fields import HIDDEN
from tests.contract.access.rig import AccessRig


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    rig.bind(
        {"names": ["boss"], "roles": ["admin"]},
        {"names": ["vera"], "roles": ["viewer"]},
        {"names": ["ann"], "roles": ["user"], "queues": ["ml"]},
        {"names": ["carl"], "roles": ["user"], "queues": ["other"]},
    )
    yield rig
    rig.close()


def messages(rig: AccessRig, who: str, path: str, key: str) -> list[str | None]:
    answer = rig.call(who, "GET", path)
    assert answer.ok, answer.text
    return [each["message"] for each in answer.json()[key]]


def test_events_name_only_jobs_that_the_caller_sees(rig: AccessRig) -> None:
    made = rig.call("ann", "POST", "/v1/jobs", json={"command": "true", "queue": "ml"})
    assert made.ok, made.text
    ann = made.json()["id"]
    last = rig.daemon.happened.last
    told = f"ended for job {ann}"
    rig.daemon.happened.add(
        [LogEvent(last + 1, 1.0, EventKind.KILLED, JobId("c"), "carl", "carl", "other", message=told)]
    )
    ended = JobState.KILLED
    past = PastJob(JobId("c"), "c", "carl", "carl", "other", "", "", ended, 1, 1, 2, 1, 1, 1, 0, (), {}, told)
    rig.store.save([KeepJob(past)])
    for path, key in (("/v1/events?kind=killed", "events"), ("/v1/history", "jobs")):
        assert messages(rig, "boss", path, key) == [told]
        assert messages(rig, "carl", path, key) == [f"ended for job {HIDDEN}"]
        assert messages(rig, "vera", path, key) == [None], "who sees jobs may not read them"
        assert messages(rig, "ann", path, key) == []
