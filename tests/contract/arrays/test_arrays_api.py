"""Job arrays over REST and on the command line: one record, its tasks by name, index and range."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu

GPUS = (gpu("g0"), gpu("g1"), gpu("g2"), gpu("g3"))


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))


def call(rig: Rig, *words: str) -> Result:
    return CliRunner().invoke(main, ["--url", rig.url, *words])


def sweep(rig: Rig, array: object = "0-9%2", **more: object) -> dict[str, Any]:
    rig.node(gpus=GPUS)
    return rig.submit(name="sweep", array=array, gpus=1, **more)


def member(array: dict[str, Any], index: int) -> str:
    name, _, tail = array["id"].rpartition("-")
    return f"{name}.{index}-{tail}"


def get(rig: Rig, path: str) -> dict[str, Any]:
    response = rig.call("GET", path)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_an_array_is_answered_as_a_job(rig: Rig) -> None:
    array = sweep(rig)
    assert (array["array"], array["array_id"]) == ("0-9%2", None)
    now = get(rig, f"/v1/jobs/{array['id']}")
    assert now["array_counts"] == {
        "tasks": 10, "waiting": 8, "running": 2, "finished": 0, "failed": 0, "killed": 0,
    }  # fmt: skip
    assert (now["state"], now["message"]) == ("running", "2 running, 8 waiting")
    assert get(rig, "/v1/jobs/sweep")["id"] == array["id"]


def test_a_list_is_written_as_a_text(rig: Rig) -> None:
    assert rig.submit(name="sweep", array=[9, 1, 5, 6])["array"] == "1,5-6,9"


@pytest.mark.parametrize(
    "wrong", ["", "5-1", "1,1", "0-9%0", "a", [], [1, "2"], [True], {"from": 1}, 7, "0-100000"]
)
def test_invalid_array_indexes_are_refused(rig: Rig, wrong: object) -> None:
    response = rig.call("POST", "/v1/jobs", json={"command": "true", "array": wrong})
    assert code_of(response) == (422, "invalid")
    assert [each["path"] for each in response.json()["error"]["problems"]] == ["/array"]


def test_more_tasks_than_are_allowed_are_refused(rig: Rig) -> None:
    response = rig.call("POST", "/v1/jobs", json={"command": "true", "array": "0-10000"})
    assert response.status_code == 422
    assert response.json()["error"]["problems"][0]["path"] == "/array"


def test_lists_show_an_array_in_place_of_its_tasks(rig: Rig) -> None:
    array = sweep(rig)
    alone = rig.submit(name="alone")
    ids = [job["id"] for job in get(rig, "/v1/jobs?fold_arrays=true")["jobs"]]
    assert sorted(ids) == sorted([array["id"], alone["id"]])
    ids = [job["id"] for job in get(rig, "/v1/jobs?state=running&state=starting")["jobs"]]
    assert sorted(ids) == [member(array, 0), member(array, 1)]
    assert get(rig, "/v1/jobs?fold_arrays=true&limit=1")["total"] == 2
    assert get(rig, "/v1/status")["jobs"]["pending"] >= 8


def test_array_task_is_a_job_by_name_and_index(rig: Rig) -> None:
    array = sweep(rig)
    runs = get(rig, "/v1/jobs/sweep.1")
    assert (runs["id"], runs["array_id"], runs["array_index"]) == (member(array, 1), array["id"], 1)
    waits = get(rig, "/v1/jobs/sweep.7")
    assert (waits["id"], waits["name"], waits["state"]) == (member(array, 7), "sweep.7", "pending")
    assert get(rig, f"/v1/jobs/{member(array, 7)}")["array_index"] == 7
    assert code_of(rig.call("GET", "/v1/jobs/sweep.10")) == (404, "not-found")
    assert code_of(rig.call("GET", "/v1/jobs/sweep.3-7")) == (409, "several-tasks")


def test_tasks_of_an_array_by_how_far_they_are(rig: Rig) -> None:
    array = sweep(rig)
    rig.status(f"{member(array, 0)}.1", "TASK_FINISHED")
    rig.status(f"{member(array, 1)}.1", "TASK_FAILED")
    now = get(rig, "/v1/arrays/sweep")
    assert (now["finished"], now["failed"], now["waiting"]) == ("0", "1", "2-9")
    some = get(rig, "/v1/arrays/sweep.1-3")
    assert (some["finished"], some["failed"], some["waiting"]) == ("", "1", "2-3")
    assert [job["array_index"] for job in some["jobs"] if job["state"] == "failed"] == [1]
    assert code_of(rig.call("GET", "/v1/arrays/none")) == (404, "not-found")


def test_a_range_is_killed(rig: Rig) -> None:
    array = sweep(rig)
    assert rig.call("DELETE", "/v1/jobs/sweep.3-7").status_code == 202
    now = get(rig, "/v1/arrays/sweep")
    assert (now["killed"], now["waiting"]) == ("3-7", "2,8-9")
    assert rig.call("DELETE", "/v1/jobs/sweep.9").status_code == 202
    assert get(rig, "/v1/jobs/sweep.9")["state"] == "killed"
    assert rig.call("DELETE", f"/v1/jobs/{array['id']}").status_code == 202
    for index in (0, 1):
        rig.status(f"{member(array, index)}.1", "TASK_KILLED")
    now = get(rig, "/v1/jobs/sweep")
    assert (now["state"], now["array_counts"]["killed"]) == ("killed", 10)
    assert rig.call("DELETE", f"/v1/jobs/{array['id']}").status_code == 200


def test_array_task_that_is_no_job_yet_is_explained(rig: Rig) -> None:
    sweep(rig)
    why = get(rig, "/v1/why/sweep.7")
    assert why["summary"] == "2 tasks of its array run, which is its limit; 5 of them come before this one"
    assert (why["state"], why["queue_position"]) == ("pending", 5)


def test_array_that_waits_for_room_is_explained(rig: Rig) -> None:
    array = rig.submit(name="sweep", array="0-99", gpus=2)
    why = get(rig, f"/v1/why/{array['id']}")
    assert (why["job_id"], why["queue_position"]) == (array["id"], 0)
    why = get(rig, "/v1/why/sweep.60")
    assert why["queue_position"] == 60
    assert why["summary"].startswith("60 tasks of its array come before it, and the first of them ")


def test_array_ahead_in_the_queue_counts_all_its_tasks(rig: Rig) -> None:
    rig.submit(name="sweep", array="0-99", gpus=2)
    later = rig.submit(name="later", gpus=2)
    assert get(rig, f"/v1/why/{later['id']}")["queue_position"] == 100
    queue = get(rig, "/v1/queue")
    assert [each["position"] for each in queue["jobs"]] == [0, 100]
    assert [each["waiting"] for each in queue["queues"]] == [101]


def test_commands_take_an_array_a_task_and_a_range(rig: Rig) -> None:
    array = sweep(rig)
    listed = call(rig, "ps")
    assert f"{array['id']}[0-9%2]" in listed.stdout
    assert "running 0/10" in listed.stdout
    assert len(listed.stdout.splitlines()) == 2
    assert "sweep.1-" in call(rig, "ps", "--expand").stdout
    assert call(rig, "ps", "-q").stdout.split() == [array["id"]]
    shown = call(rig, "show", "sweep").stdout
    assert "0-9%2" in shown
    assert "2 running, 8 waiting" in shown
    assert "which is its limit" in call(rig, "why", "sweep.500").stderr + call(rig, "why", "sweep.5").stdout
    killed = call(rig, "kill", "sweep.3-7")
    assert killed.stdout == f"{array['id']}[0-9%2] killing sweep.3-7: 2 running, 3 waiting, 5 killed\n"
    assert call(rig, "kill", "sweep").exit_code == 0
    for index in (0, 1):
        rig.status(f"{member(array, index)}.1", "TASK_KILLED")
    waited = call(rig, "wait", "sweep", "sweep.3-7", "sweep.4")
    assert waited.stdout.splitlines() == [
        f"{array['id']} killed 143",
        "sweep.3-7 killed 143",
        f"{member(array, 4)} killed 143",
    ]
    assert waited.exit_code == 143


def test_the_exit_status_is_that_of_all(rig: Rig) -> None:
    array = sweep(rig, "0-1")
    rig.status(f"{member(array, 0)}.1", "TASK_FINISHED")
    rig.status(f"{member(array, 1)}.1", "TASK_FAILED")
    waited = call(rig, "wait", "--json", "sweep", "sweep.0-1", "sweep.0")
    assert waited.exit_code == 1
    documents = json.loads(waited.stdout)
    assert (documents[0]["state"], documents[0]["exit_code"]) == ("failed", 1)
    assert (documents[1]["finished"], documents[1]["failed"]) == ("0", "1")
    assert call(rig, "wait", "sweep.0").exit_code == 0


def test_run_submits_an_array_and_a_file_becomes_one(rig: Rig, tmp_path: Any) -> None:
    done = call(rig, "run", "--array", "0-4%2", "--name", "ran", "--detach", "--", "true")
    assert done.exit_code == 0, done.output
    assert get(rig, "/v1/jobs/ran")["array"] == "0-4%2"
    file = tmp_path / "one.yaml"
    file.write_text("name: filed\ncommand: 'true'\narray: [1, 5, 9]\n")
    assert call(rig, "submit", str(file)).exit_code == 0
    assert get(rig, "/v1/jobs/filed")["array"] == "1-9:4"
    assert call(rig, "submit", str(file), "--array", "3-4").exit_code == 0
    wrong = call(rig, "submit", str(file), "--array", "x")
    assert wrong.exit_code == 2
    assert "--array" in wrong.stderr
    assert call(rig, "run", "-it", "--array", "0-4", "--", "sh").exit_code == 2


def test_array_tells_no_event_of_each_task(rig: Rig) -> None:
    array = sweep(rig, "0-1")
    for index in (0, 1):
        rig.status(f"{member(array, index)}.1", "TASK_FINISHED")
    get(rig, "/v1/jobs/sweep")
    events = get(rig, "/v1/events")["events"]
    told = [(each["kind"], each["job_id"]) for each in events if each["job_id"] == array["id"]]
    assert told == [("submitted", array["id"]), ("finished", array["id"])]
