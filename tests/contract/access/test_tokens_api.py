"""Tokens over REST: shown once, never wider than who makes them, and nothing after they are revoked."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from mesos_gpu.access.tokens import digest_of, is_proved, parts_of
from tests.contract.access.rig import ROOT, AccessRig

DAY_S = 86400.0
BINDINGS = (
    {"names": ["boss"], "roles": ["admin"]},
    {"names": ["ann", "bob"], "roles": ["user"], "queues": ["ml"]},
    {"names": ["vera"], "roles": ["viewer"]},
    {"names": ["maker"], "roles": ["maker"]},
    {"names": ["writer"], "roles": ["writer"]},
)
MAKERS = [{"name": "maker", "rights": ["token:*"]}, {"name": "writer", "rights": ["token:*", "access:*"]}]


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    rig.bind(*BINDINGS, roles=MAKERS)
    yield rig
    rig.close()


def create(rig: AccessRig, who: Any, **fields: Any) -> dict[str, Any]:
    response = rig.call(who, "POST", "/v1/tokens", json=fields)
    assert response.status_code == 201, response.text
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Location"] == f"/v1/tokens/{response.json()['token']['id']}"
    return dict(response.json())


def refused(response: requests.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


def narrowed(name: str, *rights: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "proof_id": "", "narrowing": [rights or ["*"], ["*"], ["/*"]], **more}


def test_a_token_is_shown_once_and_kept_as_a_hash(rig: AccessRig) -> None:
    made = create(rig, "ann", comment="for CI")
    id, secret = parts_of(made["secret"]) or ("", "")
    assert made["token"] == {
        "id": id, "name": "ann", "groups": [], "rights": ["*"], "queues": ["*"], "apps": ["/*"], "comment": "for CI",
        "created_at": rig.daemon.tokens[id].created_at, "created_by": "ann", "made_with": None,
        "expires_at": rig.daemon.tokens[id].created_at + 30 * DAY_S, "used_at": None, "used_from": None,
    }  # fmt: skip
    kept = rig.daemon.tokens[id]
    assert kept.digest == digest_of(kept.salt, secret)
    assert is_proved(kept, secret, kept.created_at)
    for answer in (rig.call("ann", "GET", f"/v1/tokens/{id}"), rig.call("boss", "GET", "/v1/tokens")):
        assert answer.status_code == 200
        for hidden in (secret, kept.salt, kept.digest):
            assert hidden not in answer.text
    assert len({create(rig, "ann")["secret"] for _ in range(5)}) == 5


def test_tokens_are_seen_and_ended_by_owner_and_admin(rig: AccessRig) -> None:
    ann, bob = create(rig, "ann")["token"]["id"], create(rig, "bob")["token"]["id"]
    listed = rig.call("ann", "GET", "/v1/tokens").json()["tokens"]
    assert [token["id"] for token in listed] == [ann]
    assert {token["id"] for token in rig.call("boss", "GET", "/v1/tokens").json()["tokens"]} == {ann, bob}
    of_bob = rig.call("boss", "GET", "/v1/tokens?name=bob").json()["tokens"]
    assert [token["id"] for token in of_bob] == [bob]
    for verb in ("GET", "DELETE"):
        assert refused(rig.call("ann", verb, f"/v1/tokens/{bob}"))[0] == 404  # as if it were not there
        assert refused(rig.call("ann", verb, "/v1/tokens/none"))[0] == 404
        assert refused(rig.call("vera", verb, f"/v1/tokens/{bob}"))[0] == 403
        assert refused(rig.call(None, verb, f"/v1/tokens/{bob}"))[0] == 401
    assert rig.call("ann", "DELETE", f"/v1/tokens/{ann}").json()["id"] == ann
    assert rig.call("boss", "DELETE", f"/v1/tokens/{bob}").status_code == 200
    assert not rig.daemon.tokens
    assert refused(rig.call("ann", "DELETE", f"/v1/tokens/{ann}"))[0] == 404


def test_a_token_of_another_name_is_for_those_who_could_give_all_rights(rig: AccessRig) -> None:
    asked = {"name": "boss"}
    assert refused(rig.call("ann", "POST", "/v1/tokens", json=asked)) == (
        403, "forbidden", "ann lacks the right token:create for boss",
    )  # fmt: skip
    for name in (
        "maker",
        "writer",
    ):  # the one has not access:write, the other has less than who it would then be
        status, code, message = refused(rig.call(name, "POST", "/v1/tokens", json=asked))
        assert (status, code) == (403, "forbidden")
        assert message.startswith("a token of boss permits all that boss may do")
    made = create(rig, "boss", name="robot", groups=["ci"])["token"]
    assert (made["name"], made["groups"], made["created_by"]) == ("robot", ["ci"], "boss")
    assert create(rig, ROOT, name="ann")["token"]["created_by"] == "root"


def test_groups_are_those_that_the_proof_says(rig: AccessRig) -> None:
    ann = {"name": "ann", "groups": ["ml", "ops"]}
    assert create(rig, ann)["token"]["groups"] == ["ml", "ops"]
    assert create(rig, ann, groups=["ml"])["token"]["groups"] == ["ml"]
    response = rig.call(ann, "POST", "/v1/tokens", json={"groups": ["ml", "wheel"]})
    assert refused(response) == (403, "forbidden", "ann is not in wheel")


def test_a_narrowed_token_makes_only_narrower_ones(rig: AccessRig) -> None:
    own = narrowed("ann", "job:*", "token:*")
    assert create(rig, own)["token"]["rights"] == ["job:*", "token:*"]
    assert create(rig, own, rights=["job:run"])["token"]["rights"] == ["job:run"]
    for wider in ({"rights": ["*"]}, {"rights": ["app:write"]}, {"queues": ["ml"]}):
        response = rig.call(own, "POST", "/v1/tokens", json=wider)
        assert refused(response)[:2] == (403, "forbidden"), wider
        assert "more than the credentials of this request (token)" in response.json()["error"]["message"]
    response = rig.call(narrowed("ann", "job:*"), "POST", "/v1/tokens", json={})
    assert refused(response) == (
        403, "forbidden", "ann has the right token:create, but this token does not allow it",
    )  # fmt: skip


def test_a_token_made_by_a_token_ends_with_it(rig: AccessRig) -> None:
    first = create(rig, "ann", lifetime_s=DAY_S)["token"]
    by_token = {"name": "ann", "proof_id": first["id"], "until": first["expires_at"]}
    second = create(rig, by_token, lifetime_s=300 * DAY_S)["token"]
    assert (second["made_with"], second["expires_at"]) == (first["id"], first["expires_at"])
    by_password = {"name": "ann", "proof": "password", "until": first["expires_at"]}
    third = create(rig, by_password, lifetime_s=300 * DAY_S)["token"]
    assert (third["made_with"], third["expires_at"]) == (None, third["created_at"] + 300 * DAY_S)
    rig.call("ann", "DELETE", f"/v1/tokens/{first['id']}")
    assert list(rig.daemon.tokens) == [third["id"]]


def test_a_token_that_was_revoked_while_its_request_came_makes_no_other(rig: AccessRig) -> None:
    first = create(rig, "ann")["token"]["id"]
    by_token = {"name": "ann", "proof_id": first}

    def slowly() -> Iterator[bytes]:
        yield b"{"
        assert rig.call("ann", "DELETE", f"/v1/tokens/{first}").status_code == 200
        yield b"}"

    headers = {"Content-Type": "application/json"}
    response = rig.call(by_token, "POST", "/v1/tokens", data=slowly(), headers=headers)
    assert refused(response) == (409, "conflict", f"token {first} was revoked")
    assert not rig.daemon.tokens


def test_a_browsers_session_makes_tokens_only_soon_after_the_login(rig: AccessRig) -> None:
    fresh = {"name": "ann", "proof": "password", "session": True, "session_since": time.time() - 60}
    assert create(rig, fresh)["token"]["made_with"] is None
    stale = {**fresh, "session_since": time.time() - 901}
    response = rig.call(stale, "POST", "/v1/tokens", json={})
    assert refused(response)[:2] == (403, "forbidden")
    assert "more than 15 minutes ago" in response.json()["error"]["message"]


def test_a_token_made_in_a_session_ends_with_the_token_that_began_the_session(rig: AccessRig) -> None:
    first = create(rig, "ann")["token"]
    session = {"name": "ann", "session": True, "session_since": time.time(), "proof_id": "of-the-session"}
    until = time.time() + 600
    second = create(rig, {**session, "began_with": first["id"], "until": until})["token"]
    assert (second["made_with"], second["expires_at"]) == (first["id"], until)
    rig.call("ann", "DELETE", f"/v1/tokens/{first['id']}")
    assert not rig.daemon.tokens


def test_a_right_that_one_has_for_nothing_is_refused_by_its_name(rig: AccessRig) -> None:
    response = rig.call("ann", "POST", "/v1/tokens", json={"rights": ["job:run", "gpu:drain"]})
    assert refused(response) == (403, "forbidden", "ann lacks the right gpu:drain")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"lifetime_s": 366 * DAY_S}, "/lifetime_s"),
        ({"lifetime_s": 1e999}, ""),
        ({"rights": ["job:fly"]}, "/rights/0"),
        ({"id": "mine"}, "/id"),
        ({"name": "a\nb"}, "/name"),
    ],
)
def test_a_wrong_request_is_told_with_its_place(rig: AccessRig, fields: dict[str, Any], path: str) -> None:
    text = str(fields).replace("'", '"').replace("inf", "1e999")
    headers = {"Content-Type": "application/json"}
    response = rig.call("ann", "POST", "/v1/tokens", data=text, headers=headers)
    assert response.status_code == (422 if path else 400)
    if path:
        assert [problem["path"] for problem in response.json()["error"]["problems"]] == [path]


def test_token_needs_a_name_without_authentication(rig: AccessRig) -> None:
    assert refused(rig.call("anybody", "POST", "/v1/tokens", json={}))[0] == 422
    assert create(rig, "anybody", name="ann")["token"]["name"] == "ann"


def test_a_name_has_no_more_tokens_than_it_may(rig: AccessRig) -> None:
    for _ in range(100):
        create(rig, "ann")
    response = rig.call("ann", "POST", "/v1/tokens", json={})
    assert refused(response)[:2] == (429, "limit")
    create(rig, "bob")


def test_the_longest_life_is_a_setting() -> None:
    rig = AccessRig(longest_token_s=DAY_S)
    try:
        assert refused(rig.call(ROOT, "POST", "/v1/tokens", json={"lifetime_s": 2 * DAY_S}))[0] == 422
        made = create(rig, ROOT)["token"]
        assert made["expires_at"] == made["created_at"] + DAY_S
    finally:
        rig.close()
