"""Tokens over a real server: which are taken, which are refused, and what is told of them."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
import requests

from mesos_gpu.access.tokens import parts_of, text_of
from mesos_gpu.adapters.proofs.sparse import MAX
from mesos_gpu.api.http import standing
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.login.counts import WRONG
from mesos_gpu.model.access.caller import Narrowing
from tests.conftest import wait_until
from tests.contract.login.rig import LoginRig, TokenStore, basic, id_of, said


def secret_of(token: str) -> str:
    parts = parts_of(token)
    assert parts
    return parts[1]


@pytest.fixture
def rig(store: TokenStore) -> Iterator[LoginRig]:
    rig = LoginRig([store.prover()])
    yield rig
    rig.close()


def test_token_is_needed_for_all_but_open_routes(rig: LoginRig) -> None:
    refused = rig.call("GET", "/v1/jobs")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="mesos_gpu"'
    assert rig.call("GET", "/v1/health").status_code == 200


def test_a_token_is_a_name_and_its_groups(rig: LoginRig, store: TokenStore) -> None:
    assert rig.call("GET", "/v1/jobs", store.make("ann")).status_code == 200
    watcher = store.make("eve", groups=("watchers",))
    assert rig.call("GET", "/v1/status", watcher).status_code == 200
    assert rig.call("POST", "/v1/jobs", watcher, json={"command": "true"}).status_code == 403
    assert rig.call("GET", "/v1/jobs", store.make("eve")).status_code == 403


def test_token_is_good_for_no_more_than_it_was_made_for(rig: LoginRig, store: TokenStore) -> None:
    narrow = store.make("root", narrowing=Narrowing(rights=("cluster:see",)))
    assert rig.call("GET", "/v1/status", narrow).status_code == 200
    refused = rig.call("GET", "/v1/jobs", narrow)
    assert said(refused) == (403, "root has the right job:see, but this token does not allow it")


def test_token_that_is_forged_expired_or_revoked_is_refused(rig: LoginRig, store: TokenStore) -> None:
    good, before = store.make("ann"), WRONG.read()["token"]
    other = store.make("ann")
    forged = text_of(id_of(good), secret_of(other))
    unknown = "this token is not one of this scheduler's, or it was revoked"
    for wrong in (forged, text_of("0" * 12, secret_of(good)), "mgpu_x", f"{good}x"):
        assert said(rig.call("GET", "/v1/jobs", wrong)) == (401, unknown), wrong
    assert said(rig.call("GET", "/v1/jobs", store.make("ann", life_s=-1)))[1] == "the token has expired"
    store.revoke(other)
    assert said(rig.call("GET", "/v1/jobs", other)) == (401, unknown)
    assert rig.call("GET", "/v1/jobs", good).status_code == 200
    assert WRONG.read()["token"] == before + 6


def test_a_wrong_proof_is_not_passed_over_for_another_or_for_what_is_free(
    rig: LoginRig, store: TokenStore
) -> None:
    assert rig.call("GET", "/v1/health", "mgpu_x").status_code == 401
    told = "a bearer token that this scheduler did not issue (mgpu_ID_SECRET) is not accepted here"
    assert said(rig.call("GET", "/v1/jobs", "eyJ.eyJ.x")) == (401, told)
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "x")).status_code == 401
    assert rig.call("GET", "/v1/jobs", headers={"Authorization": "Bearer"}).status_code == 401
    token = f"Bearer {store.make('ann')}".encode()
    request = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", rig.server.port), timeout=60) as connection:
        connection.sendall(
            request + b"Authorization: " + token + b"\r\nAuthorization: " + token + b"\r\n\r\n"
        )
        assert b"several Authorization headers" in b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("name", ["", "token"])
def test_clients_that_know_only_http_basic_send_it_as_a_password(
    rig: LoginRig, store: TokenStore, name: str
) -> None:
    assert rig.call("GET", "/v1/jobs", headers=basic(name, store.make("ann"))).status_code == 200


def test_sent_as_a_name_by_mistake_it_is_taken_and_never_logged(
    rig: LoginRig, store: TokenStore, caplog: pytest.LogCaptureFixture
) -> None:
    token = store.make("ann")
    with caplog.at_level(logging.DEBUG):
        assert rig.call("GET", "/v1/jobs", headers=basic(token, "")).status_code == 200
        store.revoke(token)
        assert rig.call("GET", "/v1/jobs", headers=basic(token, "")).status_code == 401
    assert secret_of(token) not in caplog.text


def test_token_use_is_noted(rig: LoginRig, store: TokenStore) -> None:
    token = store.make("ann")
    assert rig.call("GET", "/v1/jobs", token).status_code == 200
    assert store.used == [(id_of(token), "127.0.0.1")]


def test_a_stream_ends_when_the_token_does(
    rig: LoginRig, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "LOOK_S", 0.1)
    token = store.make("root")
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        events = session.get(f"{rig.url}/v2/events", headers=headers, stream=True, timeout=60)
        assert events.status_code == 200
        store.revoke(token)
        assert b"event: event_stream_attached" in b"".join(events.iter_content(1))
        assert session.get(f"{rig.url}/v2/events", headers=headers, timeout=60).status_code == 401


def test_login_request_that_takes_long_is_not_cut_off(rig: LoginRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """To log in may take longer than the time between two looks."""
    monkeypatch.setattr(standing, "LOOK_S", 0.05)
    monkeypatch.setattr(rig.who, "log_in", slow_login)
    answer = rig.call("POST", "/v1/session", json={"token": "mgpu_x"})
    assert said(answer) == (401, "slowly")


async def slow_login(_scope: object, _shown: object) -> None:
    await asyncio.sleep(0.5)
    raise Refusal(401, "unauthenticated", "slowly", remedy="")


def test_a_flood_of_wrong_proofs_does_not_fill_the_log(
    rig: LoginRig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MAX + 10):
        assert rig.call("GET", "/v1/jobs", "mgpu_x").status_code in (401, 429)
    assert caplog.text.count("failed authentication from 127.0.0.1") == MAX


def test_guesses_have_to_wait_and_right_tokens_do_not(rig: LoginRig, store: TokenStore) -> None:
    answers = [rig.call("GET", "/v1/jobs", "mgpu_x") for _ in range(9)]
    assert {each.status_code for each in answers[:5]} == {401}
    late = answers[-1]
    assert late.status_code == 429
    assert int(late.headers["Retry-After"]) >= 1
    assert rig.call("GET", "/v1/jobs", store.make("ann")).status_code == 200


def test_token_end_ends_long_answers(
    rig: LoginRig, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "LOOK_S", 0.1)
    token = store.make("ann")
    job = rig.call("POST", "/v1/jobs", token, json={"command": "true"}).json()
    got: list[requests.Response] = []
    path = f"/v1/jobs/{job['id']}?after_version={job['version']}&timeout_s=50"
    waiting = threading.Thread(target=lambda: got.append(rig.call("GET", path, token)))
    waiting.start()
    asked = len(store.asked)
    wait_until("it is looked at again", lambda: len(store.asked) > asked + 2, 30)
    assert not got
    store.revoke(token)
    waiting.join(40)
    assert said(got[0]) == (401, "the credentials of this request have expired meanwhile")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v2/apps"])
def test_a_token_that_is_revoked_while_a_body_is_held_back_changes_nothing(
    rig: LoginRig, store: TokenStore, path: str
) -> None:
    token = store.make("ann")

    def held_back() -> Iterator[bytes]:
        yield b'{"id": "/a", "cmd": "true", "command": ' + b" " * (1 << 17)  # that much is begun early
        wait_until("the scheduler knows who sends it", lambda: bool(store.used))
        store.revoke(token)
        yield b'"true"}'

    answer = rig.call("POST", path, token, data=held_back(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, "have expired meanwhile" in answer.text) == (401, True)
    assert rig.call("GET", "/v1/jobs", store.make("ann")).json()["total"] == 0
