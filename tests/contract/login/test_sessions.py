"""Browsers' sessions over a real server: the cookie, what it is good for, and how it ends."""

import re
from collections.abc import Iterator, Mapping
from http.cookies import Morsel, SimpleCookie
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import requests

from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.proofs import htpasswd
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.adapters.proofs.prover import Prover
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.api.login import sessions
from mesos_gpu.api.login.counts import WRONG
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from tests.contract.login.rig import LoginRig, TokenStore, said
from tests.contract.login.test_passwords import line, write
from tests.contract.rig import Rig

LOGIN = {"name": "ann", "password": "secret"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(htpasswd, "LOOK_S", 0.0)
    write(tmp_path / "htpasswd", line("ann", "secret"))
    return tmp_path / "htpasswd"


@pytest.fixture
def rig(store: TokenStore, file: Path) -> Iterator[LoginRig]:
    wrong = Guesses()
    provers: list[Prover] = [store.prover(), Passwords(Htpasswd(file), wrong)]
    rig = LoginRig(provers, guesses=wrong, proxies=Proxies([ip_network("127.0.0.0/8")]))
    yield rig
    rig.close()


def morsel(answer: requests.Response) -> Morsel[str]:
    (each,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return each


def cookie(answer: requests.Response) -> dict[str, str]:
    each = morsel(answer)
    return {"Cookie": f"{each.key}={each.value}"}


def log_in(rig: LoginRig, body: Mapping[str, Any] = LOGIN, **more: Any) -> dict[str, str]:
    answer = rig.call("POST", "/v1/session", json=body, **more)
    assert answer.status_code == 201, answer.text
    return cookie(answer)


def test_a_session_reads_by_its_cookie_and_changes_by_its_token_too(rig: LoginRig) -> None:
    session = log_in(rig)
    assert rig.call("GET", "/v1/jobs", headers=session).status_code == 200
    job = {"command": "true"}
    refused = rig.call("POST", "/v1/jobs", headers=session, json=job)
    assert said(refused)[0] == 403
    assert "X-CSRF-Token" in refused.text
    who = rig.call("GET", "/v1/whoami", headers=session).json()
    assert (who["name"], who["proof"], who["session"]) == ("ann", "password", True)
    for wrong in ("", "x", "ä"):
        headers = {**session, "X-CSRF-Token": wrong.encode()}
        assert rig.call("POST", "/v1/jobs", headers=headers, json=job).status_code == 403
    right = {**session, "X-CSRF-Token": who["csrf_token"]}
    assert rig.call("POST", "/v1/jobs", headers=right, json=job).status_code == 201


def test_session_cookie_is_hidden_from_scripts_and_other_pages(rig: LoginRig) -> None:
    each = morsel(rig.call("POST", "/v1/session", json=LOGIN))
    assert (each.key, each["path"], each["samesite"], each["httponly"]) == ("mesos_gpu", "/", "Strict", True)
    assert not each["secure"]
    assert not each["domain"]
    sealed = morsel(rig.call("POST", "/v1/session", json=LOGIN, headers={"X-Forwarded-Proto": "https"}))
    assert (sealed.key, sealed["secure"], sealed["path"]) == ("__Host-mesos_gpu", True, "/")


def test_a_cookie_that_is_shown_again_after_logging_out_is_refused(
    rig: LoginRig, store: TokenStore, caplog: pytest.LogCaptureFixture
) -> None:
    session = log_in(rig)
    csrf = rig.call("GET", "/v1/whoami", headers=session).json()["csrf_token"]
    assert rig.call("DELETE", "/v1/session", headers=session).status_code == 403
    out = rig.call("DELETE", "/v1/session", headers={**session, "X-CSRF-Token": csrf})
    assert out.status_code == 200
    assert (morsel(out).value, morsel(out)["max-age"]) == ("", "0")
    replayed = rig.call("GET", "/v1/jobs", headers=session)
    assert said(replayed) == (401, "this session has ended")
    assert morsel(replayed)["max-age"] == "0"
    assert "this session has ended; it claims to be 'ann'" in caplog.text
    counted = rig.call("GET", "/metrics/prometheus", store.make("root")).text
    assert f'mesos_gpu_wrong_proofs_total{{proof="session"}} {WRONG.read()["session"]}\n' in counted


def test_the_page_to_log_in_is_there_also_with_a_cookie_that_has_ended(rig: LoginRig) -> None:
    stale = {"Cookie": "mesos_gpu=gone"}
    for path in ("/login", "/static/style.css"):
        assert rig.call("GET", path, headers=stale).status_code == 200, path
    led = rig.call("GET", "/", headers=stale, allow_redirects=False)
    assert (led.status_code, led.headers["Location"]) == (303, "login")
    assert rig.call("POST", "/v1/session", headers=stale, json=LOGIN).status_code == 201
    assert said(rig.call("GET", "/v1/jobs", headers=stale)) == (401, "there is no such session")


def test_two_cookies_are_one_too_many(rig: LoginRig) -> None:
    session = log_in(rig)["Cookie"]
    refused = rig.call("GET", "/v1/jobs", headers={"Cookie": f"{session}; mesos_gpu=x"})
    assert said(refused) == (401, "there are several cookies mesos_gpu")


def test_a_new_login_has_a_new_cookie_and_ends_the_old_session(rig: LoginRig) -> None:
    first = log_in(rig)
    second = log_in(rig, headers=first)
    assert first != second
    assert rig.call("GET", "/v1/jobs", headers=first).status_code == 401
    assert rig.call("GET", "/v1/jobs", headers=second).status_code == 200


def test_a_session_ends_with_what_began_it(rig: LoginRig, store: TokenStore, file: Path) -> None:
    token = store.make("ann")
    by_token, by_password = log_in(rig, {"token": token}), log_in(rig)
    store.revoke(token)
    assert rig.call("GET", "/v1/jobs", headers=by_token).status_code == 401
    assert rig.call("GET", "/v1/jobs", headers=by_password).status_code == 200
    write(file, line("ann", "newer"))
    assert rig.call("GET", "/v1/jobs", headers=by_password).status_code == 401


def test_a_narrow_token_makes_a_narrow_session(rig: LoginRig, store: TokenStore) -> None:
    session = log_in(rig, {"token": store.make("root", narrowing=Narrowing(rights=("cluster:see",)))})
    assert rig.call("GET", "/v1/status", headers=session).status_code == 200
    assert rig.call("GET", "/v1/gpus", headers=session).status_code == 403
    assert rig.call("GET", "/v1/whoami", headers=session).json()["narrowing"]["rights"] == ["cluster:see"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "ann"},
        {"token": 1},
        {"token": "x", "name": "ann"},
        {"user": "ann", "password": "secret"},
        [],
    ],
)
def test_session_needs_a_valid_proof(rig: LoginRig, body: Any) -> None:
    answer = rig.call("POST", "/v1/session", json=body)
    assert answer.status_code in (400, 401, 422)
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "body", [{"name": "ann", "password": "x"}, {"name": "eve", "password": "secret"}, {"token": "mgpu_x"},
             {"token": "eyJ.x.y"}]
)  # fmt: skip
def test_a_wrong_one_begins_none_either(rig: LoginRig, body: Any) -> None:
    answer = rig.call("POST", "/v1/session", json=body)
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers


