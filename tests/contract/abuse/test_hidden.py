"""What is hidden is not told by errors either; and what a load balancer gives to one is not taken by another."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.unknown import Label, Listed
from mesos_gpu.wire.mesos.labels import label_of
from tests.conftest import wait_until
from tests.contract.access.named import Rig
from tests.contract.access.test_apps import APP, app_of, create, settle
from tests.doubles.builders import offer


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


LB: dict[str, Any] = {
    "labels": {"HAPROXY_GROUP": "external", "HAPROXY_DEPLOYMENT_GROUP": "shop",
               "HAPROXY_DEPLOYMENT_STARTED_AT": "1", "HAPROXY_0_VHOST": "shop.example"},
    "portDefinitions": [{"port": 10050}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("POST", "/v2/apps", {"id": "{}/web", **APP}),
        ("POST", "/v2/apps", {"id": "{}", **APP}),
        ("POST", "/v2/apps", {"id": "{}/web/below", **APP}),
        ("PUT", "/v2/apps{}/web", {"cmd": "id"}),
        ("PATCH", "/v2/apps{}/web", {"cmd": "id"}),
        ("PUT", "/v2/apps", [{"id": "{}/web", **APP}]),
        ("DELETE", "/v2/apps{}/web", None),
        ("POST", "/v2/groups", {"id": "{}"}),
        ("POST", "/v2/groups", {"id": "{}", "apps": [{"id": "x", **APP}]}),
        ("POST", "/v2/groups", {"id": "{}/web"}),
        ("PUT", "/v2/groups{}", {"apps": []}),
        ("PUT", "/v2/groups{}", {"apps": [{"id": "x", **APP}]}),
        ("PUT", "/v2/groups{}?dryRun=true", {"apps": [{"id": "x", **APP}]}),
        ("PUT", "/v2/groups{}", {"scaleBy": 2}),
        ("PUT", "/v2/groups{}", {"version": "2020-01-01T00:00:00.000Z"}),
        ("PATCH", "/v2/groups{}", {"enforceRole": False}),
        ("DELETE", "/v2/groups{}", None),
        ("DELETE", "/v2/queue{}/web/delay", None),
        ("GET", "/v2/apps{}/web/versions", None),
    ],
)
def test_hidden_things_are_refused_in_the_words_of_missing_ones(
    rig: Rig, verb: str, path: str, body: object
) -> None:
    create(rig, "boss", "/there/web")

    def said(group: str) -> tuple[int, str]:
        answer = rig.call("ann", verb, path.format(group), json=_named(body, group))
        assert answer.status_code in (403, 404), answer.text
        return answer.status_code, answer.text.replace(group, "GROUP")

    assert said("/there") == said("/nope")
    assert app_of(rig, "boss", "/there/web")["cmd"] == APP["cmd"]


def _named(body: Any, group: str) -> Any:
    if isinstance(body, list):
        return [_named(each, group) for each in body]
    if isinstance(body, dict) and "id" in body:
        return {**body, "id": body["id"].replace("{}", group)}
    return body


def test_a_change_of_a_group_names_nothing_in_it_that_is_hidden(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    create(rig, "boss", "/shop/web", instances=1)
    refused = rig.call("ann", "PUT", "/v2/groups", json={"groups": []})
    assert (refused.status_code, "/shop" in refused.text) == (403, False)
    both = {"groups": [{"id": "/shop", "apps": [{"id": "web", **APP}]},
                       {"id": "/research", "apps": [{"id": "web", **APP, "instances": 1}]}]}  # fmt: skip
    assert rig.call("boss", "PUT", "/v2/groups?force=true", json=both).status_code == 200
    (of_both,) = rig.call("ann", "GET", "/v2/deployments").json()
    refused = rig.call("ann", "DELETE", f"/v2/deployments/{of_both['id']}")
    assert (refused.status_code, "/shop" in refused.text) == (403, False)


@pytest.mark.parametrize(
    ("mine", "word"),
    [
        ({"labels": {"HAPROXY_DEPLOYMENT_GROUP": "/shop/", "HAPROXY_DEPLOYMENT_STARTED_AT": "9"}}, "group shop"),
        ({"portDefinitions": [{"port": 10050}]}, "service port 10050"),
        ({"labels": {"HAPROXY_0_PORT": "10050"}}, "service port 10050"),
        ({"labels": {"HAPROXY_0_VHOST": "a.example, SHOP.example"}}, "host shop.example"),
    ],
)  # fmt: skip
def test_service_port_of_anothers_app_is_not_taken(rig: Rig, mine: dict[str, Any], word: str) -> None:
    create(rig, "boss", "/shop/web", **LB)
    mine = {"portDefinitions": [{"port": 10060}], **mine}
    refused = create(rig, "ann", "/research/mine", **mine)
    assert refused.status_code == 403
    assert f"{word} belongs to a service of another owner" in refused.text
    assert create(rig, "boss", "/research/mine", **mine).status_code == 201


def test_a_port_that_is_no_number_asks_for_nothing(rig: Rig) -> None:
    body = {"id": "/research/far", "labels": {"HAPROXY_0_PORT": "9" * 5000}, **APP}
    assert rig.call("ann", "POST", "/v2/apps", json=body).status_code == 201


def test_an_app_keeps_what_it_has_whoever_changes_it(rig: Rig) -> None:
    create(rig, "boss", "/research/old", **LB)
    create(rig, "boss", "/shop/web", **{**LB, "portDefinitions": [{"port": 10051}]})
    assert rig.call("ann", "PUT", "/v2/apps/research/old", json={"instances": 1}).status_code == 200
    changed = {"cmd": "id", "env": {}, "instances": 0}
    assert rig.call("ann", "PUT", "/v2/apps/research/old?force=true", json=changed).status_code == 200
    settle(rig)


def test_a_services_port_and_name_are_not_taken(rig: Rig) -> None:
    create(rig, "boss", "/shop/web", **LB)
    create(rig, "ann", "/research/web")
    service = {"apps": {"/research/web": 1}, "port": 10050}
    refused = rig.call("ann", "PUT", "/v1/services/mine", json=service)
    assert [each["path"] for each in refused.json()["error"]["problems"]] == ["/port"]
    assert rig.call("boss", "PUT", "/v1/services/shop", json={"apps": {"/shop/web": 1}}).status_code == 200
    named = rig.call("ann", "PUT", "/v1/services/shop", json={"apps": {"/research/web": 1}})
    assert (named.status_code, "/shop" in named.text) == (403, False)


def test_service_shows_only_apps_that_the_caller_sees(rig: Rig) -> None:
    create(rig, "boss", "/shop/web")
    create(rig, "ann", "/research/web")
    split = {"apps": {"/shop/web": 1, "/research/web": 1}}
    assert rig.call("boss", "PUT", "/v1/services/both", json=split).status_code == 200
    assert "/shop" not in rig.call("ann", "GET", "/v1/services").text
    assert "/shop" not in rig.call("ann", "GET", "/v1/services/both").text
    assert (
        "/shop" not in rig.call("ann", "PUT", "/v1/services/both", json={"apps": {"/research/web": 1}}).text
    )
    rig.call("boss", "DELETE", "/v2/apps/shop/web")
    settle(rig)
    assert "/shop" not in rig.call("ann", "GET", "/v1/services/both").text
    assert rig.call("boss", "GET", "/v1/services/both").json()["asked"]["apps"] == split["apps"]


def test_the_list_of_what_waits_has_as_many_as_are_asked_for_and_seen(rig: Rig) -> None:
    for _ in range(3):
        assert rig.submit("boss", queue="other", priority=9).status_code == 201
    mine = [rig.submit("ann").json()["id"] for _ in range(3)]
    shown = rig.call("ann", "GET", "/v1/queue?limit=2").json()["jobs"]
    assert [each["id"] for each in shown] == mine[:2]


def test_a_launch_says_whose_it_is_so_that_it_can_be_taken_up_as_his(rig: Rig) -> None:
    rig.submit("ann", cpus=0.1, mem_mib=32)
    rig.daemon.put(ev.OffersArrived((offer("o1", "a1"),)))
    _offers, infos, *_rest = rig.driver.wait_for("accept")
    labels = [{each["key"]: each["value"] for each in info["labels"]["labels"]} for info in infos]
    assert "ann" in [label.owner for each in labels if (label := label_of(each))]


def test_a_task_that_is_held_is_named_to_who_may_see_such(rig: Rig) -> None:
    rig.node()
    label = Label(JobId("topsecret-1"), (GpuId("g0"),), owner="boss", queue="other")
    task = Listed(
        TaskId("topsecret-1.1"), AgentId("a1"), "TASK_RUNNING", "train", "h1", "http://h1:5051", label=label
    )
    rig.daemon.put(ev.TasksListed((task,)))
    wait_until("it is held", lambda: rig.call("otto", "GET", "/v1/tasks/unknown").json()["tasks"])
    mine = rig.submit("ann", gpus=1).json()["id"]
    paths = ("/v1/tasks", "/v1/gpus", "/v1/gpus/g0", f"/v1/why/{mine}", "/v1/queue")
    told = {path: "topsecret" in rig.call("otto", "GET", path).text for path in paths}
    assert told == dict.fromkeys(paths, True) | {"/v1/queue": False}
    for path in paths:
        assert "topsecret" not in rig.call("ann", "GET", path).text, path


def test_resize_refusal_names_no_hidden_job(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, others = (
        rig.submit(who, queue=queue).json()["id"] for who, queue in (("ann", "research"), ("boss", "other"))
    )
    refused: Future[Job] = Future()
    refused.set_exception(
        Conflict(f"job {mine} cannot be resized: job {others} waits", remedy=f"wait for {others}")
    )
    monkeypatch.setattr(rig.daemon, "request", lambda *_, **__: refused)
    answer = rig.call("ann", "PATCH", f"/v1/jobs/{mine}", json={"gpu_compute_pct": 50})
    assert answer.status_code == 409
    assert (mine in answer.text, others in answer.text) == (True, False)
