"""What names may see of each other's apps, and how they may change them, in Marathon's words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.conftest import wait_until
from tests.contract.access.named import Rig

APP: dict[str, Any] = {
    "cmd": "echo hunter2", "env": {"TOKEN": "hunter2"}, "cpus": 0.1, "mem": 32, "instances": 0,
    "labels": {"secret": "hunter2"},
}  # fmt: skip


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def create(rig: Rig, who: str, id: str, **fields: Any) -> requests.Response:
    """Ask for an app; one without instances is there when this returns."""
    answer = rig.call(who, "POST", "/v2/apps", json={"id": id, **APP, **fields})
    if not fields.get("instances"):
        settle(rig)
    return answer


def settle(rig: Rig) -> None:
    wait_until("all deployments are over", lambda: not rig.call("boss", "GET", "/v2/deployments").json())


def app_of(rig: Rig, who: str, id: str) -> dict[str, Any]:
    return dict(rig.call(who, "GET", f"/v2/apps{id}").json()["app"])


def messages(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["message"]


def test_an_app_runs_as_the_unix_user_of_who_made_it(rig: Rig) -> None:
    assert create(rig, "ann", "/research/web").status_code == 201
    assert app_of(rig, "ann", "/research/web")["user"] == "ann"


def test_paths_that_are_not_ones_own_are_refused_in_marathons_shape(rig: Rig) -> None:
    assert messages(create(rig, "ann", "/shop/web")) == (403, "ann lacks the right app:write:/shop/web")
    assert create(rig, "", "/shop/web").status_code == 401
    assert rig.call("", "GET", "/v2/apps").status_code == 401
    assert rig.call("", "GET", "/ping").status_code == 200
    assert rig.call("ann", "GET", "/v2/info").status_code == 200


def test_app_path_is_hidden_without_a_right(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    create(rig, "boss", "/shop/web")
    for path in ("/v2/apps/shop/web", "/v2/groups/shop", "/v2/apps/shop/web/versions", "/v2/apps/shop/web/tasks",
                 "/v2/groups/shop/versions"):  # fmt: skip
        assert rig.call("ann", "GET", path).status_code == 404, path
    assert [app["id"] for app in rig.call("ann", "GET", "/v2/apps").json()["apps"]] == ["/research/web"]
    assert "/shop" not in rig.call("ann", "GET", "/v2/groups").text
    for verb, path in (("DELETE", "/v2/apps/shop/web"), ("POST", "/v2/apps/shop/web/restart"),
                       ("DELETE", "/v2/groups/shop")):  # fmt: skip
        assert rig.call("ann", verb, path).status_code == 404, path
    assert rig.call("ann", "PUT", "/v2/apps/shop/web", json={"cmd": "id"}).status_code == 403
    assert app_of(rig, "boss", "/shop/web")["cmd"] == "echo hunter2"


def test_environments_are_their_owners_and_what_runs_is_for_who_may_read_it(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    assert app_of(rig, "ann", "/research/web")["env"] == {"TOKEN": "hunter2"}
    bobs = app_of(rig, "bob", "/research/web")
    assert (bobs["env"], bobs["cmd"]) == ({"TOKEN": "***"}, "echo hunter2")
    assert "hunter2" not in rig.call("vera", "GET", "/v2/apps").text
    assert "hunter2" not in rig.call("vera", "GET", "/v2/groups").text
    for search in ("cmd=hunter2", "label=secret%3D%3Dhunter2"):
        assert rig.call("vera", "GET", f"/v2/apps?{search}").json()["apps"] == []
        assert len(rig.call("ann", "GET", f"/v2/apps?{search}").json()["apps"]) == 1


def test_an_environment_that_was_shown_hidden_may_come_back_so(rig: Rig) -> None:
    create(rig, "boss", "/research/web", user="ann")
    shown = app_of(rig, "bob", "/research/web")
    sent = {key: shown[key] for key in ("cmd", "env", "cpus", "mem", "labels", "user")} | {"instances": 2}
    assert rig.call("bob", "PUT", "/v2/apps/research/web", json=sent).status_code == 200
    now = app_of(rig, "boss", "/research/web")
    assert (now["env"], now["instances"], now["user"]) == ({"TOKEN": "hunter2"}, 2, "ann")


def test_app_changed_by_another_runs_as_that_one_without_the_former_environment(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    stolen = rig.call("bob", "PUT", "/v2/apps/research/web", json={"cmd": "env > /tmp/x"})
    assert stolen.status_code == 403
    assert "has values of ann" in stolen.text
    hidden = {"cmd": "env > /tmp/x", "env": {"TOKEN": "***"}}
    assert rig.call("bob", "PUT", "/v2/apps/research/web", json=hidden).status_code == 403
    own = {"cmd": "id", "env": {"TOKEN": "mine"}}
    assert rig.call("bob", "PUT", "/v2/apps/research/web", json=own).status_code == 200
    settle(rig)
    now = app_of(rig, "bob", "/research/web")
    assert (now["user"], now["env"]) == ("bob", {"TOKEN": "mine"})
    past = rig.call("bob", "GET", "/v2/apps/research/web/versions").json()["versions"]
    first = rig.call("bob", "GET", f"/v2/apps/research/web/versions/{past[-1]}").json()
    assert first["env"] == {"TOKEN": "***"}
    back = rig.call("bob", "PUT", "/v2/apps/research/web", json={"version": past[-1]})
    assert back.status_code == 403
    as_ann = rig.call("bob", "PUT", "/v2/apps/research/web", json={"cmd": "id", "user": "ann"})
    assert as_ann.status_code == 403


def test_scaling_leaves_an_app_to_its_owner(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    assert rig.call("bob", "PUT", "/v2/apps/research/web", json={"instances": 1}).status_code == 200
    assert app_of(rig, "ann", "/research/web")["user"] == "ann"
    jobs = rig.call("ann", "GET", "/v1/jobs").json()["jobs"]
    assert [job["owner"] for job in jobs] == ["ann"]
    assert rig.call("carl", "GET", "/v1/jobs").json()["jobs"] == []


def test_app_task_messages_are_for_readers_of_its_output(rig: Rig) -> None:
    rig.node()
    answer = create(rig, "ann", "/research/web", instances=1)
    assert answer.status_code == 201, answer.text
    rig.status(
        rig.launched("ann", "/v2/apps/research/web/tasks"), "TASK_FAILED", message="hunter2: not found"
    )
    for path in ("/v2/apps/research/web?embed=app.ends", "/v2/apps?embed=apps.lastTaskFailure",
                 "/v2/groups/research?embed=group.apps&embed=group.apps.lastTaskFailure"):  # fmt: skip
        assert "hunter2: not found" in rig.call("ann", "GET", path).text, path
        assert "/research/web" in rig.call("vera", "GET", path).text, path
        assert "hunter2" not in rig.call("vera", "GET", path).text, path


def test_a_group_is_replaced_only_by_who_may_write_all_of_it(rig: Rig) -> None:
    create(rig, "ann", "/research/web")
    create(rig, "boss", "/shop/web")
    assert rig.call("ann", "PUT", "/v2/groups", json={"groups": []}).status_code == 403
    create(rig, "boss", "/shop/more", instances=1)
    assert rig.call("ann", "PUT", "/v2/groups?force=true", json={"scaleBy": 2}).status_code == 403
    assert app_of(rig, "boss", "/shop/web")["id"] == "/shop/web"
    body = {"id": "/research", "apps": [{"id": "/research/new", **APP}]}
    assert rig.call("bob", "PUT", "/v2/groups/research", json=body).status_code == 200
    assert app_of(rig, "bob", "/research/new")["user"] == "bob"
    assert rig.call("bob", "GET", "/v2/apps/research/web").status_code == 404


def test_a_trial_shows_no_more_than_the_change_would(rig: Rig) -> None:
    create(rig, "boss", "/shop/web")
    tried = rig.call("ann", "PUT", "/v2/groups?dryRun=true", json={"groups": []})
    assert tried.status_code == 403
    assert "hunter2" not in tried.text


def test_app_refusal_tells_all_that_roles_do_not_allow(rig: Rig) -> None:
    refused = create(rig, "ann", "/research/web", user="boss", gpu={"priority": 7},
                     labels={"HAPROXY_0_VHOST": "shop.example"})  # fmt: skip
    assert refused.status_code == 403
    assert {each["path"] for each in refused.json()["details"]} == {
        "/research/web/user",
        "/research/web/gpu/priority",
    }


def test_a_virtual_host_of_another_is_not_taken(rig: Rig) -> None:
    create(rig, "boss", "/shop/web", labels={"HAPROXY_0_VHOST": "shop.example"})
    assert (
        "a service of another owner"
        in create(rig, "ann", "/research/web", labels={"HAPROXY_0_VHOST": "SHOP.example"}).text
    )
    create(rig, "ann", "/research/web")
    service = {"apps": {"/research/web": 1}, "hosts": ["shop.example"]}
    assert rig.call("ann", "PUT", "/v1/services/mine", json=service).status_code == 422
    service["hosts"] = ["research.example"]
    assert rig.call("ann", "PUT", "/v1/services/mine", json=service).status_code == 200
    assert rig.call("boss", "PUT", "/v1/services/shop", json={"apps": {"/shop/web": 1}}).status_code == 200
    assert rig.call("ann", "PUT", "/v1/services/shop", json=service).status_code == 403
    assert rig.call("ann", "DELETE", "/v1/services/shop").status_code == 404
    assert [each["name"] for each in rig.call("ann", "GET", "/v1/services").json()["services"]] == ["mine"]


def test_deployments_and_the_queue_show_what_is_seen(rig: Rig) -> None:
    create(rig, "boss", "/shop/web", instances=1)
    create(rig, "ann", "/research/web", instances=1)
    (only,) = rig.call("ann", "GET", "/v2/deployments").json()
    assert only["affectedApps"] == ["/research/web"]
    queued = rig.call("ann", "GET", "/v2/queue").json()["queue"]
    assert [each["app"]["id"] for each in queued] == ["/research/web"]
    others = [each for each in rig.call("boss", "GET", "/v2/deployments").json() if each["id"] != only["id"]]
    assert rig.call("ann", "DELETE", f"/v2/deployments/{others[0]['id']}").status_code == 404
    assert rig.call("vera", "DELETE", f"/v2/deployments/{only['id']}").status_code == 403
    assert rig.call("ann", "DELETE", f"/v2/deployments/{only['id']}").status_code == 200
    assert rig.call("ann", "DELETE", "/v2/queue/shop/web/delay").status_code == 404


def test_listeners_hear_of_what_they_see(rig: Rig) -> None:
    with rig.session.get(
        rig.server.url + "/v2/events",
        headers={"X-Name": "ann", "Accept": "text/event-stream"},
        stream=True,
        timeout=60,
    ) as heard:
        lines = heard.iter_lines()
        next(lines)
        create(rig, "boss", "/shop/web")
        create(rig, "ann", "/research/web")
        said = []
        for line in lines:
            said.append(line.decode())
            if line.startswith(b"data:") and json.loads(line[5:])["eventType"] == "deployment_success":
                break
    assert "/shop" not in "".join(said)
    assert "/research/web" in "".join(said)