# --- the page


def test_the_form_works_without_scripts(rig: LoginRig) -> None:
    page = rig.call("GET", "/login")
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert re.findall(r"<script[^>]*>", page.text) == ['<script src="static/login.js">'], (
        "it keeps the part for later"
    )
    assert re.findall(r'name="(\w+)"', page.text) == ["viewport", "name", "password", "token"]
    form = {"Origin": rig.url, "Sec-Fetch-Site": "same-origin"}
    done = rig.call("POST", "/login", data=LOGIN, headers=form, allow_redirects=False)
    assert (done.status_code, done.headers["Location"]) == (303, "/")
    assert rig.call("GET", "/v1/jobs", headers=cookie(done)).status_code == 200


def test_a_wrong_password_is_said_on_the_page(rig: LoginRig) -> None:
    data = {"name": "<img src=x>", "password": "x"}
    answer = rig.call("POST", "/login", data=data, headers={"Origin": rig.url})
    assert answer.status_code == 401
    assert "wrong name or password" in answer.text
    assert "<img" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_session_is_not_begun_by_a_page_of_another_origin(rig: LoginRig, headers: dict[str, str]) -> None:
    answer = rig.call("POST", "/login", data=LOGIN, headers=headers)
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


def test_forms_are_taken_nowhere_else(rig: LoginRig) -> None:
    answer = rig.call("POST", "/v1/session", data=LOGIN, headers={"Origin": rig.url})
    assert answer.status_code == 415


