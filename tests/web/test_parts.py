"""All parts of the dashboard as people meet them: on a phone, with a keyboard, in the dark, and what they do there."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.conftest import wait_until
from tests.web.browser import (
    JUDGE,
    NEEDED,
    PHONE,
    STATES,
    Browser,
    Page,
    each_look,
    judged,
    not_seen,
    too_wide,
)
from tests.web.scene import Scene, Whole
from tests.web.screenshots import parts

pytestmark = NEEDED


@pytest.fixture(scope="module")
def shown() -> Iterator[Scene]:
    """What is only looked at."""
    scene = Whole()
    yield scene
    scene.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


@each_look
def test_axe_has_nothing_against_any_part(shown: Scene, browser: Browser, look: str) -> None:
    page = browser.page(shown.url)
    assert judged(page, parts(shown), look) == {}
    page.visit("#/nodes/a3.example")
    page.click("#view .head button", "Drain")
    page.when("Hours until")
    assert page.run(JUDGE) == []


@pytest.mark.long
def test_parts_are_no_wider_than_a_phone(shown: Scene, browser: Browser) -> None:
    assert too_wide(browser.page(shown.url), parts(shown)) == {}


@pytest.mark.long
def test_a_phone_shows_each_state_without_scrolling_sideways_and_cuts_nothing_off(
    shown: Scene, browser: Browser
) -> None:
    page = browser.page(shown.url)
    assert not_seen(page, parts(shown)) == {}
    page.visit("#/jobs")
    assert len(page.run(STATES)) == 7


@pytest.mark.long
def test_heads_of_tables_are_seen_on_a_phone_while_they_have_the_focus(
    shown: Scene, browser: Browser
) -> None:
    page = browser.page(shown.url)
    page.size(PHONE)
    page.visit("#/nodes")
    height = "document.querySelector('thead').getBoundingClientRect().height"
    assert page.run(height) <= 1
    page.run("document.querySelector('thead button').focus()")
    assert page.run(height) > 15
    assert page.run("document.documentElement.scrollWidth") == PHONE


def test_keys_lead_to_parts_search_and_from_card_to_card(shown: Scene, browser: Browser) -> None:
    page = browser.page(shown.url)
    page.when("Next in the queue")
    page.run("document.querySelector('a.cell').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.press(key)
    assert focused(page, "title") == "a2.example:0 drained"
    page.run("document.activeElement.blur()")
    page.press("j")
    page.when('data-shown="#/jobs"')
    page.press("/")
    assert focused(page, "id") == "search"
    for letter in "ddp":
        page.press(letter)
    page.when("1 row", 'data-shown="#/jobs?q=ddp"')
    assert focused(page, "id") == "search", "what is typed into stays while the list is made anew"


def test_overview_shows_allocation_beside_utilization_over_a_day(shown: Scene, browser: Browser) -> None:
    page = browser.page(shown.url)
    page.when(
        "<dt>Allocated</dt>", "<dt>Utilization</dt>", "<dt>Power</dt>", 'aria-label="Power over the last 24 h'
    )
    label = page.run("document.querySelector('#view .chart svg').getAttribute('aria-label')")
    past = shown.call("GET", "/v1/use").json()
    used, total, busy = (
        next(value for value in reversed(past[name]) if value is not None)
        for name in ("gpus_used", "gpus_total", "busy_pct")
    )
    assert f"allocated {round(100 * used / total)} % in the last 5 min" in label
    assert f"utilization {round(busy)} % in the last 5 min" in label
    assert {"allocated", "utilization"} == set(
        page.run(
            "[...document.querySelectorAll('#view .chart polyline')].map((each) => each.className.baseVal)"
        )
    ) - {""}


def focused(page: Page, attribute: str) -> Any:
    return page.run(f"document.activeElement.getAttribute('{attribute}')")


@pytest.mark.long
def test_the_focus_stays_while_what_is_shown_changes(scene: Scene, browser: Browser) -> None:
    page = browser.page(scene.url)
    page.when("Card a1.example:7 is sick")
    page.run("document.querySelector('[title^=\"a1.example:3 \"]').focus()")
    assert scene.call("POST", "/v1/gpus/GPU-a1-2/drain", json={"reason": "fan"}).ok
    page.when("Card a1.example:2 is drained")
    assert str(focused(page, "title")).startswith("a1.example:3 ")


def job(scene: Scene, job_id: str) -> dict[str, Any]:
    return dict(scene.call("GET", f"/v1/jobs/{job_id}").json())


def test_a_job_is_killed_after_a_question_only(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/jobs/{scene.gang}")
    page.click("#view button", "Kill")
    page.click("dialog[open] button", "Cancel")
    assert not job(scene, scene.gang)["kill_requested"]
    page.click("#view button", "Kill")
    page.click("dialog[open] button", "Kill")
    page.when("is asked to end")
    page.when('<span class="state killed">')
    assert job(scene, scene.gang)["state"] == "killed"


def card(scene: Scene, uuid: str) -> dict[str, Any]:
    return dict(scene.call("GET", f"/v1/gpus/{uuid}").json())


def test_cards_are_drained_given_back_and_reset(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/cards/GPU-a1-4")
    page.click("#view button", "Drain")
    page.fill("dialog[open] input[name=reason]", "a new fan")
    page.fill("dialog[open] input[name=hours]", "2")
    page.click("dialog[open] button", "Drain")
    page.when('<span class="state drained">', "Undrain</button>")
    drain = card(scene, "GPU-a1-4")["drain"]
    assert drain["reason"] == "a new fan"
    assert drain["deadline_at"] - drain["since"] == pytest.approx(7200)
    page.click("#view button", "Undrain")
    page.click("dialog[open] button", "Undrain")
    page.when('<span class="state ok">')
    page.click("#view button", "Reset")
    page.fill("dialog[open] input[name=reason]", "it hangs")
    page.click("dialog[open] button", "Reset")
    page.when("<dt>Reset</dt>")
    assert card(scene, "GPU-a1-4")["reset"]["reason"] == "it hangs"


def test_nodes_are_drained_and_given_back(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/nodes/a3.example")
    page.click("#view .head button", "Drain")
    page.fill("dialog[open] input[name=reason]", "it moves")
    page.click("dialog[open] button", "Drain")
    page.when('<span class="state drained">drained</span></h2>')
    page.click("#view .head button", "Undrain")
    page.click("dialog[open] button", "Undrain")
    page.when('<span class="state up">up</span></h2>')
    assert card(scene, "GPU-a3-3")["drain"] is None


def app(scene: Scene) -> dict[str, Any]:
    return dict(scene.call("GET", "/v2/apps/shop/web").json()["app"])


def deployments(scene: Scene) -> list[str]:
    return [each["id"] for each in scene.call("GET", "/v2/deployments").json()]


def one_after(scene: Scene, act: Callable[[], None], before: list[str]) -> None:
    """Do something, and wait until another deployment is under way."""
    act()
    wait_until("another deployment is under way", lambda: set(deployments(scene)) - set(before))


def test_deployments_are_stopped_and_rolled_back_and_apps_scaled(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/apps/%2Fshop%2Fweb")
    page.click("#view .deployment button", "Stop here")
    page.click("dialog[open] button", "Stop here")
    wait_until("no deployment is under way", lambda: not deployments(scene))
    wait_until("nor shown", lambda: page.run("document.querySelector('#view .deployment') === null"))

    def scale() -> None:
        page.click("#view .head button", "Scale")
        page.fill("dialog[open] input[name=instances]", "7")
        page.click("dialog[open] button", "Scale")

    one_after(scene, scale, [])
    assert app(scene)["instances"] == 7
    page.click("#view .deployment button", "Roll back")
    page.click("dialog[open] button", "Roll back")
    wait_until("it is rolled back", lambda: app(scene)["instances"] == 5)


@pytest.mark.long
def test_apps_are_restarted_returned_to_a_version_and_stopped(scene: Scene, browser: Browser) -> None:
    (first,) = deployments(scene)
    assert scene.call("DELETE", f"/v2/deployments/{first}?force=true").status_code == 202
    scene.clock.time += 5
    assert scene.call("PUT", "/v2/apps/shop/web", json={"cmd": "other"}).ok
    (second,) = deployments(scene)
    assert scene.call("DELETE", f"/v2/deployments/{second}?force=true").status_code == 202
    page = browser.page(f"{scene.url}/#/apps/%2Fshop%2Fweb")

    def back() -> None:
        page.click("#view td button", "Return to it")
        page.click("dialog[open] button", "Return to it")

    one_after(scene, back, [])
    assert app(scene)["cmd"] == "serve"
    assert scene.call("DELETE", f"/v2/deployments/{deployments(scene)[0]}?force=true").status_code == 202

    def restart() -> None:
        page.click("#view .head button", "Restart")
        page.click("dialog[open] button", "Restart")

    one_after(scene, restart, [])
    assert scene.call("DELETE", f"/v2/deployments/{deployments(scene)[0]}?force=true").status_code == 202
    page.click("#view .head button", "Stop")
    page.click("dialog[open] button", "Stop")
    wait_until("it is stopped", lambda: app(scene)["instances"] == 0)


def test_a_job_is_submitted_from_a_form_and_what_is_wrong_is_told(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/submit")
    page.fill("label.fill select", "Training on several nodes")
    page.fill("form.submit input[name=name]", "Not a name!")
    page.click("form.submit button", "Submit")
    page.when("/name must")
    page.fill("form.submit input[name=name]", "from-the-form")
    page.click("form.submit button", "Submit")
    page.when('data-shown="#/jobs/from-the-form')
    (made,) = scene.call("GET", "/v1/jobs?named=from-the-form").json()["jobs"]
    assert (made["tasks"], made["gpus"], made["max_attempts"]) == (2, 1, 3)


def test_form_shows_an_error_at_its_field(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/submit")
    page.fill("form.submit input[name=name]", "Not a name!")
    page.fill("form.submit input[name=command]", "true")
    page.click("form.submit button", "Submit")
    page.when('<span class="wrong bad">must')
    assert page.run(WRONG) == ["name"]
    assert focused(page, "name") == "name"


WRONG: Final = "[...document.querySelectorAll('[aria-invalid]')].map((each) => each.name)"


@pytest.mark.long
def test_an_app_is_started_from_a_template(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/submit")
    page.when('<optgroup label="Groups of apps">')
    page.fill("label.fill select", "jupyter")
    page.when('data-shown="#/submit?from=jupyter"', "Notebooks are in the volume", "Memory, MiB.")
    page.fill("form.submit input[name=id]", "/No Blanks")
    page.fill("form.submit input[name=gpus]", "5000")
    page.click("form.submit button", "Start")
    page.when("/values/gpus")
    assert page.run(WRONG) == ["id", "gpus"]
    page.fill("form.submit input[name=id]", "/notebooks/ann")
    page.fill("form.submit input[name=gpus]", "2")
    page.fill("form.submit input[name=models]", "A100, H100")
    page.click("form.submit button", "Start")
    page.when('data-shown="#/apps/%2Fnotebooks%2Fann"', "/notebooks/ann is created.")
    app = scene.call("GET", "/v2/apps/notebooks/ann").json()["app"]
    assert (app["gpus"], app["gpu"]["models"], app["mem"]) == (2, ["A100", "H100"], 16384)
    page.visit("#/submit?from=jupyter")
    page.fill("form.submit input[name=id]", "/notebooks/ann")
    page.click("form.submit button", "Start")
    page.when("An app with id [/notebooks/ann] already exists.")


def test_a_group_is_started_from_a_template_that_needs_values(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/submit?from=torch-distributed")
    page.when("Host (needed)", 'placeholder="as gpu-1.example.com"')
    page.click("form.submit button", "Start")
    assert page.run("document.querySelector('input:invalid').name") == "host"
    assert not scene.call("GET", "/v2/groups/train").ok, "nothing was sent"
    page.fill("form.submit input[name=host]", "a1.example")
    page.click("form.submit button", "Start")
    page.when('data-shown="#/apps?q=%2Ftrain%2Ftorch"', '<a href="#/apps/%2Ftrain%2Ftorch%2Fworker">')
    apps = scene.call("GET", "/v2/groups/train/torch").json()["apps"]
    assert sorted(each["id"] for each in apps) == ["/train/torch/store", "/train/torch/worker"]


def test_form_begins_with_the_values_of_the_address(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/submit?from=vllm")
    page.when('name="model"')
    selected = "document.querySelector('label.fill select').value"
    assert page.run(selected) == "vllm"
    page.visit("#/submit")
    assert page.run(selected) == ""
    page.visit("#/submit?from=none")
    page.when("There is no none to start from.")
    assert page.run("document.querySelector('form.submit')") is None


@pytest.mark.long
def test_refusal_is_shown_with_its_reason_and_the_page_goes_on(scene: Scene, browser: Browser) -> None:
    page = browser.page(f"{scene.url}/#/jobs/{scene.gang}")
    page.when("Why it waits", "Place in the queue: 1")
    page.click("#view button", "Kill")
    scene.call("DELETE", f"/v1/jobs/{scene.gang}")
    page.click("dialog[open] button", "Kill")
    page.when('<span class="state killed">')
    page.visit("#/jobs/none-such")
    page.when("Not found", "Go to the overview")
    page.click("#view a", "Go to the overview")
    page.when("Next in the queue")
