"""Browsers log in at an issuer: code, PKCE, state and nonce, over real servers."""

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.claims import Rules
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
from mesos_gpu.adapters.oidc.client import Client
from mesos_gpu.adapters.oidc.fetching import Fetcher
from mesos_gpu.adapters.oidc.issuer import Issuer
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from tests.contract.login.rig import LoginRig, TokenStore
from tests.doubles.oidc.issuer import CLIENT, OidcIssuer

CROSS: dict[str, str] = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


@pytest.fixture(params=["", "a+s3cret/with%odd:chars&="], ids=["public", "confidential"])
def issuer(request: pytest.FixtureRequest) -> Iterator[OidcIssuer]:
    with OidcIssuer(secret=request.param) as issuer:
        yield issuer


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[AuditLog]:
    trail = AuditLog(AuditSettings(tmp_path / "audit"))
    yield trail
    trail.close()


@pytest.fixture
def rig(issuer: OidcIssuer, trail: AuditLog) -> Iterator[LoginRig]:
    # The command line's tokens are for another audience; a browser's are for the client itself.
    rules = Rules(issuer.url, frozenset({"api"}))
    prover = OidcTokens(Issuer(issuer.url, Fetcher()), rules, Client(CLIENT, issuer.secret))
    rig = LoginRig([TokenStore().prover(), prover], audit=trail)
    yield rig
    rig.close()


def cookies_of(answer: requests.Response) -> dict[str, str]:
    return {name: each.value for name, each in SimpleCookie(answer.headers.get("Set-Cookie", "")).items()}


def header(cookies: dict[str, str]) -> dict[str, str]:
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}


class Browser:
    """Goes to the issuer, and comes back."""

    def __init__(self, rig: LoginRig) -> None:
        self.rig = rig
        answer = rig.call("GET", "/login/oidc", headers=CROSS, allow_redirects=False)
        assert answer.status_code == 303, answer.text
        self.set_cookie = answer.headers["Set-Cookie"]
        self.cookies, self.asked = cookies_of(answer), answer.headers["Location"]

    def at_issuer(self) -> dict[str, str]:
        """What the issuer sends it back with."""
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(self.asked, allow_redirects=False, timeout=60)
        where = urlsplit(answer.headers["Location"])
        assert f"{where.scheme}://{where.netloc}{where.path}" == f"{self.rig.url}/login/oidc/callback"
        return {name: values[0] for name, values in parse_qs(where.query).items()}

    def back(self, cookies: dict[str, str] | None = None, /, **query: str) -> requests.Response:
        """Come back; without `query`, with what the issuer says."""
        headers = {**CROSS, **header(self.cookies if cookies is None else cookies)}
        return self.rig.call(
            "GET", f"/login/oidc/callback?{urlencode(query or self.at_issuer())}", headers=headers
        )


def whoami(rig: LoginRig, answer: requests.Response) -> dict[str, Any]:
    return dict(rig.call("GET", "/v1/whoami", headers=header(cookies_of(answer))).json())


def test_oidc_browser_login_is_on_record(rig: LoginRig, trail: AuditLog) -> None:
    name = whoami(rig, Browser(rig).back())["name"]
    (_, record), *_ = trail.search(Asked(), limit=1, cursor="").records
    assert (record.what, record.status) == ("GET /login/oidc/callback", 200)
    assert record.on == (f"name:{name}",)


