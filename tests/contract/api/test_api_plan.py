"""Plans over the REST interface and on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.engine import events as ev
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu, offer

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    """Two nodes of two GPUs, each with a preemptible job that has one."""
    rig = Rig()
    for agent in ("a1", "a2"):
        rig.node(agent, (gpu(f"{agent}-0"), gpu(f"{agent}-1")))
        job = rig.submit(name=f"job-{agent}", gpus=1, preemptible=True)
        rig.status(f"{job['id']}.1", "TASK_RUNNING", agent)
    for agent in ("a1", "a2"):
        rig.daemon.put(ev.OffersArrived((offer(f"{agent}-3", agent, gpus=1),)))
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


def planned(rig: Rig, **request: Any) -> dict[str, Any]:
    response = rig.call("POST", "/v1/plan/defrag", json=request)
    assert response.status_code == 200, response.text
    return dict(response.json())


def defrag(*words: str) -> Result:
    return CliRunner().invoke(main, ["plan", "defrag", *words], prog_name="mesos-gpu")


def test_a_plan_for_a_request(rig: Rig) -> None:
    plan = planned(rig, gpus=2)
    (job,) = rig.call("GET", "/v1/jobs?name=job-a1").json()["jobs"]
    assert plan == {
        "fits": False,
        "feasible": True,
        "proven_fewest": True,
        "target": {"hostname": "a1.example", "gpu_ids": ["a1-0", "a1-1"]},
        "moves": [
            {
                "job_id": job["id"],
                "name": "job-a1",
                "from": "a1.example",
                "to": "a2.example",
                "gpu_ids": ["a2-1"],
                "lost_gpu_s": 0.0,
            }
        ],
        "lost_gpu_s": 0.0,
        "reason": "1 move makes room on a1.example",
    }
    assert [job["state"] for job in rig.call("GET", "/v1/jobs").json()["jobs"]] == ["running", "running"]


def test_plan_tells_what_fits_and_what_does_not(rig: Rig) -> None:
    plan = planned(rig, gpus=1)
    assert (plan["fits"], plan["moves"]) == (True, [])
    assert len(planned(rig, gpus=1, tasks=2)["target"]) == 2
    plan = planned(rig, gpus=3)
    assert (plan["feasible"], plan["target"], plan["proven_fewest"]) == (False, None, True)
    assert plan["reason"] == "no plan: no node is large enough, even when all that runs there has ended"


def test_a_plan_for_a_job_that_waits(rig: Rig) -> None:
    job = rig.submit(name="large", gpus=2)
    plan = rig.call("GET", f"/v1/plan/defrag/{job['id']}").json()
    assert len(plan["moves"]) == 1
    shown = json.loads(defrag("--job", job["id"], "--json").output)
    assert shown == plan
    (running,) = rig.call("GET", "/v1/jobs?name=job-a1").json()["jobs"]
    response = rig.call("GET", f"/v1/plan/defrag/{running['id']}")
    assert code_of(response) == (409, "conflict")
    assert "is running: only waiting jobs need room" in response.json()["error"]["message"]
    assert code_of(rig.call("GET", "/v1/plan/defrag/none")) == (404, "not-found")


def test_a_wrong_request_is_refused(rig: Rig) -> None:
    assert code_of(rig.call("POST", "/v1/plan/defrag", json={"gpus": -1})) == (422, "invalid")
    assert code_of(rig.call("POST", "/v1/plan/defrag", data="{", headers=JSON)) == (400, "bad-json")


def test_the_command_shows_the_moves_in_their_order(rig: Rig) -> None:
    got = defrag("--gpus", "2", "--gpu-model", "A100", "--mem", "1GiB")
    assert got.exit_code == 0, got.output
    first, _, move, room = got.output.splitlines()
    assert first == "1 move makes room on a1.example"
    assert move.split()[0] == "1"
    assert move.split()[2:] == ["job-a1", "a1.example", "a2.example", "a2-1", "0"]
    assert room == "room on a1.example: a1-0, a1-1"


def test_the_exit_code_says_whether_there_is_a_plan(rig: Rig) -> None:
    got = defrag("--gpus", "1")
    assert (got.exit_code, got.output.splitlines()[0][:11]) == (0, "it fits now")
    got = defrag("--gpus", "2", "--constraint", "hostname:LIKE:nowhere")
    assert (got.exit_code, got.output) == (1, "no plan: no node meets its constraints\n")
    got = defrag("--gpus", "2", "--job", "x")
    assert got.exit_code == 2
    assert "--job and options of a new request exclude each other" in got.output
