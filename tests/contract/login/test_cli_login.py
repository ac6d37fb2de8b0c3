"""`mesos-gpu login`, `logout` and `context`, against a real scheduler and a real issuer."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.access.claims import Rules
from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.adapters.oidc.client import Client as OidcClient
from mesos_gpu.adapters.oidc.discovery import Endpoints
from mesos_gpu.adapters.oidc.fetching import Answer, Fetcher, IssuerError
from mesos_gpu.adapters.oidc.grants import DEVICE_GRANT
from mesos_gpu.adapters.oidc.issuer import Issuer
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.adapters.proofs.tokens import Tokens
from mesos_gpu.cli.login.device import by_device
from mesos_gpu.cli.reach import contexts, logins
from mesos_gpu.cli.reach.logins import Login, NotLoggedIn
from mesos_gpu.cli.reach.origins import origin_of
from mesos_gpu.cli.reach.reach import Choice, find_reach
from mesos_gpu.errors import BadConfiguration, MesosGpuError, NotFound
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import PROGRAM, call, on_a_terminal, read_until
from tests.contract.login.rig import LoginRig, TokenStore
from tests.contract.login.test_passwords import line, write
from tests.doubles.oidc.issuer import CLIENT, OidcIssuer


@pytest.fixture
def rig(issuer: OidcIssuer, store: TokenStore) -> Iterator[LoginRig]:
    rules = Rules(issuer.url, frozenset({CLIENT}))
    rig = LoginRig([store.prover(), OidcTokens(Issuer(issuer.url, Fetcher()), rules, OidcClient(CLIENT))])
    yield rig
    rig.close()


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of settings, and nothing in the environment."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CONTEXT", "CACERT", "CERT", "KEY", "INSECURE_HTTP_TOKEN"):
        monkeypatch.delenv(f"MESOS_GPU_{name}", raising=False)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MESOS_GPU_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


def logged_in(rig: LoginRig, issuer: OidcIssuer, *words: str, **claims: object) -> str:
    """Log in by device, while a person allows it at the issuer; return what is printed."""

    def allow() -> str:
        (device,) = wait_until("a login begins", lambda: [*issuer.devices.values()])
        issuer.allow(device.user_code, **claims)
        return str(device.user_code)

    with ThreadPoolExecutor(1) as person:
        allowed = person.submit(allow)
        done = call(*words, "login", *(() if words else ("--url", rig.url)))
    assert done.exit_code == 0, done.stderr
    assert f"{issuer.url}/activate" in done.stderr
    assert allowed.result() in done.stderr
    return done.stderr


def test_a_login_by_device_is_kept_renewed_and_ended(
    rig: LoginRig, issuer: OidcIssuer, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = call("ps", "--url", rig.url)
    assert refused.exit_code == 77
    assert "mesos-gpu login" in refused.stderr
    issuer.life_s = 20  # shorter than the margin: each command renews it
    assert "as ann" in logged_in(rig, issuer)
    for path in (config / "logins.json", config / "lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.stat().st_mode) == 0o700
    first = logins.load()[origin_of(rig.url)]
    assert (first.name, first.origin) == ("ann", origin_of(rig.url))
    assert first.token not in repr(first)
    assert call("ps", "--url", rig.url).exit_code == 0
    second = logins.load()[origin_of(rig.url)]
    assert second.issued is not None
    assert first.issued is not None
    assert second.issued.refresh_token != first.issued.refresh_token
    assert list(issuer.refreshing) == [second.issued.refresh_token]
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    assert call("logout").exit_code == 0
    assert not logins.load()
    assert call("ps").exit_code == 77
    assert "not logged in" in call("logout").stderr


def test_an_ended_login_says_so_and_a_silent_issuer_does_not_end_it(
    rig: LoginRig, issuer: OidcIssuer
) -> None:
    issuer.life_s = 25
    logged_in(rig, issuer)
    issuer.broken["/token"] = None
    assert call("ps", "--url", rig.url).exit_code == 0  # the token is good for a few seconds more
    issuer.broken.clear()
    issuer.refreshing.clear()
    key = origin_of(rig.url)
    ended = logins.load()[key]
    logins.keep(key, Login(key, ended.token, "ann", time.time() - 1, issued=ended.issued))
    refused = call("ps", "--url", rig.url)
    assert refused.exit_code == 77
    assert "does not renew the login: invalid_grant" in refused.stderr
    assert "mesos-gpu login" in refused.stderr


#: Program that runs a command in two processes at once, and ends with the highest of their exit codes.
AT_ONCE: Final = """
import os, sys
import mesos_gpu.cli.client
from mesos_gpu.cli import main
def run(words):
    try:
        main(words, prog_name="mesos-gpu")
    except SystemExit as end:
        return end.code or 0
