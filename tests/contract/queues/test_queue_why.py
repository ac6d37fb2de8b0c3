"""Why a queue's jobs wait, over REST and at the command line: how many for what, and no more than one may see."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.tasks.status import Status
from tests.conftest import wait_until
from tests.contract.access.rig import ROOT
from tests.contract.access.test_access_cli import done, failed
from tests.contract.cli.cli_rig import call
from tests.contract.queues.share_rig import ShareRig
from tests.contract.queues.test_queues_api import ANN, BOSS, code_of
from tests.doubles.builders import offer

QUEUES = {
    "prod": {"guarantee_gpus": [{"nodes": 1, "gpus": 4}]},
    "dev": {"limit_gpus": 6},
    "dev/vision": {"min_runtime_s": {"reclaim": 600}, "max_running": 2},
    "dev/speech": {},
}
DEV = """\
dev: 3 jobs wait for 6 GPUs.

POOL     GUARANTEE  IN_GUARANTEE  LENT  HELD  FAIR_SHARE  LIMIT  PENDING
default          0             0     0     6           6      6        6

REASON       JOBS  GPUS  FIRST          WHY
queue-limit     3     6  true-00000000  queue dev may hold 6 GPUs, and holds 6

true-00000000: waits for its queue: queue dev may hold 6 GPUs, and holds 6.
Place in the queue: 1, no job ahead of it.
"""
PROD = """\
prod: 1 job waits for 4 GPUs.

POOL     GUARANTEE  IN_GUARANTEE  LENT  HELD  FAIR_SHARE  LIMIT  PENDING
default          4             0     2     0           4      -        4

REASON     JOBS  GPUS  FIRST          WHY
guarantee     1     4  true-00000000  its guarantee is still in use on nodes

