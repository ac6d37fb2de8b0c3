"""The calendar and the idle board in a browser, of a scheduler that has a real booking and a job whose GPUs idle."""

import json
from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, rule, said
from tests.conftest import wait_until
from tests.e2e.tenancy.story import apply, submit
from tests.web.browser import NEEDED, Browser, Page
from tests.web.conftest import browser, started  # noqa: F401  fixtures

pytestmark = [pytest.mark.cluster, pytest.mark.long, NEEDED]
GPUS: Final = 2  # of each of two nodes
IDLE: Final[dict[str, Any]] = {
    "policy": "always", "warn_after_s": 3, "return_after_s": 3600, "start_grace_s": 1,
}  # fmt: skip
#: The texts of the cells of each row.
ROWS: Final = """[...document.querySelectorAll('#view tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent))"""
#: What stands in the calendar of this week: how it is shown, and when it begins and ends by its place.
PARTS: Final = """(() => {
  const now = new Date(), day = (by) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + by) / 1000;
  const at = (percent) => day(0) + (day(7) - day(0)) * percent / 100;
  return [...document.querySelectorAll('.track li:not(.now)')].map((part) => [part,
    parseFloat(part.style.left), parseFloat(part.style.width)]).map(([part, left, width]) => [
    part.closest('.lane').querySelector('span').textContent, part.className, at(left), at(left + width)]);
})()"""


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    """Start a cluster that names callers of its socket by the kernel, and callers by HTTP by a token."""
    nodes = [NodeSpec(GPUS, scripts={"forgotten*": [{"busy_pct": 0}]})] * 2
    arguments = ["--report-interval", "1"]
    with Stack(open_directory / "stack", nodes, scheduler_arguments=arguments, secure=True) as running:
        rule(running, open_directory)
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 2 * GPUS) as client:
        apply(client, {"lab": {"idle": IDLE}, "exam": {}})
        yield client


def shows(page: Page, what: str, *row: str) -> None:
    """Wait until its table has one row that begins so; the page was not loaded again."""

    def shown() -> bool:
        rows = page.run(ROWS)
        return len(rows) == 1 and tuple(rows[0][: len(row)]) == row

    wait_until(f"{what}, but {page.run(ROWS)}", shown)
    assert page.run("window.stays")


def test_pages_follow_a_booking_and_idle_gpus(
    stack: Stack,
    client: Client,
    browser: Browser,  # noqa: F811
) -> None:
    words = ("--gpus", str(GPUS), "--from", "now", "--for", "4h", "--queue", "exam", "--name", "midterm")
    booked = json.loads(said(stack, "reserve", *words, "--json"))
    job = submit(client, "forgotten", "lab", "sleep 600", gpus=1)
    token = {"Authorization": f"Bearer {said(stack, 'token', 'create')}"}
    calendar, board = (browser.page(f"{stack.url}/#/{part}", headers=token) for part in ("calendar", "idle"))
    for page in (calendar, board):
        page.when()
        page.run("window.stays = true")
    shows(calendar, "the booking has begun", "midterm", "active", "exam", str(GPUS))
    when = pytest.approx([booked["begins"], booked["ends"]], abs=30)  # by its place, which is rounded
    wait_until("it stands where it is booked", lambda: calendar.run(PARTS)[0][2:] == when)
    assert calendar.run(PARTS)[0][:2] == [f"midterm exam, {GPUS} GPUs", "booked"]
    calendar.click("#view td a", "midterm")
    (place,) = json.loads(said(stack, "reserve", "show", "midterm", "--json"))["places"]
    calendar.when("Booking midterm", f">{place['node']}</a> ({GPUS})")
    shows(board, "it was warned", "forgotten", "warned", getuser(), "lab", "1")
    board.when("<dt>Idle GPUs</dt><dd>1</dd>", f">{client.job(job)['hostnames'][0]}<")
    calendar.visit("#/calendar")
    said(stack, "reserve", "cancel", "midterm")
    said(stack, "kill", job)
    shows(calendar, "the booking is cancelled", "midterm", "cancelled")
    assert [part[1] for part in calendar.run(PARTS)] == ["ended"]
    calendar.click("#view td a", "midterm")
    assert "chosen shortly" not in calendar.when("Booking midterm", "it was cancelled")
    board.when("No job's GPUs are known to do nothing.", "<dt>Idle GPUs</dt><dd>0</dd>")
    assert calendar.run("window.stays")
    assert board.run("window.stays")