def test_session_without_authentication_has_nothing_to_log_in_to() -> None:
    rig = Rig()
    try:
        assert rig.call("POST", "/v1/session", json=LOGIN).status_code == 409
        assert "has no authentication" in rig.call("GET", "/login").text
        who = rig.call("GET", "/v1/whoami").json()
        assert (who["name"], who["proof"], who["proofs"]) == (None, "open", [])
        assert len(who["rights"]) > 30
    finally:
        rig.close()


# --- whoami


def test_whoami_says_what_a_name_may_do_in_words(rig: LoginRig, store: TokenStore) -> None:
    who = rig.call("GET", "/v1/whoami", store.make("ann")).json()
    assert (who["name"], who["proof"], who["roles"], who["proofs"]) == (
        "ann",
        "token",
        ["user"],
        ["token", "password"],
    )
    words = {right["name"]: right["words"] for right in who["rights"]}
    assert words["job:run"] == "submit jobs to a queue, in the queue default"
    assert words["job:kill"] == "end jobs (one's own), in the queue default"
    nobody = rig.call("GET", "/v1/whoami").json()
    assert (nobody["name"], nobody["proof"], nobody["rights"]) == (None, "none", [])


# --- limits


def test_a_session_ends_after_a_while_without_use_and_after_a_day_in_any_case() -> None:
    kept = sessions.Sessions(lambda _caller: True)
    ann = Caller("ann", proof=Proof.PASSWORD)
    idle, _ = kept.begin(ann, 0.0)
    with pytest.raises(Exception, match="this session has ended"):
        kept.find(idle, sessions.IDLE_S + 1)
    used, session = kept.begin(ann, 0.0)
    now = 0.0
    while now < sessions.WHOLE_S - sessions.IDLE_S:
        now += sessions.IDLE_S / 2
        assert kept.find(used, now) is session
    with pytest.raises(Exception, match="this session has ended"):
        kept.find(used, sessions.WHOLE_S)
    assert len(kept) == 0


def test_sessions_are_limited_in_number() -> None:
    kept = sessions.Sessions(lambda _caller: True)
    first = [kept.begin(Caller("ann", proof=Proof.PASSWORD), 0.0)[0] for _ in range(sessions.MAX_OF_NAME + 5)]
    assert len(kept) == sessions.MAX_OF_NAME
    with pytest.raises(Exception, match="this session has ended"):
        kept.find(first[0], 1.0)
    assert kept.find(first[-1], 1.0).caller.name == "ann"


def test_session_store_does_not_keep_the_cookie() -> None:
    kept = sessions.Sessions(lambda _caller: True)
    text, session = kept.begin(Caller("ann", proof=Proof.PASSWORD), 0.0)
    assert len(text) >= 43
    assert text not in repr(vars(kept))
    assert session.csrf not in repr(session)
