"""Apps beside a document of queues: what could never start is refused, and no label leads into others' queues."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.contract.access.rig import ROOT, AccessRig

BOSS = {"names": ["boss"], "roles": ["admin"]}
ANN = {"names": ["ann"], "roles": ["user"], "queues": ["research/*"], "apps": ["/web/*", "/research/*"]}
QUEUES: dict[str, Any] = {
    "production": {"guarantee_gpus": 4, "limit_gpus": 4},
    "research": {"guarantee_gpus": 2, "limit_gpus": 8},
    "research/vision": {"max_gpus_per_job": 2, "guarantee_gpus": 2},
    "web": {"max_running": 3, "max_submitted": 4},
}


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    rig.bind(BOSS, ANN)
    assert rig.call(ROOT, "PUT", "/v1/queues", json={"version": 0, "queues": QUEUES}).status_code == 200
    yield rig
    rig.close()


def ask(rig: AccessRig, who: Any, id: str, verb: str = "POST", **fields: Any) -> requests.Response:
    path = "/v2/apps" if verb == "POST" else f"/v2/apps{id}?force=true"
    body = {"id": id, "cmd": "sleep 9", "cpus": 0.1, "mem": 32, "instances": 1, **fields}
    return rig.call(who, verb, path, json=body)


def details(answer: requests.Response) -> dict[str, list[str]]:
    return {each["path"]: each["errors"] for each in answer.json()["details"]}


def test_an_instance_that_could_never_start_is_refused_with_all_that_is_wrong(rig: AccessRig) -> None:
    wrong = ask(rig, "boss", "/a/b", gpus=4, gpu={"queue": "research/vision", "job_class": "night"})
    assert wrong.status_code == 422
    assert details(wrong) == {
        "/a/b/gpu/job_class": ["there is no class night; there are none"],
        "/a/b/gpu/preemptible": [
            "the guarantee of queue research/vision has no room for it even when all of it is free, and only "
            "preemptible jobs start without one: make it preemptible, or use a queue whose guarantee has room for it, "
            "as production"
        ],
        "/a/b/gpus": ["max_gpus_per_job of queue research/vision is 2 GPUs, and it asks for 4 GPUs"],
    }
    assert rig.call("boss", "GET", "/v2/apps/a/b").status_code == 404
    assert details(ask(rig, "boss", "/a/b", labels={"MESOS_GPU_QUEUE": "physics"})) == {
        "/a/b/gpu/queue": ["there is no queue physics; there are default, production, research/vision, web"]
    }


@pytest.mark.parametrize(
    ("id", "more", "limit"),
    [
        ("/web/shop", {"instances": 4}, "max_running of queue web is 3, and 4 are asked for"),
        (
            "/production/x",
            {"instances": 3, "gpus": 2},
            "limit_gpus of queue production is 4 GPUs, and together they ask for 6 GPUs",
        ),
    ],
)
def test_more_instances_than_ever_run_at_once_are_refused(
    rig: AccessRig, id: str, more: dict[str, Any], limit: str
) -> None:
    assert details(ask(rig, "boss", id, **more)) == {f"{id}/instances": [limit]}
    fewer = {**more, "instances": more["instances"] - 1}
    assert ask(rig, "boss", id, **fewer).status_code == 201
    assert details(ask(rig, "boss", id, "PUT", **more)) == {f"{id}/instances": [limit]}
    assert ask(rig, "boss", id, "PUT", **{**more, "instances": 1}).status_code == 200


def test_an_app_that_a_later_document_has_no_room_for_can_be_made_smaller(rig: AccessRig) -> None:
    assert ask(rig, "boss", "/web/shop", instances=3).status_code == 201
    less = {**QUEUES, "web": {"max_running": 1}}
    assert rig.call(ROOT, "PUT", "/v1/queues", json={"version": 1, "queues": less}).status_code == 200
    assert ask(rig, "boss", "/web/shop", "PUT", instances=2).status_code == 200
    assert ask(rig, "boss", "/web/shop", "PUT", instances=3).status_code == 422


def test_a_queue_that_an_app_names_is_one_where_who_asks_may_run_jobs(rig: AccessRig) -> None:
    ways: dict[str, dict[str, Any]] = {
        "labels/MESOS_GPU_QUEUE": {"labels": {"MESOS_GPU_QUEUE": "production"}},
        "gpu/queue": {"gpu": {"queue": "production"}},
    }
    for place, asked in ways.items():
        refused = ask(rig, "ann", "/web/shop", **asked)
        assert refused.status_code == 403
        assert details(refused) == {f"/web/shop/{place}": ["ann lacks the right job:run in queue production"]}
    assert ask(rig, "boss", "/web/boss", gpu={"queue": "production"}).status_code == 201
    assert ask(rig, "ann", "/web/ann", gpu={"queue": "research/vision"}).status_code == 201
    assert ask(rig, "ann", "/web/shop").status_code == 201, "the queue of its group is that of its path"
    taken = ask(rig, "ann", "/web/boss", "PUT", cmd="sleep 8", gpu={"queue": "production"})
    assert taken.status_code == 403, "it would run as hers"


@pytest.mark.parametrize(("queue", "status"), [("research/speech", 201), ("production", 403)])
def test_queue_that_an_app_names_is_one_of_its_owner_before_a_document_is_written(
    queue: str, status: int
) -> None:
    rig = AccessRig()
    rig.bind(BOSS, ANN)
    try:
        assert ask(rig, "ann", "/web/shop", labels={"MESOS_GPU_QUEUE": queue}).status_code == status
    finally:
        rig.close()


def test_a_refusal_names_no_queue_that_who_asks_does_not_see(rig: AccessRig) -> None:
    rig.bind(
        BOSS, {**ANN, "roles": ["app-writer"]}, roles=[{"name": "app-writer", "rights": ["app:*", "job:run"]}]
    )
    refused = ask(rig, "ann", "/web/shop", labels={"MESOS_GPU_QUEUE": "research/speech"})
    assert refused.status_code == 422
    assert details(refused) == {
        "/web/shop/gpu/queue": [
            "the named queue is not a queue that accepts jobs; list those that you may see: mesos-gpu queue list"
        ]
    }


def test_a_dry_run_refuses_what_the_change_would_be_refused_for(rig: AccessRig) -> None:
    body = {"id": "/web/shop", "cmd": "sleep 9", "cpus": 0.1, "mem": 32, "instances": 4}
    reason = {"/web/shop/instances": ["max_running of queue web is 3, and 4 are asked for"]}
    for path, asked in (("/v2/apps/web/shop", body), ("/v2/groups/web", {"apps": [body]})):
        tried = rig.call("boss", "PUT", f"{path}?dryRun=true", json=asked)
        assert (tried.status_code, details(tried)) == (422, reason)
        assert details(rig.call("boss", "PUT", path, json=asked)) == reason
    fewer = rig.call("boss", "PUT", "/v2/apps/web/shop?dryRun=true", json={**body, "instances": 3})
    assert fewer.status_code == 200, fewer.text
    assert rig.call("boss", "GET", "/v2/apps/web/shop").status_code == 404