run([sys.argv[1], "--url", "http://127.0.0.1:1"])  # fails, and imports all
pids = []
for _ in range(2):
    pids.append(os.fork())
    if not pids[-1]:
        os._exit(run(sys.argv[1:]))
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""


def test_commands_at_once_renew_a_login_once(rig: LoginRig, issuer: OidcIssuer) -> None:
    logged_in(rig, issuer)
    key = origin_of(rig.url)
    kept = logins.load()[key]
    logins.keep(key, Login(key, kept.token, "ann", time.time() - 1, issued=kept.issued))
    asked = issuer.hits["/token"]
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, "ps", "--url", rig.url], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert issuer.hits["/token"] == asked + 1


def test_a_login_that_is_refused_keeps_nothing(rig: LoginRig, issuer: OidcIssuer) -> None:
    process = subprocess.Popen([*PROGRAM, "login", "--url", rig.url], stderr=subprocess.PIPE, text=True)
    with process:
        wait_until("a login begins", lambda: issuer.devices)
        (device,) = issuer.devices.values()
        issuer.deny(device.user_code)
        _out, told = process.communicate(timeout=60)
    assert process.returncode == 77
    assert "refused at the issuer's page" in told
    assert not logins.load()


class _Script(Fetcher):
    """An issuer that answers a poll as a list says."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.slept, self.now = list(answers), list[float](), 0.0
        self.begins: dict[str, object] = {"verification_uri": "https://id/activate", "interval": 2}

    def post(self, url: str, form: object, authorization: object = None) -> Answer:
        if url == "device":
            body = {"device_code": "d", "user_code": "AB", "expires_in": 100, **self.begins}
            return Answer(200, json.dumps(body).encode())
        assert isinstance(form, dict)
        assert form["grant_type"] == DEVICE_GRANT
        answer = self.answers.pop(0)
        if answer == "away":
            raise IssuerError("https://id does not answer", remedy="wait")
        body = {"id_token": "a.b.c", "expires_in": "3599"} if answer == "granted" else {"error": answer}
        return Answer(200 if answer == "granted" else 400, json.dumps(body).encode())

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


AT = Endpoints("https://id", "keys", "authorize", "token", "device", "")


def test_polls_are_as_slow_as_the_issuer_asks_for() -> None:
    script = _Script("authorization_pending", "slow_down", "authorization_pending", "away", "granted")
    granted = by_device(AT, "c", ["openid"], script, sleep=script.sleep, now=lambda: script.now)
    assert granted.id_token == "a.b.c"
    assert script.slept == [2, 2, 7, 7, 14]


@pytest.mark.parametrize(
    ("begins", "interval_s"),
    [
        ({"verification_uri": "https://id/device"}, 5.0),  # RFC 8628 has 5 s where none is said
        ({"verification_url": "https://id/device", "expires_in": 1800, "interval": 5}, 5.0),
        ({"verification_url": "https://id/device", "expires_in": "900", "interval": "7"}, 7.0),
    ],
    ids=["oidc-provider", "google", "entra 1"],
)
def test_a_login_begins_as_issuers_write_it(
    begins: dict[str, object], interval_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    script = _Script("authorization_pending", "granted")
    script.begins = begins
    granted = by_device(AT, "c", ["openid"], script, sleep=script.sleep, now=lambda: script.now)
    assert (granted.id_token, granted.expires_in) == ("a.b.c", 3599.0)
    assert script.slept == [interval_s, interval_s]
    assert "open https://id/device and type the code AB" in capsys.readouterr().err


@pytest.mark.parametrize("begins", [{}, {"verification_uri": "file:///etc/passwd"}])
def test_a_login_that_names_no_page_is_none(begins: dict[str, object]) -> None:
    script = _Script()
    script.begins = begins
    with pytest.raises(IssuerError, match="gives an invalid login page"):
        by_device(AT, "c", ["openid"], script, sleep=script.sleep, now=lambda: script.now)


def test_a_token_without_a_name_is_refused_with_what_the_operator_can_do(
    rig: LoginRig, issuer: OidcIssuer, tmp_path: Path
) -> None:
    """Issuers may give what the scope `profile` asks for at `userinfo` alone."""
    issuer.person = {"sub": "0001"}
    (tmp_path / "token").write_text(issuer.token())
    (tmp_path / "token").chmod(0o600)
    refused = call("login", "--url", rig.url, "--token-file", str(tmp_path / "token"))
    assert refused.exit_code == 77
    assert "no name in its claim preferred_username" in refused.stderr
    assert "--oidc-name-claim" in refused.stderr


@pytest.mark.parametrize("answers", [["expired_token"], ["authorization_pending"] * 60])
def test_a_code_that_nobody_types_expires(answers: list[str]) -> None:
    script = _Script(*answers)
    with pytest.raises(NotLoggedIn, match="in time"):
        by_device(AT, "c", ["openid"], script, sleep=script.sleep, now=lambda: script.now)
    assert script.now < 100


def test_another_answer_ends_a_login() -> None:
    script = _Script("invalid_client")
    with pytest.raises(MesosGpuError, match="invalid_client"):
        by_device(AT, "c", ["openid"], script, sleep=script.sleep, now=lambda: script.now)


def test_a_token_that_is_typed_is_not_shown(rig: LoginRig, store: TokenStore) -> None:
    token = store.make("bob")
    with on_a_terminal("login", "--with-token", "--url", rig.url) as (process, screen):
        seen = read_until(screen, b"Token: ")
        os.write(screen, token.encode() + b"\n")
        seen += read_until(screen, b"as bob")
        assert process.wait(60) == 0
    assert token.encode() not in seen
    assert logins.load()[origin_of(rig.url)].name == "bob"


def test_a_token_can_be_kept(rig: LoginRig, store: TokenStore, tmp_path: Path) -> None:
    done = call("login", "--with-token", "--url", rig.url, stdin=store.make("bob") + "\n")
    assert (done.exit_code, "as bob" in done.stderr) == (0, True)
    assert call("ps", "--url", rig.url).exit_code == 0
    file = tmp_path / "token"
    file.write_text(store.make("ann"))
    file.chmod(0o644)
    assert "others may have" in call("login", "--token-file", str(file), "--url", rig.url).stderr
    file.chmod(0o600)
    assert "as ann" in call("login", "--token-file", str(file), "--url", rig.url).stderr
    assert logins.load()[origin_of(rig.url)].name == "ann"
    assert call("login", "--with-token", "--url", rig.url, stdin="mgpu_wrong\n").exit_code == 77
    assert call("login", "--with-token", "--url", rig.url, stdin="two words").exit_code == 2
    assert logins.load()[origin_of(rig.url)].name == "ann"


def test_a_password_is_exchanged_for_a_token_that_the_logout_revokes(tmp_path: Path) -> None:
    file = tmp_path / "htpasswd"
    write(file, line("ann", "s3cret word"))
    wrong, rigs = Guesses(), list[LoginRig]()
    tokens = Tokens(lambda id: rigs[0].daemon.tokens.get(id), lambda *_: None)
    rig = LoginRig([tokens, Passwords(Htpasswd(file), wrong)], guesses=wrong, clock=SystemClock())
    rigs.append(rig)
    try:
        refused = call("login", "--url", rig.url, stdin="ann\nwrong\n")
        assert (refused.exit_code, logins.load()) == (77, {})
        done = call("login", "--url", rig.url, stdin="ann\ns3cret word\n")
        assert (done.exit_code, "as ann" in done.stderr) == (0, True), done.output
        assert "s3cret" not in done.output
        (kept,) = logins.load().values()
        assert rig.call("GET", "/v1/jobs", kept.token).status_code == 200
        assert call("ps", "--url", rig.url).exit_code == 0
        call("login", "--url", rig.url, stdin="ann\ns3cret word\n")
        assert len(rig.daemon.tokens) == 1  # the one before is revoked
        assert call("logout", "--url", rig.url).exit_code == 0
        assert not rig.daemon.tokens
        assert rig.call("GET", "/v1/jobs", kept.token).status_code == 401
    finally:
        rig.close()


class _Listener:
    """Writes down what is sent to it; a scheduler of somebody else."""

    def __init__(self, redirect: str = "") -> None:
        self.seen: list[str | None] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.seen.append(self.headers.get("Authorization"))
                self.send_response(307 if redirect else 404)
                if redirect:
                    self.send_header("Location", redirect + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def listener() -> Iterator[_Listener]:
    listener = _Listener()
    yield listener
    listener.close()


def test_a_login_is_sent_to_its_scheduler_alone(
    rig: LoginRig, store: TokenStore, listener: _Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = store.make("ann")
    call("login", "--with-token", "--url", rig.url, stdin=token)
    call("ps", "--url", listener.url)
    call("context", "add", "x", "--url", rig.url)
    call("login", "--with-token", stdin=token)
    assert call("ps").exit_code == 0
    call("context", "add", "x", "--url", listener.url, "--force")  # the login of that name was for another
    call("ps")
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_TOKEN", token)
    assert call("ps").exit_code == 0
    call("ps", "--url", listener.url)
    call("--context", "x", "ps")
    assert len(listener.seen) >= 4
    assert {*listener.seen} == {None}


def test_a_redirection_is_not_followed(rig: LoginRig, store: TokenStore, listener: _Listener) -> None:
    away = _Listener(listener.url)
    try:
        monkey = {**os.environ, "MESOS_GPU_URL": away.url, "MESOS_GPU_TOKEN": store.make("ann")}
        done = subprocess.run([*PROGRAM, "ps"], env=monkey, capture_output=True, timeout=60, check=False)
    finally:
        away.close()
    assert done.returncode == 76
    assert away.seen
    assert listener.seen == []


def test_login_command_sends_no_secret_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    away = "http://192.0.2.1:8080"
    logins.keep(origin_of(away), Login(origin_of(away), "t"))
    for words in (["ps"], ["login", "--with-token"], ["login"], ["login", "--password"]):
        refused = call(*words, "--url", away)
        assert refused.exit_code == 78, refused.output
        assert "could be read on the network" in refused.stderr
    assert find_reach(Choice(away, insecure=True)).renew
    monkeypatch.setenv("MESOS_GPU_INSECURE_HTTP_TOKEN", "1")
    assert find_reach(away).renew
    monkeypatch.delenv("MESOS_GPU_INSECURE_HTTP_TOKEN")
    with pytest.raises(BadConfiguration):
        find_reach(away)


def test_the_order_of_what_says_where_the_scheduler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        assert call("context", "add", name, "--url", f"https://{name}").exit_code == 0
    assert find_reach().url == "https://a"
    assert call("context", "use", "c").exit_code == 0
    assert (find_reach().url, find_reach().context) == ("https://c", "c")
    monkeypatch.setenv("MESOS_GPU_CONTEXT", "b")
    assert find_reach().url == "https://b"
    monkeypatch.setenv("MESOS_GPU_URL", "https://u")
    assert (find_reach().url, find_reach().context) == ("https://u", "")
    assert find_reach(Choice(context="a")).url == "https://a"
    assert find_reach(Choice("https://o")).url == "https://o"
    with pytest.raises(BadConfiguration, match="both choose"):
        find_reach(Choice("https://o", "a"))
    with pytest.raises(NotFound, match="existing contexts: a, b, c"):
        find_reach(Choice(context="d"))


def test_a_context_brings_its_own_files_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pem = tmp_path / "ca.pem"
    pem.touch()
    call("context", "add", "a", "--url", "https://a", "--cacert", str(pem))
    monkeypatch.setenv("MESOS_GPU_CACERT", "/other")
    monkeypatch.setenv("MESOS_GPU_CERT", "/cert")
    reach = find_reach()
    assert (reach.cacert, reach.cert) == (pem, None)
    assert find_reach("https://b").cacert == Path("/other")


def test_contexts_are_listed_shown_and_removed(rig: LoginRig, store: TokenStore) -> None:
    assert "No contexts" not in call("context", "list").stdout  # not a terminal: a table without rows
    call("context", "add", "lab", "--url", rig.url)
    call("context", "add", "other", "--url", "https://other")
    assert call("context", "add", "lab", "--url", "https://x").exit_code == 73
    call("login", "--with-token", stdin=store.make("ann"))
    rows = json.loads(call("context", "list", "--json").stdout)["contexts"]
    assert [(row["name"], row["current"], row["login"]) for row in rows] == [
        ("lab", True, "ann"),
        ("other", False, None),
    ]
    shown = json.loads(call("context", "show", "--json").stdout)
    assert (shown["context"], shown["url"], shown["login"]) == ("lab", rig.url, "ann")
    assert "ann" in call("context", "show").stdout
    assert shown["by"] == "the current context"
    removed = call("context", "remove", "lab")
    assert (removed.exit_code, "there is no current context now" in removed.stderr) == (0, True)
    assert not logins.load()
    assert contexts.load().current == ""
    assert call("context", "use", "lab").exit_code == 66
    assert call("context", "add", "a b", "--url", "https://x").exit_code == 2
    assert call("context", "add", "nowhere").exit_code == 2


def test_files_that_others_can_read_or_have_made_are_not_used(
    rig: LoginRig, store: TokenStore, config: Path, tmp_path: Path
) -> None:
    call("login", "--with-token", "--url", rig.url, stdin=store.make("ann"))
    path = config / "logins.json"
    path.chmod(0o640)
    refused = call("ps", "--url", rig.url)
    assert (refused.exit_code, "others may have read it" in refused.stderr) == (78, True)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert call("ps", "--url", rig.url).exit_code == 78
    path.unlink()
    path.write_text("secret-but-damaged")
    path.chmod(0o600)
    damaged = call("ps", "--url", rig.url)
    assert damaged.exit_code == 65
    assert "secret-but" not in damaged.output


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a", "https://A:443/x", True),
        ("https://a", "https://a.", True),
        ("http://a", "https://a", False),
        ("http://a:80", "http://a:8080", False),
        ("http://[::1]:1", "http://[::1]:2", False),
        ("unix:/a", "unix:/b", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_login_command_without_authentication_has_nothing_to_do() -> None:
    rig = LoginRig([])
    try:
        done = call("login", "--url", rig.url)
    finally:
        rig.close()
    assert (done.exit_code, "runs without authentication" in done.stderr) == (0, True)