def test_a_browser_logs_in_at_the_issuer(rig: LoginRig) -> None:
    assert "login/oidc" in rig.call("GET", "/login").text
    browser = Browser(rig)
    query = parse_qs(urlsplit(browser.asked).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [f"{rig.url}/login/oidc/callback"]
    assert "SameSite=Lax" in browser.set_cookie
    assert "HttpOnly" in browser.set_cookie
    (secret,) = browser.cookies.values()
    assert secret not in browser.asked
    done = browser.back()
    assert done.status_code == 200, done.text
    assert 'http-equiv="refresh"' in done.text
    assert "SameSite=Strict" in done.headers["Set-Cookie"]
    told = whoami(rig, done)
    assert (told["name"], told["proof"], told["session"]) == ("ann", "oidc", True)
    assert told["groups"] == ["watchers"]


def test_a_secret_goes_the_way_that_the_issuer_publishes(rig: LoginRig, issuer: OidcIssuer) -> None:
    issuer.changes["token_endpoint_auth_methods_supported"] = ["client_secret_post", "private_key_jwt"]
    assert Browser(rig).back().status_code == 200


@pytest.mark.parametrize("issuer", ["s3cret"], indirect=True)
def test_a_secret_that_the_issuer_does_not_know_is_no_guess_of_the_browser(
    rig: LoginRig, issuer: OidcIssuer
) -> None:
    issuer.secret = "another"
    for _ in range(8):  # more than guesses that are free
        refused = Browser(rig).back()
        assert (refused.status_code, "refuses the scheduler: invalid_client" in refused.text) == (401, True)


def test_an_answer_is_good_once_and_in_its_own_browser(rig: LoginRig) -> None:
    browser = Browser(rig)
    answer = browser.at_issuer()
    for refused in (
        browser.back({}, **answer),
        browser.back(Browser(rig).cookies, **answer),
        browser.back(**{**answer, "state": "x"}),
        browser.back(code=answer["code"]),
        browser.back(**{**answer, "iss": "https://other"}),
        browser.back(error="access_denied", state=answer["state"]),
    ):
        assert refused.status_code == 401, refused.text
        assert "Set-Cookie" not in refused.headers
    assert browser.back(**answer).status_code == 200
    again = browser.back(**answer)
    assert (again.status_code, "does not accept the code" in again.text) == (401, True)


def test_a_code_of_another_login_has_another_verifier_and_nonce(rig: LoginRig, issuer: OidcIssuer) -> None:
    mine, other = Browser(rig), Browser(rig)
    stolen = other.at_issuer()["code"]
    injected = mine.back(code=stolen, state=mine.at_issuer()["state"])
    assert (injected.status_code, "does not accept the code" in injected.text) == (401, True)
    browser = Browser(rig)
    answer = browser.at_issuer()
    issuer.codes[answer["code"]]["nonce"] = "another"
    refused = browser.back(**answer)
    assert (refused.status_code, "belongs to another log-in" in refused.text) == (401, True)


def test_guesses_at_codes_are_slowed(rig: LoginRig, issuer: OidcIssuer) -> None:
    browser = Browser(rig)
    state = browser.at_issuer()["state"]
    codes = [browser.back(code=f"c{number}", state=state).status_code for number in range(10)]
    assert codes[0] == 401
    assert codes[-1] == 429
    assert issuer.hits["/token"] < 10


def test_oidc_browser_login_tells_why_the_issuer_refuses(rig: LoginRig, issuer: OidcIssuer) -> None:
    browser = Browser(rig)
    issuer.broken["/token"] = None
    refused = browser.back()
    assert (refused.status_code, "does not answer" in refused.text) == (401, True)
    issuer.broken.clear()
    issuer.person = {"sub": "0001"}
    refused = Browser(rig).back()
    assert (refused.status_code, "no name" in refused.text) == (401, True)


def test_a_session_of_a_browser_changes_nothing_by_its_cookie_alone(rig: LoginRig) -> None:
    done = Browser(rig).back()
    session = header(cookies_of(done))
    job = {"command": "true"}
    assert rig.call("POST", "/v1/jobs", json=job, headers=session).status_code == 403
    csrf = whoami(rig, done)["csrf_token"]
    assert (
        rig.call("POST", "/v1/jobs", json=job, headers={**session, "X-CSRF-Token": csrf}).status_code == 201
    )


def test_oidc_browser_page_is_missing_without_an_issuer() -> None:
    store = TokenStore()
    rig = LoginRig([store.prover()])
    try:
        assert rig.call("GET", "/login/oidc").status_code == 401
        assert rig.call("GET", "/login/oidc", store.make("ann")).status_code == 404
        assert "login/oidc" not in rig.call("GET", "/login").text
    finally:
        rig.close()


def test_oidc_browser_page_says_that_the_issuer_is_away(issuer: OidcIssuer, rig: LoginRig) -> None:
    issuer.broken["/.well-known/openid-configuration"] = None
    answer = rig.call("GET", "/login/oidc", allow_redirects=False)
    assert (answer.status_code, "are not available" in answer.text) == (503, True)
