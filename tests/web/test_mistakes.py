"""What the dashboard tells people who do what cannot be done, and when nobody answers; and how keys lead through it."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any, Final

import pytest

from mesos_gpu.adapters.proofs.proxies import USER_HEADER, Proxies, ProxyHeaders
from tests.contract.login.rig import LoginRig
from tests.contract.rig import Rig
from tests.web.browser import NEEDED, Browser, Page

pytestmark = NEEDED
APP: Final = {"id": "/shop/web", "cmd": "serve", "instances": 2, "cpus": 0.1, "mem": 64}
#: What is sent that changes something, from now on.
WATCH: Final = """(() => {
  const own = window.fetch;
  window.sent = [];
  window.fetch = (path, options = {}) => {
    if (options.method) window.sent.push([options.method, path, options.body ?? ""]);
    return own(path, options);
  };
})()"""
#: What has the focus, and whether it is seen where it is.
FOCUSED: Final = """(() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  return [one.textContent.trim() || one.id, style.outlineStyle !== "none" && box.width > 0 && box.left >= 0];
})()"""


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node()
    yield rig
    rig.close()


def sent(page: Page) -> list[list[str]]:
    return [*page.run("window.sent")]


def test_an_app_is_not_scaled_to_less_than_nothing(rig: Rig, browser: Browser) -> None:
    assert rig.call("POST", "/v2/apps", json=APP).status_code == 201
    page = browser.page(f"{rig.url}/#/apps/%2Fshop%2Fweb")
    page.when(">Scale</button>")
    page.run(WATCH)
    page.run("document.querySelector('#view .head button').focus()")
    page.press("Enter")
    for wrong in ("-1", "1.5", ""):
        page.fill("dialog[open] input[name=instances]", wrong)
        page.click("dialog[open] button", "Scale")
        assert page.run("document.querySelector('dialog[open] input:invalid').name") == "instances"
    page.press("Escape")
    assert page.run("document.querySelector('dialog[open]')") is None
    assert page.run("document.activeElement.textContent") == "Scale", "where it was before"
    assert sent(page) == []


def test_act_that_is_no_longer_allowed_names_the_right_it_needs(browser: Browser) -> None:
    proxies = Proxies([ip_network("127.0.0.0/8")])
    rig = LoginRig([ProxyHeaders(proxies)], proxies=proxies)
    try:
        job = {"name": "anns", "command": "true"}
        assert rig.call("POST", "/v1/jobs", json=job, headers={USER_HEADER: "ann"}).status_code == 201
        page = browser.page(f"{rig.url}/#/jobs", headers={USER_HEADER: "ann"})
        page.click("td button", "Kill")
        page.ask("Network.setExtraHTTPHeaders", {"headers": {USER_HEADER: "vic"}})
        page.click("dialog[open] button", "Kill")
        page.when("Kill: vic lacks the right job:kill")
        (left,) = rig.call("GET", "/v1/jobs", headers={USER_HEADER: "ann"}).json()["jobs"]
        assert not left["kill_requested"]
    finally:
        rig.close()


def test_confirmation_without_an_answer_says_what_is_open(browser: Browser) -> None:
    rig = Rig()
    try:
        job = rig.submit(name="waits", gpus=1)["id"]
        page = browser.page(f"{rig.url}/#/jobs/{job}")
        page.click("#view .head button", "Kill")
        assert page.run("document.activeElement.textContent") == "Cancel", "Enter alone ends nothing"
    finally:
        rig.close()
    page.when('<p id="status" role="status" class="bad"')
    page.click("dialog[open] button", "Kill")
    page.when(
        "Kill: the scheduler does not answer: it cannot be reached; whether it was done is seen when it answers again"
    )


def test_secrets_of_a_template_are_hidden_and_stand_in_no_address(rig: Rig, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/submit?from=vllm")
    page.when('name="hf_token"')
    fields = "[...document.querySelectorAll('form.submit input[type=password]')]"
    assert page.run(f"{fields}.map((one) => [one.name, one.autocomplete])") == [
        ["hf_token", "off"],
        ["api_key", "off"],
    ]
    page.fill("form.submit input[name=hf_token]", "hf_hunter2")
    page.fill("form.submit input[name=gpus]", "-2")
    page.click("form.submit button", "Start")
    said = page.when("/values/gpus")
    assert "hunter2" not in said, "not even where something else is wrong"
    page.fill("form.submit input[name=gpus]", "1")
    page.click("form.submit button", "Start")
    page.when('data-shown="#/apps/%2Finference%2Fvllm"')
    env = rig.call("GET", "/v2/apps/inference/vllm").json()["app"]["env"]
    assert env["HF_TOKEN"] == "hf_hunter2"
    kept = "JSON.stringify([location.href, history.state, {...sessionStorage}, {...localStorage}])"
    assert "hunter2" not in page.run(kept)
    entries: list[dict[str, Any]] = page.ask("Page.getNavigationHistory")["entries"]
    assert not [each for each in entries if "hunter2" in each["url"]]


def test_a_wrong_id_of_a_group_is_told_once_at_its_field(rig: Rig, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/submit?from=torch-distributed")
    page.fill("form.submit input[name=id]", "/No Blanks")
    page.fill("form.submit input[name=host]", "a1.example")
    page.click("form.submit button", "Start")
    page.when("/values/id")
    assert page.run("document.getElementById('told').textContent.split('No Blanks').length") == 2
    assert page.run("[...document.querySelectorAll('[aria-invalid]')].map((one) => one.name)") == ["id"]


def test_tabs_lead_through_the_page_in_its_order_and_what_has_the_focus_is_seen(
    rig: Rig, browser: Browser
) -> None:
    job = rig.submit(name="first", gpus=1)["name"]
    page = browser.page(f"{rig.url}/#/jobs")
    page.when(job)
    order: list[str] = []
    while job not in order and len(order) < 60:
        page.press("Tab")
        text, seen = page.run(FOCUSED)
        assert seen, text
        order.append(text)
    wanted = [
        "To the content",
        "mesos_gpu",
        "Overview",
        "Jobs",
        "Apps",
        "Nodes",
        "Queues",
        "Submit",
        "search",
        "all 1",
        "first",
    ]
    assert [each for each in order if each in wanted][: len(wanted)] == wanted
    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "main"
    assert page.run("location.hash") == "#/jobs", "the part that is shown stays"
