"""The document over REST: versions, conflicts, who may give what, and what it means for a name."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.conftest import wait_until
from tests.contract.access.rig import ROOT, AccessRig

BOSS = {"names": ["boss"], "roles": ["admin"]}
WRITER = {"name": "writer", "rights": ["access:*", "job:kill"], "limits": {"images": []}}


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


def put(
    rig: AccessRig, who: Any, *bindings: dict[str, Any], version: int | None = None, **more: Any
) -> requests.Response:
    known = rig.daemon.access.version if version is None else version
    return rig.call(who, "PUT", "/v1/access", json={"version": known, "bindings": list(bindings), **more})


def code_of(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_access_document_of_a_new_scheduler_is_version_0_and_root_writes_the_first(rig: AccessRig) -> None:
    shown = rig.call(ROOT, "GET", "/v1/access")
    assert (shown.json()["version"], shown.json()["bindings"], shown.headers["ETag"]) == (0, [], '"0"')
    assert code_of(put(rig, "boss", BOSS)) == (403, "forbidden")
    assert code_of(rig.call(None, "GET", "/v1/access")) == (401, "unauthenticated")
    written = put(rig, ROOT, BOSS, comment="the first")
    assert written.status_code == 200, written.text
    body = written.json()
    assert (body["version"], body["by"], body["comment"], body["warnings"]) == (1, "root", "the first", [])
    assert written.headers["ETag"] == '"1"'
    assert (
        put(rig, "boss", BOSS, {"groups": ["ml"], "roles": ["user"], "queues": ["ml"]}).json()["version"] == 2
    )


def test_access_document_sent_back_as_read_is_no_new_version(rig: AccessRig) -> None:
    rig.bind(BOSS, shares={"ml": ["jobs"]}, unix_users={"boss": "ann"})
    body = rig.call("boss", "GET", "/v1/access").json()
    again = rig.call("boss", "PUT", "/v1/access", json=body)
    assert {**again.json(), "warnings": []} == {**body, "warnings": []}


def test_access_change_of_another_version_is_refused(rig: AccessRig) -> None:
    rig.bind(BOSS)
    for more in ({"version": 0}, {"version": 2}):
        assert code_of(put(rig, "boss", BOSS, **more)) == (409, "conflict")
    stale = rig.call("boss", "PUT", "/v1/access", json={"bindings": [BOSS]}, headers={"If-Match": '"0"'})
    assert code_of(stale) == (409, "conflict")
    fresh = rig.call(
        "boss",
        "PUT",
        "/v1/access",
        json={"bindings": [BOSS], "unix_users": {"a": "b"}},
        headers={"If-Match": '"1"'},
    )
    assert fresh.json()["version"] == 2


@pytest.mark.parametrize(
    ("body", "headers", "path"),
    [
        ({}, {}, "/version"),
        ({"version": "1"}, {}, "/version"),
        ({"version": 1}, {"If-Match": '"0"'}, "/version"),
        ({}, {"If-Match": "*"}, "/If-Match"),
        ({}, {"If-Match": '"0", "1"'}, "/If-Match"),
        ({}, {"If-Match": "0"}, "/If-Match"),
        ({"version": 0, "bindings": [{"names": ["a"], "roles": ["x"]}]}, {}, "/bindings/0/roles/0"),
        ({"version": 0, "colour": 1}, {}, "/colour"),
    ],
)
def test_a_wrong_change_is_told_with_its_place(
    rig: AccessRig, body: dict[str, Any], headers: dict[str, str], path: str
) -> None:
    response = rig.call(ROOT, "PUT", "/v1/access", json=body, headers=headers)
    assert code_of(response) == (422, "invalid")
    assert path in [problem["path"] for problem in response.json()["error"]["problems"]]
    assert rig.daemon.access.version == 0


def test_versions_are_kept_and_an_old_one_can_be_put_again(rig: AccessRig) -> None:
    rig.bind(BOSS, comment="one")
    rig.bind(BOSS, {"names": ["ann"], "roles": ["user"]}, comment="two")
    listed = rig.call("boss", "GET", "/v1/access/versions").json()["versions"]
    assert [(each["version"], each["comment"], each["bindings"]) for each in listed] == [
        (2, "two", 2),
        (1, "one", 1),
    ]
    old = rig.call("boss", "GET", "/v1/access/versions/1").json()
    assert (old["version"], len(old["bindings"])) == (1, 1)
    assert rig.call("boss", "PUT", "/v1/access", json={**old, "version": 2}).json()["version"] == 3
    assert (
        rig.daemon.access.bindings
        == rig.daemon.read(lambda view: view.access_versions[1]).result(60).bindings
    )
    for missing in ("3000", "x", "-1", "1e3", "9" * 40):
        assert code_of(rig.call("boss", "GET", f"/v1/access/versions/{missing}")) == (404, "not-found")


def test_access_change_grants_no_right_that_the_caller_lacks(rig: AccessRig) -> None:
    rig.bind(BOSS, {"names": ["will"], "roles": ["writer"]}, roles=[WRITER])
    will = {"names": ["will"], "roles": ["writer"]}
    for more in (
        {"names": ["will"], "roles": ["admin"]},
        {"names": ["friend"], "roles": ["admin"], "queues": ["ml"]},
        {"groups": ["all"], "roles": ["user"]},
    ):
        response = put(rig, "will", BOSS, will, more, roles=[WRITER])
        assert code_of(response) == (403, "forbidden")
        assert [problem["path"] for problem in response.json()["error"]["problems"]] == ["/bindings/2"]
    grown = put(rig, "will", BOSS, will, roles=[{"name": "writer", "rights": ["*"]}])
    assert code_of(grown) == (403, "forbidden")
    assert code_of(put(rig, "will", BOSS, will, roles=[WRITER], unix_users={"will": "postgres"})) == (
        403,
        "forbidden",
    )
    narrower = {"names": ["friend"], "roles": ["killer"], "queues": ["ml"]}
    killer = {"name": "killer", "rights": ["job:kill"], "limits": {"images": []}}
    assert put(rig, "will", BOSS, will, narrower, roles=[WRITER, killer]).status_code == 200


def test_a_token_that_is_good_for_less_gives_no_more(rig: AccessRig) -> None:
    rig.bind(BOSS)
    narrowed = {"name": "boss", "narrowing": [["access:*"], ["*"], ["/*"]]}
    assert code_of(put(rig, narrowed, BOSS, {"names": ["x"], "roles": ["admin"]})) == (403, "forbidden")
    assert put(rig, narrowed, BOSS, comment="x", version=1).status_code == 200


def test_a_document_that_nobody_could_change_again_needs_to_be_forced(rig: AccessRig) -> None:
    rig.bind(BOSS)
    response = put(rig, "boss", {"names": ["ann"], "roles": ["user"]})
    assert code_of(response) == (409, "locked-out")
    assert "access:write" in response.json()["error"]["message"]
    body = {"version": 1, "bindings": [{"names": ["ann"], "roles": ["user"]}]}
    forced = rig.call("boss", "PUT", "/v1/access?force=true", json=body)
    assert forced.json()["warnings"] == ["boss may not change it again"]
    assert code_of(rig.call("boss", "GET", "/v1/access")) == (403, "forbidden")
    rig.bind(BOSS)  # root on the scheduler's host still can
    rig.bind({"names": ["ann"], "roles": ["user"]})  # and needs no force
    assert rig.daemon.access.version == 4


def test_access_change_warns_of_probable_mistakes(rig: AccessRig) -> None:
    said = put(rig, ROOT, {"names": ["*"], "roles": ["admin"]}).json()["warnings"]
    assert said == ["bindings/0 lets every authenticated user change this document"]
    locked = put(rig, ROOT, {"names": ["ann"], "roles": ["admin"], "queues": ["ml"]}).json()["warnings"]
    assert locked == [
        "no user has the right access:write: only root on the scheduler's host can change it again"
    ]
    open_to_all = put(rig, "anybody", BOSS).json()["warnings"]
    assert open_to_all == ["authentication is off: this document has no effect until it is set up"]


def ask(rig: AccessRig, who: Any, right: str, **more: Any) -> dict[str, Any]:
    response = rig.call(who, "POST", "/v1/access/check", json={"right": right, **more})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_access_check_tells_rights_of_a_name_and_why(rig: AccessRig) -> None:
    rig.bind(
        BOSS,
        {"names": ["ann"], "groups": ["ml"], "roles": ["user"], "queues": ["ml"]},
        {"names": ["vera"], "roles": ["viewer"]},
        shares={"ml": ["jobs"]},
    )
    mine = ask(rig, "ann", "job:kill", queue="ml", owner="ann")
    assert (mine["allowed"], mine["by"]) == (
        True, [{"binding": 1, "role": "user", "reason": "binding 1 has the role user"}],
    )  # fmt: skip
    refused = ask(rig, "ann", "job:kill", queue="ml", owner="bob")
    assert refused == {
        "name": "ann",
        "right": "job:kill in queue ml",
        "allowed": False,
        "by": [],
        "missing": "ann lacks the right job:kill in queue ml",
        "remedy": "ask boss to bind a role that gives it (mesos-gpu access apply)",
    }
    shared = ask(rig, "ann", "job:see", queue="ml", owner="bob")
    assert shared["by"] == [
        {"binding": None, "role": None, "reason": "queue ml permits this for jobs of its members"}
    ]
    assert ask(rig, "boss", "job:run", name="new", groups=["ml"], queue="ml", owner="new")["allowed"]
    assert not ask(rig, "boss", "queue:write", name="vera")["allowed"]
    assert ask(rig, ROOT, "gpu:reset")["by"][0]["binding"] is None
    assert ask(rig, "anybody", "gpu:reset")["allowed"]
    foreign = {"right": "job:run", "name": "boss"}
    assert code_of(rig.call("ann", "POST", "/v1/access/check", json=foreign)) == (403, "forbidden")
    assert code_of(rig.call("ann", "POST", "/v1/access/check", json={"right": "x"})) == (422, "invalid")
    nobodys = {"right": "gpu:reset", "name": ""}  # as of an empty variable: not a question about who asks
    assert code_of(rig.call(ROOT, "POST", "/v1/access/check", json=nobodys)) == (422, "invalid")
    by_group = {**foreign, "name": "ann", "groups": ["ops"]}  # groups that she may not have
    assert code_of(rig.call("ann", "POST", "/v1/access/check", json=by_group)) == (403, "forbidden")


def test_rights_and_roles_are_listed_for_named_callers(rig: AccessRig) -> None:
    listed = rig.call("ann", "GET", "/v1/access/rights").json()
    assert {"job:run", "access:write", "token:create"} <= {each["name"] for each in listed["rights"]}
    assert [role["name"] for role in listed["roles"]] == ["viewer", "user", "operator", "admin"]
    assert code_of(rig.call(None, "GET", "/v1/access/rights")) == (401, "unauthenticated")


def test_long_poll_of_a_job_answers_by_the_rights_at_the_change(rig: AccessRig) -> None:
    viewer = {"names": ["vera"], "roles": ["viewer"]}
    rig.bind({"names": ["ann"], "roles": ["user"]}, viewer)
    body = {"command": "echo hunter2", "env": {"TOKEN": "hunter2"}}
    job = rig.call("ann", "POST", "/v1/jobs", json=body).json()
    path = f"/v1/jobs/{job['id']}?show_env=true&after_version={job['version']}&timeout_s=60"
    with ThreadPoolExecutor(1) as one:
        waiting = one.submit(rig.call, "ann", "GET", path)
        changes = rig.api.state.changes
        wait_until("the request waits", lambda: bool(changes.waiting))
        rig.bind({"names": ["ann"], "roles": ["viewer"]}, viewer)
        rig.call(ROOT, "DELETE", f"/v1/jobs/{job['id']}")
        answer = waiting.result(60)
    assert answer.status_code == 403
    assert "hunter2" not in answer.text
