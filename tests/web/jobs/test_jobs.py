"""The list of jobs on the dashboard: reasons, filters, several jobs at once, and numbers that agree on all pages."""

import re
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.access.caller import ANYBODY, Caller, Proof
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer
from tests.web.browser import LOOKS, NEEDED, Browser, Page

pytestmark = NEEDED
CALLER: Final = "X-Name"
WAITING: Final = 12  # jobs: `large`, `other`, and ten tasks of `sweep`
#: Cells of the rows of the list, by the name of the job and of the column.
ROWS: Final = """Object.fromEntries([...document.querySelectorAll('#view tbody tr')].map((row) => [
  row.querySelector('a').textContent,
  Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent]))]))"""
SELECTED: Final = """[...document.querySelectorAll('input.select:checked')].length"""


async def named(scope: Any) -> Caller:
    """Return the caller that the header names, or the caller of an open scheduler without the header."""
    name = dict(scope["headers"]).get(CALLER.lower().encode(), b"").decode()
    return Caller(name, proof=Proof.TOKEN) if name else ANYBODY


def submit(rig: Rig, owner: str, **fields: Any) -> str:
    answer = rig.call("POST", "/v1/jobs", json={"command": "true", **fields}, headers={CALLER: owner})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def run(rig: Rig, job_id: str, state: str = "TASK_RUNNING") -> None:
    """Offer the node's GPUs until a job is launched, and let its launch be in a state."""
    offers = count()

    def launched() -> Any:
        rig.daemon.put(ev.OffersArrived((offer(f"{job_id}-{next(offers)}", "a1", gpus=2),)))
        return rig.call("GET", f"/v1/jobs/{job_id}").json()["task_id"]

    task = wait_until(f"{job_id} is launched", launched)
    for each in dict.fromkeys(("TASK_RUNNING", state)):
        rig.status(task, each)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Jobs of two users on a node with two GPUs: one runs, three wait, one failed, one was killed."""
    rig = Rig(now=time.time(), identify=named)
    bindings = [{"names": ["ann", "bob"], "roles": ["admin"]}]
    assert rig.call("PUT", "/v1/access", json={"version": 0, "bindings": bindings}).ok
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    run(rig, submit(rig, "bob", name="broken", gpus=1), "TASK_FAILED")
    run(rig, submit(rig, "ann", name="mistake", gpus=1), "TASK_FAILED")
    run(rig, submit(rig, "ann", name="runs", gpus=1, labels={"team": "vision"}))
    submit(rig, "bob", name="large", gpus=2, queue="research")
    submit(rig, "ann", name="other", gpus=2)
    submit(rig, "ann", name="sweep", gpus=2, array="0-9")
    gone = submit(rig, "ann", name="gone", gpus=2)
    assert rig.call("DELETE", f"/v1/jobs/{gone}").ok
    yield rig
    rig.close()


def listed(rig: Rig, browser: Browser, address: str = "#/jobs") -> Page:
    page = browser.page(f"{rig.url}/{address}", headers={CALLER: "ann"})
    page.when(f'data-shown="{address}"')
    return page


def test_waiting_jobs_have_their_reason_in_the_row(rig: Rig, browser: Browser) -> None:
    rows = listed(rig, browser).run(ROWS)
    line = rig.call("GET", "/v1/queue").json()["jobs"]
    reasons = {job["name"]: job["estimate"]["basis"] for job in reversed(line)}
    for name in ("large", "other"):
        assert rows[name]["Message"].endswith(reasons[name])
        assert reasons[name]
    assert rows["sweep"]["Message"].endswith(reasons["sweep.0"]), "of the first task that waits"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("user", "bob", {"broken", "large"}), ("queue", "research", {"large"}), ("label", "team=vision", {"runs"}),
        ("state", "killed", {"gone"}),
    ],
)  # fmt: skip
def test_jobs_are_filtered_by_the_address(
    rig: Rig, browser: Browser, name: str, value: str, shown: set[str]
) -> None:
    assert set(listed(rig, browser, f"#/jobs?{name}={value}").run(ROWS)) == shown


def test_filter_field_narrows_the_list_and_stands_in_the_address(rig: Rig, browser: Browser) -> None:
    page = listed(rig, browser)
    page.fill('[aria-label="Queue of the jobs"]', "research")
    page.when('data-shown="#/jobs?queue=research"', "1 row")
    page.fill('[aria-label="Queue of the jobs"]', "none-such")
    page.when("No job matches these filters.", 'href="#/jobs"')


def test_several_jobs_are_killed_after_one_question(browser: Browser) -> None:
    rig = Rig()
    ids = [rig.submit(name=f"batch{i}", gpus=1)["id"] for i in range(3)]
    page = browser.page(f"{rig.url}/#/jobs")
    page.when("3 rows")
    assert page.run(SELECTED) == 0
    page.click("#view .choice + .choice input")
    page.when("Kill 3 selected")
    page.click("input.select")
    page.when("Kill 2 selected")
    page.click("#view .filters button", "Kill 2 selected")
    asked = page.run("document.querySelector('dialog[open]').textContent")
    assert "Kill 2 jobs?" in asked
    page.click("dialog[open] button", "Kill")
    page.when("2 jobs asked to end.")
    states = [rig.call("GET", f"/v1/jobs/{id}").json()["kill_requested"] for id in ids]
    assert sorted(states) == [False, True, True]
    wait_until("nothing is selected", lambda: page.run(SELECTED) == 0)
    rig.close()


def test_numbers_of_waiting_jobs_agree_on_all_pages(rig: Rig, browser: Browser) -> None:
    page = listed(rig, browser)
    page.when(f">pending {WAITING}</button>", "Each task of an array")
    page.visit("#/")
    page.when(f'<dt>Waiting jobs</dt><dd><a href="#/jobs?state=pending">{WAITING}</a>')
    page.visit("#/queues")
    waiting = page.run(
        "[...document.querySelectorAll('[data-label=\"Waiting jobs\"]')].map((cell) => Number(cell.textContent))"
    )
    assert sum(waiting) == WAITING
    page.visit("#/queues/research")
    shown = page.when("1 waiting job in this queue. Each task of an array")
    assert "0 GPUs allocated, no limit." in shown
    assert 'class="bar' not in shown, "no colours of quotas where no queue has one"


def test_rows_have_no_red_button_and_killed_is_not_as_red_as_failed(rig: Rig, browser: Browser) -> None:
    page = listed(rig, browser)
    colour = "getComputedStyle(document.querySelector('#view %s')).color"
    red = page.run(colour % ".state.failed")
    for other in (".state.killed", "td.actions button"):
        assert page.run(colour % other) != red, other
    page.click("td.actions button", "Kill")
    assert page.run("getComputedStyle(document.querySelector('dialog[open] button.danger')).color") == red
    page.press("Escape")


@pytest.mark.parametrize("look", ["light", "phone"])
def test_list_fits_and_long_messages_end_in_an_ellipsis(rig: Rig, browser: Browser, look: str) -> None:
    page = listed(rig, browser)
    page.size(LOOKS[look][0])
    page.visit("#/jobs?state=")
    assert page.run("document.documentElement.scrollWidth") == LOOKS[look][0]
    table = "document.querySelector('#view .scroll')"
    assert page.run(f"{table}.scrollWidth <= {table}.clientWidth"), "nothing is hidden at the side"
    style = page.run("getComputedStyle(document.querySelector('.one-line')).textOverflow")
    assert style == "ellipsis"


def test_navigation_takes_one_row_on_a_phone(rig: Rig, browser: Browser) -> None:
    page = listed(rig, browser)
    page.size(LOOKS["phone"][0])
    tops = page.run(
        "[...document.querySelectorAll('nav a')].map((each) => Math.round(each.getBoundingClientRect().top))"
    )
    assert (len(tops), len(set(tops))) == (8, 1)
    assert page.run("document.querySelector('header').offsetHeight") < 130


def test_own_trouble_comes_first_and_times_have_a_zone(rig: Rig, browser: Browser) -> None:
    page = listed(rig, browser, "#/")
    first, *others = page.run("[...document.querySelectorAll('.trouble li')].map((each) => each.textContent)")
    assert first.startswith("failed Your job mistake failed ")
    assert [each for each in others if each.startswith("failed Job broken failed ")]
    assert re.search(r'id="as-of">as of \d\d:\d\d:\d\d \S+<', page.html())


def test_empty_pages_name_the_next_command(browser: Browser) -> None:
    rig = Rig()
    try:
        page = browser.page(f"{rig.url}/#/jobs")
        page.when("No jobs yet. Run the first one: <code>mesos-gpu run --gpus 1 -- nvidia-smi</code>")
        page.visit("#/queues")
        page.when("<code>mesos-gpu queue apply FILE</code>")
        page.visit("#/apps")
        page.when("<code>mesos-gpu app create FILE</code>")
        page.visit("#/nodes")
        page.when("<code>mesos-gpu doctor</code>")
        page.visit("#/")
        page.when("No trouble: ", "No samples yet.")
    finally:
        rig.close()
