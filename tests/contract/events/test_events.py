"""GET /v1/events, and what is said of notices and checkpoints over the interface."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.notice import decode_notice, encode_checkpoint, encode_told
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, spec


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(gpu("GPU-1"),))
    run(rig)
    yield rig
    rig.close()


def run(rig: Rig) -> None:
    """A job that runs and wants notice."""
    job = Job(JobId("j"), spec(name="j", gpus=1, notice_s=300.0), 1.0, 1000)
    task = Task(
        TaskId("j.1"), AgentId("a1"), "j.1", job.id, TaskState.RUNNING, 1.0, gpus=(GpuId("GPU-1"),),
        hostname="a1.example", started_at=2.0,
    )  # fmt: skip

    def put(view: Any) -> None:
        view.state.set_task(task)
        view.state.set_job(replace(job, state=JobState.RUNNING, task_id=task.id, launches=1, started_at=2.0))

    rig.daemon.read(put).result(60)


_OF_NOTICES = "kind=notice&kind=recall&kind=end&kind=checkpoint"


def events(rig: Rig, query: str = "") -> dict[str, Any]:
    """The events of notices and checkpoints."""
    more = f"&{query[1:]}" if query else ""
    body: dict[str, Any] = rig.call("GET", f"/v1/events?{_OF_NOTICES}{more}").json()
    return body


def drain(rig: Rig) -> None:
    answer = rig.call("POST", "/v1/gpus/GPU-1/drain", json={"reason": "fan", "deadline_s": 200})
    assert answer.status_code < 300, answer.text
    later(rig)


def later(rig: Rig) -> None:
    """Let time pass, and something come of it."""
    rig.clock.time += 1
    events(rig)


def job(rig: Rig) -> dict[str, Any]:
    body: dict[str, Any] = rig.call("GET", "/v1/jobs/j").json()
    return body


def test_a_notice_and_its_recall_are_events_and_the_job_shows_the_latest(rig: Rig) -> None:
    assert events(rig)["events"] == []
    assert job(rig)["notice"] is None
    drain(rig)
    wait_until("it is told", lambda: events(rig)["events"])
    rig.driver.wait_for("message")
    (sent,) = [arguments for call, arguments in rig.driver.calls if call == "message"]
    word = decode_notice(sent[2])
    assert word is not None
    assert (word.number, word.reason, word.recalled) == (1, "drain", False)
    rig.status("j.1", "TASK_RUNNING", data=encode_told(1))
    wait_until("it can be read", lambda: job(rig)["notice"]["told"])
    rig.call("DELETE", "/v1/gpus/GPU-1/drain")
    later(rig)
    wait_until("it is called off", lambda: len(events(rig)["events"]) == 2)
    given, recalled = events(rig)["events"]
    assert [(each["kind"], each["job_id"]) for each in (given, recalled)] == [
        ("notice", "j"),
        ("recall", "j"),
    ]
    assert given["notice"]["recalled_at"] is None
    assert recalled["notice"] == {**job(rig)["notice"], "told": False}
    assert recalled["notice"]["recalled_at"] == recalled["at"]
    rest = events(rig, f"?after={given['number']}")
    assert rest["events"] == [recalled]
    assert rest["last"] >= recalled["number"]


def test_event_request_waits_for_later_events(rig: Rig) -> None:
    answers: list[requests.Response] = []
    url = f"{rig.url}/v1/events?kind=notice&after=0&timeout_s=60"
    asker = threading.Thread(target=lambda: answers.append(requests.get(url, timeout=90)))
    asker.start()
    drain(rig)
    asker.join(80)
    assert [each["kind"] for each in answers[0].json()["events"]] == ["notice"]


def test_event_request_without_a_timeout_does_not_wait(rig: Rig) -> None:
    far = 1 << 60
    assert events(rig, f"?after={far}&timeout_s=0") == {
        "events": [],
        "last": far,
        "first": events(rig)["first"],
    }


def test_checkpoints_are_kept_and_too_many_are_not(rig: Rig) -> None:
    assert job(rig)["checkpoint_at"] is None
    rig.status("j.1", "TASK_RUNNING", data=encode_checkpoint(0.0))
    wait_until("it is kept", lambda: job(rig)["checkpoint_at"])
    first = job(rig)["checkpoint_at"]
    answer = rig.call("POST", "/v1/jobs/j/checkpoint")
    assert (answer.status_code, answer.json()["checkpoint_at"]) == (200, first)
    assert [each["kind"] for each in events(rig)["events"]] == ["checkpoint"]


def test_checkpoint_request_is_only_for_running_tasks(rig: Rig) -> None:
    waits = rig.call("POST", "/v1/jobs", json={"command": "true", "gpus": 4}).json()["id"]
    answer = rig.call("POST", f"/v1/jobs/{waits}/checkpoint")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert rig.call("POST", "/v1/jobs/none/checkpoint").status_code == 404
