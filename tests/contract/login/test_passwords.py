"""Names and passwords, over a real server and against files as htpasswd writes them."""

import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import marathon
import pytest

from mesos_gpu.access import guesses
from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.proofs import htpasswd
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.errors import BadConfiguration
from tests.conftest import wait_until
from tests.contract.login.rig import LoginRig, TokenStore, basic, said

COST = 4  # tests need not wait


def line(name: str, password: str, cost: int = COST) -> str:
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()
    return f"{name}:{hashed.replace('$2b$', '$2y$')}\n"


def write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.chmod(0o640)
    part.rename(path)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(htpasswd, "LOOK_S", 0.0)
    path = tmp_path / "htpasswd"
    write(path, line("ann", "secret") + "# a comment\n\n" + line("bob", "söcret:x"))
    return path


@pytest.fixture
def rig(file: Path, store: TokenStore) -> Iterator[LoginRig]:
    wrong = Guesses()
    rig = LoginRig([store.prover(), Passwords(Htpasswd(file), wrong)], guesses=wrong)
    yield rig
    rig.close()


def test_a_right_password_is_a_name(rig: LoginRig) -> None:
    for _ in range(2):  # the second is remembered
        assert rig.call("GET", "/v1/jobs", headers=basic("ann", "secret")).status_code == 200
    assert rig.call("GET", "/v1/jobs", headers=basic("bob", "söcret:x")).status_code == 200


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", "Secret"),
        ("ann", ""),
        ("eve", "secret"),
        ("", "secret"),
        ("ann", "secret\0x"),
        ("ann", "s" * 73),
    ],
)
def test_a_wrong_one_is_refused_and_both_challenges_are_named(
    rig: LoginRig, name: str, password: str
) -> None:
    refused = rig.call("GET", "/v1/jobs", headers=basic(name, password))
    assert said(refused) == (401, "wrong name or password")
    challenges = refused.headers["WWW-Authenticate"]
    assert challenges == 'Bearer realm="mesos_gpu", Basic realm="mesos_gpu", charset="UTF-8"'


def test_a_page_is_not_asked_by_http_basic(rig: LoginRig) -> None:
    refused = rig.call("GET", "/v1/jobs", headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"})
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="mesos_gpu"'


def test_password_file_is_read_again_when_it_changes(rig: LoginRig, file: Path) -> None:
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "secret")).status_code == 200
    write(file, line("ann", "newer") + line("cid", "x"))
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "secret")).status_code == 401
    assert rig.call("GET", "/v1/jobs", headers=basic("bob", "söcret:x")).status_code == 401
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "newer")).status_code == 200


def test_a_file_that_others_may_write_to_lets_nobody_in(
    rig: LoginRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.chmod(0o666)
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "secret")).status_code == 401
    assert "no password is accepted" in caplog.text
    file.chmod(0o600)
    assert rig.call("GET", "/v1/jobs", headers=basic("ann", "secret")).status_code == 200


def test_guessing_is_slowed_for_the_address_and_a_right_one_is_not_looked_at_meanwhile(
    rig: LoginRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "FIRST_S", 8.0)
    statuses = [rig.call("GET", "/v1/jobs", headers=basic(f"n{i}", "x")).status_code for i in range(7)]
    assert statuses[:5] == [401] * 5
    assert statuses[6] == 429
    late = rig.call("GET", "/v1/jobs", headers=basic("ann", "secret"))
    assert late.status_code == 429
    assert int(late.headers["Retry-After"]) >= 1
    wait_until("the pause is over", lambda: _status(rig, "ann", "secret") == 200, 60)


def _status(rig: LoginRig, name: str, password: str) -> int:
    return rig.call("GET", "/v1/jobs", headers=basic(name, password)).status_code


