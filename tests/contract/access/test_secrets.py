"""Who may give secrets to jobs and apps: the right is asked for each path, and paths are all that is told of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.model.jobs.permits import Permits
from tests.contract.access.rig import AccessRig

ROLES = [{"name": "hugger", "rights": ["secret:use:team/*"]}]
BOUND = (
    {"names": ["ann"], "roles": ["user", "hugger"], "queues": ["research"], "apps": ["/research/*"]},
    {"names": ["bob"], "roles": ["user"], "queues": ["research"], "apps": ["/research/*"]},
)
JOB: dict[str, Any] = {"command": "true", "queue": "research"}
APP: dict[str, Any] = {"id": "/research/web", "cmd": "sleep 9", "instances": 0}


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig(permits=Permits(secrets=True))
    rig.bind(*BOUND, roles=ROLES, unix_users={"ann": "ann", "bob": "bob"})
    yield rig
    rig.close()


def with_secret(source: str) -> dict[str, Any]:
    return {**JOB, "secrets": {"TOKEN": source}}


def test_a_job_gets_the_secrets_that_its_owner_may_use(rig: AccessRig) -> None:
    answer = rig.call("ann", "POST", "/v1/jobs", json=with_secret("team/hf#token"))
    assert answer.status_code == 201, answer.text
    shown = rig.call("ann", "GET", f"/v1/jobs/{answer.json()['id']}").json()["secrets"]
    assert shown == {"TOKEN": {"source": "team/hf#token", "file": None}}


@pytest.mark.parametrize(
    ("who", "source"),
    [("bob", "team/hf"), ("ann", "ops/db"), ("ann", "teamster/hf"), ("bob", "team/hf#token")],
)
def test_secrets_of_another_are_refused_with_the_missing_right(rig: AccessRig, who: str, source: str) -> None:
    answer = rig.call(who, "POST", "/v1/jobs", json=with_secret(source))
    assert answer.status_code == 403
    (problem,) = answer.json()["error"]["problems"]
    path = source.partition("#")[0]
    assert problem == {
        "path": "/secrets/TOKEN",
        "reason": f"{who} lacks the right secret:use:{path} in queue research",
    }
    assert rig.call(who, "GET", "/v1/jobs").json()["jobs"] == []


def test_apps_likewise_and_nobody_takes_what_anothers_app_may_have(rig: AccessRig) -> None:
    secret = {**APP, "env": {"TOKEN": {"secret": "hf"}}, "secrets": {"hf": {"source": "/team/hf"}}}
    assert rig.call("bob", "POST", "/v2/apps", json=secret).status_code == 403
    assert rig.call("ann", "POST", "/v2/apps", json=secret).status_code == 201
    shown = rig.call("ann", "GET", "/v2/apps/research/web").json()["app"]
    assert (shown["env"], shown["secrets"]) == (secret["env"], secret["secrets"])
    taken = rig.call("bob", "PATCH", "/v2/apps/research/web?force=true", json={"cmd": "env > /tmp/x"})
    assert taken.status_code == 403, taken.text


def test_secrets_without_a_store_are_refused() -> None:
    rig = AccessRig()
    try:
        answer = rig.call("anybody", "POST", "/v1/jobs", json=with_secret("team/hf"))
        assert answer.status_code == 422
        assert "--secrets-dir" in answer.text
        body = {**APP, "env": {"TOKEN": {"secret": "hf"}}, "secrets": {"hf": {"source": "/team/hf"}}}
        refused = rig.call("anybody", "POST", "/v2/apps", json=body)
        assert refused.status_code == 422
        assert {each["path"] for each in refused.json()["details"]} == {"/env/TOKEN/secret", "/secrets"}
    finally:
        rig.close()


# --- logins for registries of images


IN_IMAGE = {**JOB, "image": "reg.example/team/app:1"}


def test_job_gets_the_image_secret_that_its_owner_may_use(rig: AccessRig) -> None:
    answer = rig.call("ann", "POST", "/v1/jobs", json={**IN_IMAGE, "image_secret": "team/ngc#login"})
    assert answer.status_code == 201, answer.text
    shown = rig.call("ann", "GET", f"/v1/jobs/{answer.json()['id']}").json()
    assert shown["image_secret"] == "team/ngc#login"


@pytest.mark.parametrize(("who", "source"), [("bob", "team/ngc#login"), ("ann", "ops/ngc")])
def test_image_secret_of_another_is_refused_with_the_missing_right(
    rig: AccessRig, who: str, source: str
) -> None:
    answer = rig.call(who, "POST", "/v1/jobs", json={**IN_IMAGE, "image_secret": source})
    assert answer.status_code == 403
    reason = f"{who} lacks the right secret:use:{source.partition('#')[0]} in queue research"
    assert answer.json()["error"]["problems"] == [{"path": "/image_secret", "reason": reason}]


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"image_secret": "ann:hunter2!"}, "/image_secret"),
        ({"image_secret": 7}, "/image_secret"),
        ({"image": None, "image_secret": "team/ngc"}, "/image_secret"),
    ],
)
def test_image_secret_that_is_none_is_refused_and_not_repeated(
    rig: AccessRig, more: dict[str, Any], path: str
) -> None:
    answer = rig.call("ann", "POST", "/v1/jobs", json={**IN_IMAGE, **more})
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["error"]["problems"]] == [path]
    assert "hunter2" not in answer.text


PULLED = {
    **APP,
    "container": {
        "type": "DOCKER", "docker": {"image": "reg.example/team/app:1", "pullConfig": {"secret": "ngc"}}
    },
    "secrets": {"ngc": {"source": "/team/ngc"}},
}  # fmt: skip


@pytest.mark.parametrize("engine", ["MESOS", "DOCKER"])
def test_app_gets_its_pull_config_by_the_right_to_its_secret(rig: AccessRig, engine: str) -> None:
    app = {**PULLED, "container": {**PULLED["container"], "type": engine}}
    refused = rig.call("bob", "POST", "/v2/apps", json=app)
    assert refused.status_code == 403
    assert [each["path"] for each in refused.json()["details"]] == [
        "/research/web/container/docker/pullConfig"
    ]
    assert rig.call("ann", "POST", "/v2/apps", json=app).status_code == 201
    shown = rig.call("ann", "GET", "/v2/apps/research/web").json()["app"]
    assert shown["container"]["docker"]["pullConfig"] == {"secret": "ngc"}


def test_image_secrets_without_a_store_are_refused() -> None:
    rig = AccessRig()
    rig.bind({"names": ["boss"], "roles": ["admin"]})
    try:
        job = rig.call("boss", "POST", "/v1/jobs", json={**IN_IMAGE, "image_secret": "team/ngc"})
        app = rig.call("boss", "POST", "/v2/apps", json=PULLED)
        queues = {"version": 0, "queues": {"research": {"image_secret": "team/ngc"}}}
        queue = rig.call("boss", "PUT", "/v1/queues", json=queues)
        for answer in (job, queue):
            assert answer.status_code == 422
            assert "--secrets-dir" in answer.text
            assert answer.json()["error"]["problems"][0]["path"].endswith("/image_secret")
        assert app.status_code == 422
    finally:
        rig.close()


def test_queue_gets_an_image_secret_from_who_may_use_it(rig: AccessRig) -> None:
    rig.bind(
        *BOUND,
        {"names": ["otto"], "roles": ["operator"]},
        {"names": ["boss"], "roles": ["admin"]},
        roles=ROLES,
        unix_users={"ann": "ann", "bob": "bob"},
    )

    def put(who: str, version: int, **research: Any) -> Any:
        body = {"version": version, "queues": {"research": research, "research/vision": {}}}
        return rig.call(who, "PUT", "/v1/queues", json=body)

    refused = put("otto", 0, image_secret="team/ngc")
    assert refused.status_code == 403
    assert "secret:use:team/ngc" in refused.text
    assert put("otto", 0).status_code == 200
    assert put("boss", 1, image_secret="team/ngc").json()["queues"]["research"]["image_secret"] == "team/ngc"
    assert put("otto", 2, image_secret="team/ngc", weight=2).status_code == 200, "what is there stays"
    patch = {"version": 3, "image_secret": "ops/x"}
    assert rig.call("otto", "PATCH", "/v1/queues/research", json=patch).status_code == 403
    wrong = put("boss", 3, image_secret="ann:hunter2!")
    assert wrong.status_code == 422
    assert "hunter2" not in wrong.text
