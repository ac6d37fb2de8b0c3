"""/v1/jobs/{id}/keep, what a job shows of its idle GPUs, and a document that warns too early."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

IDLE = {
    "policy": "always", "warn_after_s": 100, "return_after_s": 200, "start_grace_s": 0, "max_keep_s": 3600,
}  # fmt: skip


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(gpu("g0"),))
    assert document(rig, IDLE).status_code == 200
    yield rig
    rig.close()


def document(rig: Rig, idle: Any) -> Any:
    return rig.call("PUT", "/v1/queues/ml", json={"version": 0, "idle": idle})


def job(rig: Rig, name: str) -> dict[str, Any]:
    return dict(rig.call("GET", f"/v1/jobs/{name}").json())


def idles(rig: Rig, seconds: int) -> str:
    """A job that runs and does nothing for so long; its id."""
    id: str = rig.submit(gpus=1, queue="ml")["id"]
    rig.daemon.read(lambda view: None).result(60)
    wait_until("it is launched", lambda: job(rig, id)["task_ids"])
    task = job(rig, id)["task_ids"][0]
    rig.status(task, "TASK_STARTING")
    rig.status(task, "TASK_RUNNING")
    for number in range(seconds // 10 + 1):
        work = Work(0.0, number * 10_000, 0)
        use = TaskUse(task, gpu("g0").id, rig.clock.time, 1, 10, work)
        rig.tell(Inventory((gpu("g0"),), "simulated", "535", "12.2", task_uses=(use,)))
        job(rig, id)
        rig.clock.time += 10
    return id


def test_a_job_shows_how_idle_it_is_and_is_kept(rig: Rig) -> None:
    id = idles(rig, 120)
    idle = job(rig, id)["idle"]
    assert (idle["state"], idle["policy"], idle["keep_until"]) == ("warned", "always", None)
    assert idle["idle_s"] >= 100
    assert job(rig, id)["notice"]["warning"]
    answer = rig.call("PUT", f"/v1/jobs/{id}/keep", json={"for_s": 600})
    assert (answer.status_code, answer.json()["idle"]["state"]) == (200, "active")
    assert answer.json()["idle"]["keep_until"] > rig.clock.time
    kinds = [each["kind"] for each in rig.call("GET", "/v1/events?kind=kept&kind=idle_over").json()["events"]]
    assert kinds == ["idle_over", "kept"]
    assert rig.call("DELETE", f"/v1/jobs/{id}/keep").json()["idle"] is None
    answer = rig.call("DELETE", f"/v1/jobs/{id}/keep")
    assert (answer.status_code, answer.json()["error"]["message"]) == (409, f"job {id} is not kept")


BAD = {
    "nothing": ({}, "must have either for_s"),
    "both": ({"for_s": 1, "until": 5}, "must have either for_s"),
    "a text": ({"for_s": "2h"}, "must be a number of seconds above 0"),
    "nought": ({"for_s": 0}, "must be a number of seconds above 0"),
    "a field that there is not": ({"for_s": 1, "why": "x"}, "there is no such field"),
    "too long": ({"for_s": 3601}, "may be kept for 3600 s from now"),
    "over already": ({"until": 1}, "has passed"),
}


@pytest.mark.parametrize(("body", "words"), BAD.values(), ids=BAD)
def test_keep_refusal_names_the_problem(rig: Rig, body: Any, words: str) -> None:
    id = rig.submit(gpus=1, queue="ml")["id"]
    answer = rig.call("PUT", f"/v1/jobs/{id}/keep", json=body)
    assert answer.status_code == 422
    assert words in answer.text
    assert job(rig, id)["idle"] is None


DOCUMENTS = {
    "too early for the monitors": (
        {"warn_after_s": 29},
        "/idle/warn_after_s",
        "monitors report every 10 s, and 3 reports are needed",
    ),
    "it ends before it is warned": (
        {"warn_after_s": 100, "return_after_s": 100},
        "/idle/return_after_s",
        "a job is warned before it is ended",
    ),
    "a share of nothing": ({"busy_share": 0}, "/idle/busy_share", "must be a number from 0.001 to 0.5"),
    "a policy that there is not": ({"policy": "never"}, "/idle/policy", "report, pressure, always"),
    "a label of nothing": ({"exempt_labels": ["=x"]}, "/idle/exempt_labels/0", "must be the key of a label"),
}


@pytest.mark.parametrize(("idle", "place", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_that_cannot_be_kept_is_refused_with_the_place(
    rig: Rig, idle: Any, place: str, words: str
) -> None:
    answer = rig.call("PUT", "/v1/queues/ml", json={"version": 1, "idle": idle})
    assert answer.status_code == 422
    assert place in answer.text
    assert words in answer.text
