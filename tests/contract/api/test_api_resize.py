"""PATCH /v1/jobs/{id}: what it takes, what the job's host answers, and what is refused."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import ResizeAnswer, Resizing
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.resize import decode_request, encode_answer
from tests.conftest import wait_until
from tests.contract.api.test_api_shares import CARD, QUARTER
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import spec

PATCH = {"gpu_memory_mib": 10000}


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(CARD,))
    yield rig
    rig.close()


def run(rig: Rig, share: Share = QUARTER, name: str = "j") -> None:
    """A job with one task that has the share."""
    task = Task(
        TaskId(f"{name}.1"), AgentId("a1"), f"{name}.1", JobId(name), TaskState.RUNNING, 1.0,
        gpus=(GpuId("GPU-1"),), hostname="a1.example", share=share,
    )  # fmt: skip
    job = Job(JobId(name), spec(name=name, gpus=1, gpu_milli=250), 1.0, 1000)

    def put(view: Any) -> None:
        view.state.set_task(task)
        view.state.set_job(replace(job, state=JobState.RUNNING, task_id=task.id, launches=1))

    rig.daemon.read(put).result(60)


def patch(rig: Rig, body: Any = PATCH, query: str = "?timeout_s=0", job: str = "j") -> requests.Response:
    return rig.call("PATCH", f"/v1/jobs/{job}{query}", json=body)


def answered(rig: Rig, verb: str = "PATCH", path: str = "j", **fields: Any) -> requests.Response:
    """PATCH, or another verb, and what its host says meanwhile."""
    got: list[requests.Response] = []
    body = PATCH if verb == "PATCH" else None
    url = f"{rig.url}/v1/jobs/{path}"
    asker = threading.Thread(target=lambda: got.append(requests.request(verb, url, json=body, timeout=60)))
    asker.start()
    rig.driver.wait_for("message")
    _, _, data = [arguments for call, arguments in rig.driver.calls if call == "message"][-1]
    asked = decode_request(data)
    assert asked is not None
    answer = {
        "number": asked.number, "memory_mib": asked.memory_mib, "memory_max_mib": asked.memory_max_mib,
        "compute_milli": asked.compute_milli,
    }  # fmt: skip
    rig.status("j.1", "TASK_RUNNING", data=encode_answer(ResizeAnswer(**{**answer, **fields})))
    asker.join(60)
    return got[0]


def test_resize_is_done_when_the_host_says_so(rig: Rig) -> None:
    run(rig)
    response = answered(rig)
    job = response.json()
    assert response.status_code == 200
    assert (job["share"]["memory_mib"], job["gpu_memory_mib"], job["resize"]["state"]) == (
        10000,
        10000,
        "done",
    )


def test_until_then_it_is_asked_and_counted(rig: Rig) -> None:
    run(rig)
    response = patch(rig, {"gpu_memory_mib": 30000, "gpu_compute_pct": 40})
    job = response.json()
    assert response.status_code == 202
    assert job["resize"] == {
        "state": "asked", "memory_mib": 30000, "memory_max_mib": 30000, "compute_pct": 40.0,
        "since": rig.clock.now(), "reason": None, "used_memory_mib": None, "restart": False,
    }  # fmt: skip
    assert job["share"]["memory_mib"] == 20000
    (card,) = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert (card["sharing"]["free_memory_mib"], card["sharing"]["free_compute_pct"]) == (50000, 60.0)
    assert code_of(patch(rig)) == (409, "conflict")


def test_below_use_it_is_refused_with_the_figure(rig: Rig) -> None:
    run(rig)
    response = answered(rig, refused="it uses 12000 MiB", used_mib=12000, memory_mib=20000)
    assert code_of(response) == (409, "in-use")
    error = response.json()["error"]
    assert ("12000 MiB" in error["message"], "--wait" in error["remedy"]) == (True, True)
    resize = rig.call("GET", "/v1/jobs/j").json()["resize"]
    assert (resize["state"], resize["used_memory_mib"]) == ("refused", 12000)


def test_resize_that_the_host_cannot_do_offers_a_restart(rig: Rig) -> None:
    run(rig)
    response = answered(rig, refused="the limit is fixed", restart=True, memory_mib=20000)
    assert code_of(response) == (409, "refused")
    assert "--restart" in response.json()["error"]["remedy"]


def test_a_job_that_ends_meanwhile_is_not_resized(rig: Rig) -> None:
    run(rig)
    got: list[requests.Response] = []
    url = f"{rig.url}/v1/jobs/j?timeout_s=60"
    asker = threading.Thread(target=lambda: got.append(requests.patch(url, json=PATCH, timeout=90)))
    asker.start()
    rig.driver.wait_for("message")
    rig.status("j.1", "TASK_FINISHED")
    asker.join(40)
    assert code_of(got[0]) == (409, "refused")
    assert "ended before its host answered" in got[0].json()["error"]["message"]
    assert rig.call("GET", "/v1/jobs/j").json()["resize"]["state"] == "refused"


def test_a_restart_is_taken_where_it_is_wanted(rig: Rig) -> None:
    run(rig, replace(QUARTER, method=Method.SHIM_MPS2))
    body = {"gpu_compute_pct": 50}
    refused = patch(rig, body)
    assert code_of(refused) == (409, "conflict")
    assert "--restart" in refused.json()["error"]["remedy"]
    assert patch(rig, body, "?restart=true").status_code == 202
    assert rig.driver.wait_for("kill")[0] == "j.1"
    rig.status("j.1", "TASK_KILLED")
    wait_until("it is queued", lambda: rig.call("GET", "/v1/jobs/j").json()["state"] != "running")
    assert rig.call("GET", "/v1/jobs/j").json()["gpu_compute_pct"] == 50


def test_resize_without_an_answer_of_the_host_is_withdrawn(rig: Rig) -> None:
    run(rig)
    assert code_of(rig.call("DELETE", "/v1/jobs/j/resize")) == (409, "conflict")
    assert code_of(rig.call("DELETE", "/v1/jobs/nobody/resize")) == (404, "not-found")
    assert patch(rig, {"gpu_memory_mib": 30000}).status_code == 202
    refused = patch(rig)
    assert "mesos-gpu resize j --withdraw" in refused.json()["error"]["remedy"]
    asked = decode_request(rig.driver.wait_for("message")[2])
    assert asked is not None
    assert asked.memory_mib == 30000
    pending = rig.call("DELETE", "/v1/jobs/j/resize?timeout_s=0")
    assert (pending.status_code, pending.json()["resize"]["state"]) == (202, "withdrawing")
    (card,) = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert card["sharing"]["free_memory_mib"] == 50000, "it may have both"
    done = answered(rig, "DELETE", "j/resize")
    job = done.json()
    assert (done.status_code, job["resize"]["state"], job["share"]["memory_mib"]) == (200, "withdrawn", 20000)
    assert (job["gpu_memory_mib"], job["resize"]["memory_mib"]) == (None, 20000)


def test_resize_that_is_withdrawn_is_not_refused_by_a_member_of_a_gang(rig: Rig) -> None:
    larger = replace(QUARTER, memory_mib=30000, memory_max_mib=30000)
    refused = Resizing(1, larger, QUARTER, 1.0, answered=True, refused="no room")
    withdrawn = Resizing(2, QUARTER, larger, 1.0, back=True, withdrawn=True, answered=True)

    def put(view: Any) -> None:
        for rank, resize in enumerate((refused, withdrawn)):
            view.state.set_task(
                Task(
                    TaskId(f"g.1.{rank}"), AgentId("a1"), f"g.1.{rank}", JobId("g"), TaskState.RUNNING, 1.0,
                    gpus=(GpuId("GPU-1"),), launch=1, rank=rank, share=QUARTER, resize=resize,
                )
            )  # fmt: skip
        job = Job(JobId("g"), spec(name="g", gpus=1, gpu_milli=250, tasks=2), 1.0, 1000)
        view.state.set_job(replace(job, state=JobState.RUNNING, task_id=TaskId("g.1.0"), launches=1))

    rig.daemon.read(put).result(60)
    assert rig.call("GET", "/v1/jobs/g").json()["resize"]["state"] == "withdrawn"


WRONG: list[tuple[Any, set[str]]] = [
    ({}, {"/"}),
    ({"gpus": 2}, {"/gpus"}),
    ({"gpu_memory_mib": 0, "gpu_compute_pct": 101, "gpu_memory_max_mib": "x"},
     {"/gpu_memory_mib", "/gpu_compute_pct", "/gpu_memory_max_mib"}),
    ({"gpu_memory_mib": 1.5, "gpu_compute_pct": True}, {"/gpu_memory_mib", "/gpu_compute_pct"}),
    ({"gpu_memory_mib": 200, "gpu_memory_max_mib": 100}, {"/gpu_memory_max_mib"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "paths"), WRONG)
def test_resize_refusal_lists_all_problems(rig: Rig, body: Any, paths: set[str]) -> None:
    run(rig)
    response = patch(rig, body)
    assert code_of(response) == (422, "invalid")
    assert {problem["path"] for problem in response.json()["error"]["problems"]} == paths
    assert rig.call("GET", "/v1/jobs/j").json()["resize"] is None


def test_resize_of_a_job_without_a_running_share_is_refused(rig: Rig) -> None:
    assert code_of(patch(rig, job="nobody")) == (404, "not-found")
    waits = rig.submit(gpus=2)
    assert code_of(patch(rig, job=waits["id"])) == (409, "conflict")
    run(rig)
    assert code_of(patch(rig, [])) == (400, "bad-json")
    assert code_of(patch(rig, query="?restart=maybe")) == (422, "invalid")
    plain = {"Content-Type": "text/plain"}
    assert code_of(rig.call("PATCH", "/v1/jobs/j", data="{}", headers=plain)) == (415, "media-type")
    merge = {"Content-Type": "application/merge-patch+json"}
    taken = rig.call("PATCH", "/v1/jobs/j?timeout_s=0", data='{"gpu_memory_mib": 9000}', headers=merge)
    assert taken.status_code == 202


def test_a_drain_and_a_resize_do_not_go_together(rig: Rig) -> None:
    run(rig)
    drained = rig.call("POST", "/v1/gpus/GPU-1/drain", json={"reason": "a new fan", "by": "ann"})
    assert drained.status_code == 200
    refused = patch(rig)
    assert code_of(refused) == (409, "conflict")
    assert "GPU-1 is drained by ann: a new fan" in refused.json()["error"]["message"]
    assert rig.call("GET", "/v1/jobs/j").json()["resize"] is None
    assert rig.call("DELETE", "/v1/gpus/GPU-1/drain").status_code == 200
    assert patch(rig).status_code == 202
