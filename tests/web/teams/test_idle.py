"""The idle board of the dashboard."""

import json
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.web.browser import NEEDED, Browser, Page, each_look, judged, not_seen, too_wide
from tests.web.teams import doubles
from tests.web.teams.tenants import Tenants

pytestmark = NEEDED
ROWS: Final = """[...document.querySelectorAll('#view tbody tr')].map((row) => [
  ...[0, 1, 2, 3, 4, 6, 9].map((i) => row.cells[i].textContent)])"""

#: Who looks may keep jobs, where the scheduler knows that.
KEEP: Final = """import('/static/api.js').then(({who}) => who.rights.some((held) => held.name === 'job:keep') ||
  who.rights.push({name: 'job:keep', own: false, queues: ['*'], apps: []})).then(() => 0)"""


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    """What is only looked at."""
    scene = Tenants()
    yield scene
    scene.close()


def opened(tenants: Tenants, browser: Browser, address: str = "#/idle") -> Page:
    page = browser.page(tenants.url)
    doubles.answer(page, doubles.idlers(tenants, time.time()))
    page.run(KEEP)
    page.visit(address)
    return page


def test_idle_board_names_holders_of_idle_gpus_and_the_consequence(
    tenants: Tenants, browser: Browser
) -> None:
    page = opened(tenants, browser)
    kept, warned, told = page.run(ROWS)
    assert kept[:5] == ["segment", "suspect", "ann", "research/vision", "4"]
    assert kept[5].startswith("kept until ")
    assert kept[5].endswith(" by ann")
    assert kept[6] == "End keepReturn"
    assert warned[:2] == ["dino", "warned"]
    assert warned[5].startswith("if waiting jobs need them, from ")
    assert told[5] == "no: reported only"
    assert "asr" not in page.run("document.querySelector('#view tbody').textContent"), (
        "nothing is known of it"
    )
    page.when("<dt>Idle GPUs</dt><dd>12</dd>", "<dt>Waiting jobs</dt><dd>2</dd>")


def test_gpus_are_kept_and_given_back_from_the_board(tenants: Tenants, browser: Browser) -> None:
    page = opened(tenants, browser)
    page.click("tr:nth-child(2) button", "Keep")
    page.fill("dialog[open] input[name=hours]", "1.5")
    page.click("dialog[open] button", "Keep")
    page.when("keeps its GPUs.")
    page.click("tr:nth-child(1) button", "End keep")
    page.click("dialog[open] button", "End keep")
    page.when("no longer keeps idle GPUs.")
    page.click("tr:nth-child(3) button", "Return")
    page.click("dialog[open] button", "Return")
    page.when("is asked to end.")
    sent = page.run("window.sent")
    assert [(verb, path.split("/")[3].rpartition("-")[0], path.split("/")[4:]) for verb, path, _ in sent] == [
        ("PUT", "dino", ["keep"]), ("DELETE", "segment", ["keep"]), ("DELETE", "yolo", []),
    ]  # fmt: skip
    assert json.loads(sent[0][2]) == {"for_s": 5400}


def test_a_scheduler_that_says_nothing_of_idle_gpus_is_read_by_its_cards(
    tenants: Tenants, browser: Browser
) -> None:
    listed = tenants.call("GET", "/v1/jobs?state=running").json()
    for job in listed["jobs"]:
        job.pop("idle", None)
        idle_s = 5000 if job["name"] == "dino" else 10
        job["use"] = {"busy_pct": 0, "memory_mib": 100, "processes": 1, "idle_s": idle_s}
    page = browser.page(tenants.url)
    doubles.answer(page, {"/v1/jobs": listed})
    page.visit("#/idle")
    (row,) = page.run(ROWS)
    assert (row[0], row[1], row[6]) == ("dino", "idle", "Return")


@each_look
def test_axe_has_nothing_against_the_idle_board(tenants: Tenants, browser: Browser, look: str) -> None:
    page = opened(tenants, browser, "#/")
    assert judged(page, {"idle": "#/idle"}, look) == {}
    if look == "phone":
        assert (too_wide(page, {"idle": "#/idle"}), not_seen(page, {"idle": "#/idle"})) == ({}, {})
