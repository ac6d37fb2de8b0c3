"""The tree of queues over REST: versions, conflicts, all that is wrong at once, and who sees which queues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.mesos import report
from tests.contract.access.rig import ROOT, AccessRig
from tests.doubles.builders import gpu, offer

BOSS = {"names": ["boss"], "roles": ["admin"]}
ANN = {"names": ["ann"], "roles": ["user"], "queues": ["research/*"]}
OTTO = {"names": ["otto"], "roles": ["operator"]}
QUEUES = {
    "research": {"guarantee_gpus": 16, "limit_gpus": 64},
    "research/vision": {"guarantee_gpus": [{"nodes": 1, "gpus": 8}], "weight": 2},
    "sales": {"borrow_limit_gpus": 0.5, "reclaim": "never"},
}


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


def put(rig: AccessRig, who: Any, queues: dict[str, Any], version: int = 0, **more: Any) -> requests.Response:
    return rig.call(who, "PUT", "/v1/queues", json={"version": version, "queues": queues, **more})


def code_of(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_queue_tree_begins_empty_and_is_written(rig: AccessRig) -> None:
    shown = rig.call(ROOT, "GET", "/v1/queues")
    assert (shown.json()["version"], shown.json()["queues"], shown.headers["ETag"]) == (0, {}, '"0"')
    written = put(rig, ROOT, QUEUES, comment="the first")
    assert written.status_code == 200, written.text
    body = written.json()
    assert (body["version"], body["by"], body["comment"]) == (1, "root", "the first")
    assert body["queues"]["research"]["limit_gpus"] == 64
    assert body["queues"]["research/vision"]["guarantee_gpus"] == [{"nodes": 1, "gpus": 8}]
    assert body["queues"]["sales"]["borrow_limit_gpus"] == 0.5
    assert body["queues"]["sales"]["patience"] is None
    assert {**rig.call(ROOT, "GET", "/v1/queues").json(), "warnings": []} == body


def test_queue_tree_sent_back_as_read_is_no_new_version(rig: AccessRig) -> None:
    body = put(rig, ROOT, QUEUES).json()
    assert rig.call(ROOT, "PUT", "/v1/queues", json=body).json() == body


def test_queue_tree_change_of_another_version_is_refused(rig: AccessRig) -> None:
    assert put(rig, ROOT, QUEUES).ok
    for read in (0, 2):
        assert code_of(put(rig, ROOT, {}, version=read)) == (409, "conflict")
    told = rig.call(ROOT, "PUT", "/v1/queues", json={"queues": {}}, headers={"If-Match": '"1"'})
    assert (told.status_code, told.json()["version"]) == (200, 2)


def test_queue_tree_refusal_lists_all_problems_with_places(rig: AccessRig) -> None:
    wrong = {
        "a/b": {"weight": -1, "colour": 1},
        "c": {"guarantee_gpus": 4, "limit_gpus": 2},
        "c/d": {"guarantee_gpus": {"default": 5, "t4": 1}},
        "e": {"budget": {"gpu_hours": 1, "zone": "Europe/Nowhere", "warn_at": [80, 50]}},
    }
    refused = rig.call(ROOT, "PUT", "/v1/queues", json={"queues": wrong})
    assert code_of(refused) == (422, "invalid")
    places = [problem["path"] for problem in refused.json()["error"]["problems"]]
    assert sorted(places) == [
        "/queues/a~1b",
        "/queues/a~1b/colour",
        "/queues/a~1b/weight",
        "/queues/c/guarantee_gpus",
        "/queues/c/guarantee_gpus",
        "/queues/c/limit_gpus",
        "/queues/c~1d/guarantee_gpus/t4",
        "/queues/e/budget/warn_at",
        "/queues/e/budget/zone",
        "/version",
    ]
    assert rig.call(ROOT, "GET", "/v1/queues").json()["version"] == 0


def test_versions_are_kept_and_an_old_one_can_be_put_again(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES, comment="one")
    put(rig, ROOT, {"sales": {}}, version=1, comment="two")
    listed = rig.call(ROOT, "GET", "/v1/queue-versions").json()["versions"]
    assert [(each["version"], each["comment"], each["queues"]) for each in listed] == [
        (2, "two", 1),
        (1, "one", 3),
    ]
    old = rig.call(ROOT, "GET", "/v1/queue-versions/1").json()
    again = rig.call(ROOT, "PUT", "/v1/queues", json={**old, "version": 2}).json()
    assert (again["version"], again["queues"]) == (3, old["queues"])
    assert code_of(rig.call(ROOT, "GET", "/v1/queue-versions/30")) == (404, "not-found")


def test_queue_tree_shows_queues_of_the_caller_and_those_above(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    rig.bind(BOSS, ANN, OTTO)
    assert [*rig.call("ann", "GET", "/v1/queues").json()["queues"]] == ["research", "research/vision"]
    assert [*rig.call("otto", "GET", "/v1/queues").json()["queues"]] == [*QUEUES]
    assert code_of(rig.call(None, "GET", "/v1/queues")) == (401, "unauthenticated")
    assert code_of(rig.call("eve", "GET", "/v1/queues")) == (403, "forbidden")
    assert code_of(rig.call("ann", "GET", "/v1/queue-versions")) == (403, "forbidden")


def test_queue_tree_change_needs_the_right(rig: AccessRig) -> None:
    rig.bind(BOSS, ANN, OTTO)
    assert code_of(put(rig, "ann", QUEUES)) == (403, "forbidden")
    assert put(rig, "otto", QUEUES).json()["by"] == "otto"


def one(rig: AccessRig, verb: str, path: str, version: int | None = None, **fields: Any) -> requests.Response:
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    body = None if verb in ("GET", "DELETE") else fields
    return rig.call(ROOT, verb, f"/v1/queues/{path}", json=body, headers=headers)


def test_a_queue_is_made_changed_and_taken_away_alone(rig: AccessRig) -> None:
    made = one(rig, "PUT", "research", 0, limit_gpus=8, weight=3)
    assert (made.status_code, made.json()["version"], made.headers["ETag"]) == (200, 1, '"1"')
    assert one(rig, "PUT", "research/vision", 1, weight=2).json()["path"] == "research/vision"
    patched = one(rig, "PATCH", "research", version=2, weight=None, stop="hold").json()
    assert (patched["weight"], patched["limit_gpus"], patched["stop"]) == (1, 8, "hold")
    shown = one(rig, "GET", "research").json()
    assert {**patched, "warnings": None} == {**shown, "warnings": None}
    again = rig.call(ROOT, "PUT", "/v1/queues/research", json=patched)  # as it was read: no new version
    assert again.json()["version"] == 3
    orphan = one(rig, "DELETE", "research", 3)
    assert code_of(orphan) == (422, "invalid")
    assert orphan.json()["error"]["problems"][0]["path"] == "/queues/research~1vision"
    assert one(rig, "DELETE", "research/vision", 3).json()["weight"] == 2
    assert code_of(one(rig, "GET", "research/vision")) == (404, "not-found")


def test_a_queue_alone_is_held_to_the_version_and_to_the_rest_of_the_tree(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    assert code_of(one(rig, "PATCH", "sales", 0, weight=1)) == (409, "conflict")
    assert code_of(one(rig, "PATCH", "nobody", 1, weight=1)) == (404, "not-found")
    assert code_of(one(rig, "DELETE", "sales")) == (422, "invalid")
    wrong = one(rig, "PATCH", "research/vision", guarantee_gpus=32, weight=-1)
    places = [problem["path"] for problem in wrong.json()["error"]["problems"]]
    assert places == ["/version", "/weight", "/queues/research/guarantee_gpus"]
    assert rig.call(ROOT, "GET", "/v1/queues").json()["version"] == 1


def test_a_change_that_is_only_tried_changes_nothing(rig: AccessRig) -> None:
    tried = rig.call(ROOT, "PUT", "/v1/queues?dry_run=true", json={"version": 0, "queues": QUEUES})
    assert (tried.status_code, [*tried.json()["queues"]]) == (200, [*QUEUES])
    assert rig.call(ROOT, "GET", "/v1/queues").json()["version"] == 0


def test_queue_that_the_caller_may_not_see_is_hidden(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    rig.bind(BOSS, ANN)
    assert rig.call("ann", "GET", "/v1/queues/research").status_code == 200
    assert code_of(rig.call("ann", "GET", "/v1/queues/sales")) == (404, "not-found")
    assert code_of(rig.call("ann", "PATCH", "/v1/queues/sales", json={"version": 1})) == (403, "forbidden")


def test_a_refused_job_names_no_queue_that_one_does_not_see(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    rig.bind(BOSS, ANN)
    body = {"command": "true", "queue": "research/visio"}
    told = rig.call(ROOT, "POST", "/v1/jobs", json=body)
    assert code_of(told) == (422, "invalid")
    assert "sales" in told.json()["error"]["problems"][0]["reason"]
    told = rig.call("ann", "POST", "/v1/jobs", json=body)
    assert code_of(told) == (422, "invalid")
    assert told.json()["error"]["problems"][0]["path"] == "/queue"
    assert "sales" not in told.text


def test_a_queue_with_jobs_in_it_is_not_taken_away_and_nothing_is_put_below_it(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    body = {"command": "true", "queue": "sales", "cpus": 1000}
    job = rig.call(ROOT, "POST", "/v1/jobs", json=body).json()["id"]
    without: dict[str, Any] = {"research": {}}
    below: dict[str, Any] = {"sales": {}, "sales/north": {}}
    for queues in (without, below):
        refused = put(rig, ROOT, queues, version=1)
        assert code_of(refused) == (409, "conflict")
        assert f"sales (1: {job})" in refused.json()["error"]["message"]
    assert code_of(one(rig, "DELETE", "sales", 1)) == (409, "conflict")
    assert rig.call(ROOT, "DELETE", f"/v1/jobs/{job}").ok
    assert one(rig, "DELETE", "sales", 1).json()["version"] == 2


def test_the_first_tree_has_the_queues_in_which_jobs_are(rig: AccessRig) -> None:
    for queue in ("default", "old"):
        rig.call(ROOT, "POST", "/v1/jobs", json={"command": "true", "queue": queue, "cpus": 1000})
    assert "old (1: " in put(rig, ROOT, QUEUES).json()["error"]["message"]
    assert put(rig, ROOT, {**QUEUES, "old": {}}).ok


def node(rig: AccessRig, name: str, gpus: int) -> None:
    """A node whose GPUs are known."""
    cards = tuple(gpu(f"{name}-{index}") for index in range(gpus))
    rig.daemon.put(ev.OffersArrived((offer(f"{name}-1", name, gpus=gpus),)))
    monitor = rig.daemon.read(lambda view: view.nodes[AgentId(name)].monitor).result(60)
    assert monitor is not None
    told = report.encode(Inventory(cards, "simulated", "535", "12.2", ""))
    rig.daemon.put(
        ev.StatusArrived(Status(TaskId(monitor), "TASK_RUNNING", AgentId(name), data=told, uuid="u"))
    )


def test_a_tree_is_held_against_the_nodes(rig: AccessRig) -> None:
    for name in ("a1", "a2"):
        node(rig, name, 4)
    fits = {"a": {"guarantee_gpus": [{"nodes": 2, "gpus": 3}]}, "b": {"guarantee_gpus": 2}}
    assert put(rig, ROOT, fits).ok
    scaled = {"a": {"guarantee_gpus": 12}}
    refused = put(rig, ROOT, scaled, version=1)
    assert "guarantee 12 of pool default together, which has 8" in refused.text
    taken = put(rig, ROOT, scaled, version=1, overbook=True)
    assert "66 % of each guarantee" in taken.json()["warnings"][0]
    apart = put(rig, ROOT, {"a": {"guarantee_gpus": [{"nodes": 3, "gpus": 2}, {"nodes": 1, "gpus": 1}]},
                            "b": {"guarantee_gpus": [{"nodes": 1, "gpus": 1}]}}, version=2)  # fmt: skip
    assert apart.ok, apart.text
    apart = put(rig, ROOT, {"a": {"guarantee_gpus": [{"nodes": 2, "gpus": 3}]},
                            "b": {"guarantee_gpus": [{"nodes": 1, "gpus": 2}]}}, version=3)  # fmt: skip
    assert "do not fit on its nodes together: cells of 3, 3, 2" in apart.text
    unknown = put(rig, ROOT, {}, version=3, gpu_cost={"Tesla X": 3}, pools={"x": {"models": ["H1"]}})
    assert [each["path"] for each in unknown.json()["error"]["problems"]] == [
        "/gpu_cost/Tesla X",
        "/pools/x/models/0",
    ]


def planned(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["path"]: each for each in body["queues"]}


def test_a_plan_tells_who_gains_who_gives_back_and_what_a_new_queue_would_be_due(rig: AccessRig) -> None:
    node(rig, "a1", 8)
    assert put(rig, ROOT, {"a": {"guarantee_gpus": 8}}).ok
    for _ in range(8):
        body = {"command": "true", "queue": "a", "gpus": 1, "preemptible": True}
        rig.call(ROOT, "POST", "/v1/jobs", json=body)
    new = {"queues": {"a": {"guarantee_gpus": 2}, "b": {"guarantee_gpus": 6}}}
    answer = rig.call(ROOT, "POST", "/v1/plan/queues", json=new)
    assert answer.status_code == 200, answer.text
    told = planned(answer.json())
    assert (told["a"]["guarantee_before_gpus"], told["a"]["guarantee_gpus"]) == (8, 2)
    assert told["a"]["held_gpus"] + told["a"]["pending_gpus"] == 8
    assert (told["a"]["due_before_gpus"], told["a"]["due_gpus"], told["a"]["gains_gpus"]) == (8, 8, 0)
    assert (told["b"]["due_before_gpus"], told["b"]["due_gpus"], told["b"]["if_asked_gpus"]) == (None, 0, 6)
    tried = rig.call(ROOT, "PUT", "/v1/queues?dry_run=true", json={"version": 1, **new})
    assert planned(tried.json()["plan"])["b"]["if_asked_gpus"] == 6
    only = planned(one(rig, "PATCH", "a?dry_run=true", 1, limit_gpus=8, guarantee_gpus=1).json()["plan"])
    assert only["a"]["guarantee_gpus"] == 1
    limited = rig.call(ROOT, "POST", "/v1/plan/queues", json={"queues": {"a": {"limit_gpus": 3}}})
    a = planned(limited.json())["a"]
    assert (a["due_gpus"], a["gains_gpus"], a["gives_back_gpus"]) == (3, -5, max(0, a["held_gpus"] - 3))
    assert rig.call(ROOT, "GET", "/v1/queues").json()["version"] == 1


def test_changes_are_on_record_with_the_queue_and_the_version(tmp_path: Path) -> None:
    trail = AuditLog(AuditSettings(tmp_path, 8 << 20, 2, OnFull.REFUSE))
    rig = AccessRig(audit=trail)
    try:
        put(rig, ROOT, {"ml": {}, "ml/vision": {}})
        one(rig, "PATCH", "ml/vision", 1, stop="drain")
        rig.call(None, "DELETE", "/v1/queues/ml/vision")
        kept = rig.call(ROOT, "GET", "/v1/audit").json()["records"]
        assert [
            (each["what"], each["on"], each["result"]) for each in reversed(kept) if "queues" in each["what"]
        ] == [
            ("PUT /v1/queues", ["queues:1"], "done"),
            ("PATCH /v1/queues/{queue:path}", ["queue:ml/vision", "queues:2"], "done"),
            ("DELETE /v1/queues/{queue:path}", ["queue:ml/vision"], "refused"),
        ]
    finally:
        rig.close()
        trail.close()


def test_queue_hours_are_told_of_queues_that_the_caller_sees(rig: AccessRig) -> None:
    assert put(rig, ROOT, QUEUES).json()["in_force"] is None
    night = {"from": "22:00", "to": "06:00", "zone": "Europe/Vienna", "limit_gpus": 32, "weight": 7}
    queues = {
        **QUEUES,
        "research/vision": {"hours": [{"from": "00:00", "to": "24:00", "weight": 9}]},
        "sales": {"hours": [night]},
    }
    body = put(rig, ROOT, queues, version=1).json()
    assert body == {**rig.call(ROOT, "GET", "/v1/queues").json(), "warnings": []}
    now = body["in_force"]
    assert now["queues"]["research/vision"]["weight"] == 9
    seen, then = now["queues"]["sales"], now["next"]["sales"]
    assert {(seen["weight"], seen["limit_gpus"]), (then["weight"], then["limit_gpus"])} == {
        (1, None),
        (7, 32),
    }
    assert now["since"] < now["until"]
    rig.bind(BOSS, ANN, OTTO)
    of_ann = rig.call("ann", "GET", "/v1/queues").json()["in_force"]
    assert (set(of_ann["queues"]), of_ann["next"]) == ({"research/vision"}, {})
    assert rig.call(ROOT, "PUT", "/v1/queues", json=body).json()["version"] == 2