def test_secrets_are_in_no_line_of_the_log(rig: LoginRig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert _status(rig, "ann", "wr0ng-secret") == 401
        assert _status(rig, "ann", "secret") == 200
    assert "wr0ng-secret" not in caplog.text
    assert "'ann'" in caplog.text


def test_password_hashing_is_limited_to_two_and_delays_no_other_request(
    rig: LoginRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, lock, go = 0, 0, threading.Lock(), threading.Event()
    real = bcrypt.checkpw

    def slow(password: bytes, hashed: bytes) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(30)
        with lock:
            running -= 1
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", slow)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(_status(rig, "ann", "secret"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    wait_until("two are looked at", lambda: most == 2, 30)
    begun = time.monotonic()
    assert rig.call("GET", "/v1/health").status_code == 200
    assert time.monotonic() - begun < 10
    go.set()
    for thread in threads:
        thread.join(60)
    assert statuses == [200] * 6
    assert most == 2


def test_a_name_that_is_not_there_costs_what_others_cost(
    rig: LoginRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[int] = []
    real = bcrypt.checkpw

    def noted(password: bytes, hashed: bytes) -> bool:
        costs.append(int(hashed[4:6]))
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", noted)
    assert _status(rig, "ann", "x") == _status(rig, "nobody-has-it", "x") == 401
    assert costs == [COST, COST]


# --- files


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ann:{SHA}x\n", "line 1: the text after 'ann' is not a bcrypt hash"),
        ("ann:$apr1$x$y\nbob:plain\n", "2 lines cannot be used"),
        (":x\n", "line 1: there is no valid name before a colon"),
        (line("ann", "a") + line("ann", "b"), "line 2: 'ann' has a line already"),
        (line("ann", "a").replace("$04$", "$31$"), "the cost of the hash of 'ann' is not from 4 to 16"),
    ],
    ids=["no bcrypt", "two lines", "no name", "twice", "costly"],  # salts differ in each process
)
def test_a_file_with_wrong_lines_is_refused_at_the_start(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path / "f", text)
    with pytest.raises(BadConfiguration) as error:
        Htpasswd(tmp_path / "f")
    assert told in error.value.what
    assert "$apr1$" not in error.value.what


def test_a_line_that_becomes_wrong_later_lets_nobody_in_and_the_others_count(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    passwords = Htpasswd(file)
    write(file, line("ann", "a") + "bob:plain\n")
    assert set(passwords.hashes()) == {"ann"}
    assert "line 2: the text after 'bob'" in caplog.text
    file.unlink()
    assert passwords.hashes() == {}


def test_a_file_that_others_may_write_to_is_refused(file: Path) -> None:
    file.chmod(0o620)
    with pytest.raises(BadConfiguration, match="others may have changed it"):
        Htpasswd(file)


def test_passwords_with_cheap_hashes_are_logged_as_a_warning(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Htpasswd(file)
    assert "2 passwords could be guessed quickly" in caplog.text


@pytest.mark.skipif(shutil.which("htpasswd") is None, reason="needs htpasswd of apache2-utils")
def test_password_file_of_htpasswd_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for flags in (["-B", "-c"], ["-B", "-C", "6"]):
        name = f"n{len(flags)}"
        subprocess.run(["htpasswd", "-b", *flags, str(path), name, "x y"], check=True, capture_output=True)
    path.chmod(0o600)
    lines = Htpasswd(path).hashes()
    assert all(bcrypt.checkpw(b"x y", hashed.encode()) for hashed in lines.values())


# --- Marathon's own client


def test_marathons_own_client_knows_passwords_and_tokens(rig: LoginRig, store: TokenStore) -> None:
    by_password = marathon.MarathonClient(rig.url, username="ann", password="secret")
    by_token = marathon.MarathonClient(rig.url, auth_token=store.make("root"))
    by_both = marathon.MarathonClient(rig.url, username="token", password=store.make("root"))
    for client in (by_password, by_token, by_both):
        assert client.list_apps() == []
    with pytest.raises(marathon.exceptions.MarathonHttpError) as error:
        marathon.MarathonClient(rig.url, username="ann", password="x").list_apps()
    assert error.value.status_code == 401
