"""The dashboard in a real browser, where it is asked who looks."""

from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from mesos_gpu.adapters.proofs.proxies import USER_HEADER, Proxies, ProxyHeaders
from tests.contract.login.rig import LoginRig, TokenStore
from tests.web.browser import NEEDED, Browser, Page

pytestmark = NEEDED


@pytest.fixture
def rig() -> Iterator[LoginRig]:
    proxies = Proxies([ip_network("127.0.0.0/8")])
    rig = LoginRig([TokenStore().prover(), ProxyHeaders(proxies)], proxies=proxies)
    yield rig
    rig.close()


def log_in(page: Page, token: str) -> None:
    page.fill("input[name=token]", token)
    page.click("button", "Log in with it")


def test_login_page_is_shown_to_unknown_users(browser: Browser) -> None:
    rig = LoginRig([TokenStore().prover()])
    try:
        page = browser.page(rig.url).when("Log in with it")
    finally:
        rig.close()
    assert 'name="password"' not in page, "no passwords are taken"


@pytest.mark.long
def test_buttons_without_a_right_to_them_are_hidden(rig: LoginRig, browser: Browser) -> None:
    headers = {USER_HEADER: "ann"}
    job = {"name": "anns", "command": "true"}
    assert rig.call("POST", "/v1/jobs", json=job, headers=headers).status_code == 201
    jobs = f"{rig.url}/#/jobs"
    browser.page(jobs, headers=headers).when("anns", "Kill</button>")
    submits_nothing = '<a href="#/submit" data-part="submit" hidden="">'
    seen = browser.page(jobs, headers={USER_HEADER: "vic"}).when("anns", submits_nothing)
    assert "Kill</button>" not in seen, "nor does a viewer end anything"


def test_user_without_rights_reads_so(rig: LoginRig, browser: Browser) -> None:
    page = browser.page(rig.url, headers={USER_HEADER: "nell"}).when(
        "nell lacks the right cluster:see; ask root to bind a role that gives it"
    )
    assert "does not answer" not in page


def test_user_who_is_logged_in_is_named(rig: LoginRig, browser: Browser) -> None:
    browser.page(rig.url, headers={USER_HEADER: "root"}).when("<span>root</span>", "roles: admin")


@pytest.mark.long
def test_login_leads_back_to_the_part_that_was_wanted(browser: Browser) -> None:
    store = TokenStore()
    rig = LoginRig([store.prover()])
    try:
        page = browser.page(f"{rig.url}/#/nodes?q=a1")
        log_in(page, "wrong")
        page.when('role="alert"', "Log in with it")
        log_in(page, store.make("root"))
        page.when('data-shown="#/nodes?q=a1"', "<span>root</span>")
        page.click("#log-out")
        assert "has ended" not in page.when("Log in with it"), "it was ended on purpose"
        log_in(page, store.make("root"))
        page.when('data-shown="#/"')
    finally:
        rig.close()


@pytest.mark.long
def test_a_session_that_ends_leads_to_the_page_to_log_in_and_back(browser: Browser) -> None:
    store = TokenStore()
    rig = LoginRig([store.prover()])
    try:
        token = store.make("root")
        page = browser.page(f"{rig.url}/#/queues")
        log_in(page, token)
        page.when('data-shown="#/queues"')
        store.revoke(token)
        page.when("Log in with it", "Your session has ended. Log in again to go on where you were.")
        log_in(page, store.make("root"))
        page.when('data-shown="#/queues"')
    finally:
        rig.close()
