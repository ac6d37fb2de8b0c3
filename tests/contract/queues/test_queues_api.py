"""The tree of queues over REST: versions, conflicts, all that is wrong at once, and who sees which queues."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.contract.access.rig import ROOT, AccessRig

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


def test_nobody_has_written_it_and_then_somebody_has(rig: AccessRig) -> None:
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
    assert rig.call(ROOT, "GET", "/v1/queues").json() == body


def test_what_is_read_can_be_sent_back_and_is_no_new_version(rig: AccessRig) -> None:
    body = put(rig, ROOT, QUEUES).json()
    assert rig.call(ROOT, "PUT", "/v1/queues", json=body).json() == body


def test_who_has_read_another_version_is_refused(rig: AccessRig) -> None:
    assert put(rig, ROOT, QUEUES).ok
    for read in (0, 2):
        assert code_of(put(rig, ROOT, {}, version=read)) == (409, "conflict")
    told = rig.call(ROOT, "PUT", "/v1/queues", json={"queues": {}}, headers={"If-Match": '"1"'})
    assert (told.status_code, told.json()["version"]) == (200, 2)


def test_all_that_is_wrong_is_told_at_once_with_its_place(rig: AccessRig) -> None:
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


def test_one_sees_the_queues_that_ones_bindings_name_and_those_above_them(rig: AccessRig) -> None:
    put(rig, ROOT, QUEUES)
    rig.bind(BOSS, ANN, OTTO)
    assert [*rig.call("ann", "GET", "/v1/queues").json()["queues"]] == ["research", "research/vision"]
    assert [*rig.call("otto", "GET", "/v1/queues").json()["queues"]] == [*QUEUES]
    assert code_of(rig.call(None, "GET", "/v1/queues")) == (401, "unauthenticated")
    assert code_of(rig.call("eve", "GET", "/v1/queues")) == (403, "forbidden")
    assert code_of(rig.call("ann", "GET", "/v1/queue-versions")) == (403, "forbidden")


def test_only_who_may_change_queues_changes_them(rig: AccessRig) -> None:
    rig.bind(BOSS, ANN, OTTO)
    assert code_of(put(rig, "ann", QUEUES)) == (403, "forbidden")
    assert put(rig, "otto", QUEUES).json()["by"] == "otto"