true-00000000: waits for 7.1 cpus, 14578 MiB and 48 MiB for its executor, 4 GPUs, guaranteed \
by queue prod: 2 GPUs are free, on 1 node; \
reclaim of 2 GPUs from queue dev/LEAF (true-00000000) now.
Place in the queue: 1, no job ahead of it.
"""


@pytest.fixture
def example(rig: ShareRig) -> ShareRig:
    """dev has 6 of 8 GPUs, which is all that it may have; more of it wait, and prod for its node."""
    assert rig.call(ROOT, "PUT", "/v1/queues", json={"version": 0, "queues": QUEUES}).ok
    for queue in ("dev/vision", "dev/vision", "dev/speech"):
        submit(rig, queue, 2)
    for i in range(2):
        rig.node(f"a{i}", [f"g{i}{j}" for j in range(4)])
    wait_until("dev has what it may have", lambda: why(rig, "dev")["pools"][0]["held_gpus"] == 6)
    for queue in ("dev/vision", "dev/speech", "dev/speech"):
        submit(rig, queue, 2)
    return rig


def submit(rig: ShareRig, queue: str, gpus: int, who: Any = ROOT) -> str:
    body = {"command": "true", "queue": queue, "gpus": gpus, "preemptible": True}
    return str(rig.call(who, "POST", "/v1/jobs", json=body).json()["id"])


def why(rig: ShareRig, path: str, who: Any = ROOT) -> Any:
    answer = rig.call(who, "GET", f"/v1/queue-why/{path}")
    assert answer.ok, answer.text
    return answer.json()


def test_jobs_are_counted_by_reason_of_waiting(example: ShareRig) -> None:
    assert example.call(ROOT, "POST", "/v1/jobs", json={"command": "true", "queue": "prod", "gpus": 4}).ok
    told = why(example, "dev")
    assert told["summary"] == "3 jobs wait for 6 GPUs"
    assert [(each["reason"], each["jobs"], each["gpus"]) for each in told["waits"]] == [("queue-limit", 3, 6)]
    assert told["first"]["job_id"] == told["waits"][0]["first"]
    assert told["first"]["summary"].endswith(told["waits"][0]["words"])
    owed = why(example, "prod")
    assert [(each["reason"], each["jobs"], each["words"]) for each in owed["waits"]] == [("guarantee", 1, "")]
    assert (owed["pools"][0]["lent_gpus"], owed["first"]["funnel"][-1]["reason"]) == (2, "guarantee")


def test_queue_why_tells_of_no_waiting_job_and_of_a_hold(example: ShareRig) -> None:
    assert why(example, "prod") == {
        "path": "prod", "summary": "no job waits; 0 GPUs allocated", "pools": why(example, "prod")["pools"],
        "waits": [], "first": None,
    }  # fmt: skip
    done("queue", "hold", "dev")
    told = why(example, "dev/speech")
    assert told["summary"].endswith(": queue dev is on hold")
    assert [each["reason"] for each in told["waits"]] == ["hold"]
    assert code_of(example.call(ROOT, "GET", "/v1/queue-why/none")) == (404, "not-found")
    assert "there is no queue none" in failed(call("queue", "why", "none"), 66)


def test_queue_why_names_only_queues_and_jobs_that_the_caller_sees(example: ShareRig) -> None:
    example.bind(BOSS, {**ANN, "queues": ["prod"]})
    owed = submit(example, "prod", 4, who="ann")
    shown, whole = why(example, "prod", "ann"), why(example, "prod")
    jobs = example.call(ROOT, "GET", "/v1/jobs").json()["jobs"]
    givers = [job["id"] for job in jobs if job["queue"] != "prod"]
    assert any(giver in str(whole) for giver in givers)
    assert "queue dev" in str(whole)
    assert not any(giver in str(shown) for giver in givers)
    assert "queue dev" not in str(shown)
    mine = example.call("ann", "GET", f"/v1/why/{owed}").json()
    assert "reclaim of 2 GPUs from queue " in mine["summary"]
    assert "dev" not in str(mine)
    assert code_of(example.call("ann", "GET", "/v1/queue-why/dev")) == (403, "forbidden")


def test_queue_why_fits_80_columns(example: ShareRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert printed("dev") == DEV
    submit(example, "prod", 4)
    text = re.sub("dev/[a-z]+", "dev/LEAF", printed("prod"))
    assert text == PROD


def printed(path: str) -> str:
    """What the command says, with one id for all jobs, and without the estimate: that is another each second."""
    text = re.sub("true-[0-9a-f]{8}", "true-00000000", done("queue", "why", path))
    return text.partition("Estimated start: ")[0]


def test_a_dry_run_names_the_jobs_that_would_be_stopped(example: ShareRig, tmp_path: Path) -> None:
    smaller = {**QUEUES, "prod": {"guarantee_gpus": 2}}
    assert example.call(ROOT, "PUT", "/v1/queues", json={"version": 1, "queues": smaller}).ok
    owed = submit(example, "prod", 4)
    wait_until("it waits", lambda: why(example, "prod")["waits"])
    wanted = {**smaller, "prod": {"guarantee_gpus": [{"nodes": 1, "gpus": 4}]}}
    plan = example.call(ROOT, "POST", "/v1/plan/queues", json={"queues": wanted}).json()
    (reclaim,) = plan["reclaims"]
    assert (reclaim["job_id"], reclaim["queue"], len(reclaim["givers"])) == (owed, "prod", 1)
    assert reclaim["givers"][0]["gpus"] == 2
    file = tmp_path / "queues.json"
    file.write_text(json.dumps({"version": 2, "queues": wanted}))
    told = done("queue", "apply", str(file), "--dry-run")
    (job,) = reclaim["givers"][0]["jobs"]
    assert re.search(rf"Job {owed} of queue prod would preempt, (now|in \d+s): {job} of queue dev/", told), (
        told
    )
    assert why(example, "prod")["pools"][0]["guarantee_gpus"] == 2, "nothing is changed"


def test_queue_why_tells_who_made_room_also_when_the_job_runs(example: ShareRig) -> None:
    example.bind(BOSS, {**ANN, "queues": ["prod"]})
    owed = submit(example, "prod", 4, who="ann")

    def shown(who: Any = ROOT) -> Any:
        return example.call(who, "GET", f"/v1/jobs/{owed}").json()

    assert shown()["room_made_by"] == []
    example.clock.time += 20  # what is free has been offered long ago
    wait_until("room is made for it", lambda: shown()["room_made_by"])
    (giver,) = shown()["room_made_by"]
    (task,) = example.call(ROOT, "GET", f"/v1/jobs/{giver}/tasks").json()["tasks"]
    agent = AgentId(task["agent_id"])
    example.daemon.put(ev.StatusArrived(Status(TaskId(task["id"]), "TASK_KILLED", agent, uuid="u2")))
    example.daemon.put(ev.OffersArrived((offer("freed", agent, gpus=4),)))
    wait_until("it starts", lambda: shown()["state"] == "starting")
    assert re.search(f"room made by +{giver}$", done("show", owed), re.MULTILINE)
    assert shown("ann")["room_made_by"] == [], "she does not see it"
