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
