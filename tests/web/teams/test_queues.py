"""Queues on the dashboard: the tree of them, and a page of each."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from mesos_gpu.model.access.caller import ANYBODY, Caller, Proof
from tests.contract.rig import Rig
from tests.web.browser import NEEDED, Browser, Page, each_look, judged, not_seen, too_wide
from tests.web.screenshots import SHARED
from tests.web.teams.tenants import Tenants

pytestmark = NEEDED
CALLER: Final = "X-Name"
#: The queues that the tree shows, and whether each is open; null: nothing is below it.
TREE: Final = """[...document.querySelectorAll('#view .below')].map((each) => [
  each.querySelector('a').title, each.querySelector('button.fold')?.getAttribute('aria-expanded') ?? null])"""
LEAVES: Final = 500
PARENTS: Final = 20


async def named(scope: Any) -> Caller:
    """Who the header says; without one nobody is asked."""
    name = dict(scope["headers"]).get(CALLER.lower().encode(), b"").decode()
    return Caller(name, proof=Proof.TOKEN) if name else ANYBODY


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    """What is only looked at, but for what a test undoes."""
    scene = Tenants(identify=named)
    yield scene
    scene.close()


def test_tree_shows_allocation_quota_and_waiting_jobs(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(f"{tenants.url}/#/queues")
    page.when('title="research/vision"')
    row = page.run(ROW % "research/vision")
    assert row[1:] == ["", "16", "8", "8", "", "13.333", "none", "8", "1", row[-1]]
    assert row[-1].endswith("h"), "it waits for days"
    assert page.run(BAR % "research/vision").startswith(
        "16 allocated, 8 of it over quota, quota 8, fair share 13.333"
    )
    assert page.run(ROW % "teaching")[5] == "3", "its quota is lent"
    assert page.run(ROW % "research")[9] == "1", "the jobs of all below it"


ROW: Final = """[...document.querySelector('#view .below a[title="%s"]').closest('tr').cells]
  .map((each) => each.textContent)"""
BAR: Final = (
    """document.querySelector('#view .below a[title="%s"]').closest('tr').querySelector('.bar').ariaLabel"""
)


@pytest.mark.long
def test_queues_are_opened_and_closed_by_keys_and_by_the_address(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(f"{tenants.url}/#/queues")
    page.when('title="research/vision"')
    page.run("document.querySelector('[data-path=research]').focus()")
    page.press("ArrowLeft")
    page.when('data-shown="#/queues?turned=research"')
    assert page.run(TREE) == [
        ["default", None], ["production", None], ["research", "false"], ["teaching", "true"], ["teaching/exam", None],
    ]  # fmt: skip
    page.press("ArrowDown")
    assert page.run("document.activeElement.dataset.path") == "teaching"
    page.press("ArrowUp")
    page.press("ArrowRight")
    page.when('data-shown="#/queues"', 'title="research/vision"')
    assert page.run("document.activeElement.dataset.path") == "research", "the focus stays"
    other = browser.page(f"{tenants.url}/#/queues?all=false&turned=teaching")
    other.when('title="teaching/exam"')
    assert [path for path, _ in other.run(TREE)] == [
        "default", "production", "research", "teaching", "teaching/exam",
    ]  # fmt: skip


def test_a_queue_has_a_page_that_says_why(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(f"{tenants.url}/#/queues/research%2Fvision")
    page.when("16 GPUs allocated, quota 8, 8 over quota; fair share 13.333; 8 requested by waiting jobs.")
    page.when("queue research may hold 28 GPUs, and holds 23")
    page.when(
        "the fair share of research, 20 GPUs, is divided. The queue gets 8 of its quota of 8 and 5.333 of the 8"
    )
    page.when("GPUs that are left over (weight 2 of 4, 50 %). Its fair share is 13.333.")
    page.when(
        "of 2600 GPU hours used (",
        "With what runs now (16 GPUs of cost 1) it is used up",
        "then its jobs only run over quota.",
    )
    page.when("<dt>User bob</dt><dd>GPUs at once: 4</dd>", "<dt>Each other user</dt>")
    (stopped,) = page.run(TABLE % "Preempted jobs of this queue")
    assert stopped[0].startswith("diffusion-")
    assert stopped[2].startswith("ended ")
    assert stopped[3].endswith(" of production")
    assert problems(page) == []


TABLE: Final = """[...document.querySelectorAll('[aria-label="%s"] tbody tr')].map((row) =>
  [...row.cells].map((each) => each.textContent))"""


def problems(page: Page) -> list[str]:
    return [each for each in page.console if "/changes" not in each]


@each_look
def test_axe_has_nothing_against_pages_of_queues(tenants: Tenants, browser: Browser, look: str) -> None:
    assert judged(browser.page(tenants.url), SHARED, look) == {}


@pytest.mark.long
def test_a_phone_shows_all_of_a_queue(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(tenants.url)
    assert too_wide(page, SHARED) == {}
    assert not_seen(page, SHARED) == {}


def test_queue_page_names_the_job_that_others_were_stopped_for(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(f"{tenants.url}/#/queues/teaching")
    page.when("Jobs of other queues that were preempted for this queue")
    rows = page.run(TABLE % "Jobs of other queues that were preempted for this queue")
    assert {row[1] for row in rows} == {"research/students"}
    assert {row[4].startswith("grading-") for row in rows} == {True}
    page.when("Below it", '<a href="#/queues/teaching%2Fexam">exam</a>')


def test_the_curve_of_a_budget_ends_at_what_is_used_and_leads_on_at_what_runs(
    tenants: Tenants, browser: Browser
) -> None:
    page = browser.page(f"{tenants.url}/#/queues/research%2Fvision")
    page.when("the line across: 2600 hours")
    shown = page.run(
        "[...document.querySelectorAll('.curve polyline')].map((each) => "
        "each.getAttribute('points').split(' ').map((point) => point.split(',').map(Number)))"
    )
    (known, forecast) = shown
    assert known[0] == [0, 200], "nothing is used when it begins"
    assert known == sorted(known, key=lambda point: (point[0], -point[1])), "it only rises"
    assert len(known) >= 6, "a point for each day"
    assert (forecast[0], forecast[1][0]) == (known[-1], 1000)
    (budget,) = tenants.call("GET", "/v1/budgets").json()["budgets"]
    now, top = known[-1][0] / 1000, forecast[1][1]
    length_s = budget["ends"] - budget["begins"]
    at_end = budget["used_hours"] + 16 * length_s * (1 - now) / 3600
    high = at_end * 1.08
    assert top == pytest.approx(200 - 200 * at_end / high, abs=1)
    assert known[-1][1] == pytest.approx(200 - 200 * budget["used_hours"] / high, abs=1)


@pytest.mark.long
def test_a_queue_is_held_and_resumed_after_a_question(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(f"{tenants.url}/#/queues/research%2Fspeech")
    page.click("#view .head button", "Hold")
    page.click("dialog[open] button", "Hold")
    page.when('<span class="state stopped">hold</span>', "No job of this queue starts until it is resumed.")
    assert tenants.call("GET", "/v1/queues/research/speech").json()["stop"] == "hold"
    page.visit("#/queues")
    page.when('<span class="state stopped">hold</span>')
    page.visit("#/queues/research%2Fspeech")
    page.click("#view .head button", "Resume")
    page.click("dialog[open] button", "Resume")
    page.when("research/speech is resumed.")
    assert tenants.call("GET", "/v1/queues/research/speech").json()["stop"] == "none"


def test_user_sees_only_own_queues_and_buttons(tenants: Tenants, browser: Browser) -> None:
    latest = tenants.call("GET", "/v1/access").json()["version"]
    document = {
        "version": latest,
        "bindings": [
            {"names": ["boss"], "roles": ["admin"]},
            {"names": ["ann"], "roles": ["user"], "queues": ["research/vision"]},
        ],
    }
    done = tenants.call("PUT", "/v1/access", json=document)
    assert done.ok, done.text
    page = browser.page(f"{tenants.url}/#/queues", headers={CALLER: "ann"})
    page.when('title="research/vision"')
    assert [path for path, _ in page.run(TREE)] == ["research", "research/vision"]
    page.visit("#/queues/research%2Fvision")
    shown = page.when("<h2>Settings</h2>")
    assert "Drain</button>" not in shown
    assert problems(page) == []
    page.run("location.hash = '#/queues/production'")
    page.when("Not shown")


@pytest.fixture
def wide() -> Iterator[Rig]:
    """A tree of many leaves."""
    rig = Rig()
    rig.node()
    tree: dict[str, Any] = {f"t{i:02}": {} for i in range(PARENTS)}
    tree |= {f"t{i % PARENTS:02}/leaf-{i:03}": {"weight": 1 + i % 5} for i in range(LEAVES)}
    done = rig.call("PUT", "/v1/queues", json={"version": 0, "queues": tree})
    assert done.ok, json.dumps(done.json())[:300]
    yield rig
    rig.close()


@pytest.mark.long
def test_tree_of_many_queues_holds_only_open_ones(wide: Rig, browser: Browser) -> None:
    page = browser.page(f"{wide.url}/#/queues")
    page.when('title="t19"')
    assert len(page.run(TREE)) == PARENTS + 1, "and the queue default"
    page.click("button.fold", "▸")
    page.when('title="t00/leaf-000"')
    assert len(page.run(TREE)) == PARENTS + 1 + LEAVES // PARENTS
    page.click("button", "Open all")
    page.when(f"1 to 100 of {PARENTS + LEAVES + 1}")
    assert len(page.run(TREE)) == 100
    page.fill("#search", "leaf-499")
    page.when('title="t19/leaf-499"', f"1 of {PARENTS + LEAVES + 1} rows are shown")
    assert page.run(TREE) == [["t19/leaf-499", None]]
