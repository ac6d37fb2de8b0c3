"""The calendar of the dashboard: bookings and hours of queues, by week and by day."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.web.browser import LOOKS, NEEDED, TABLET, Browser, Page, each_look, judged, not_seen, too_wide
from tests.web.teams import doubles
from tests.web.teams.tenants import Tenants

pytestmark = NEEDED
#: What stands in the calendar, by lane: its name, and where each part begins and how wide it is, in percent.
LANES: Final = """Object.fromEntries([...document.querySelectorAll('.lane')].map((lane) => [
  lane.querySelector('a').textContent, [...lane.querySelectorAll('.track li:not(.now)')].map((part) => [
    Math.round(10 * parseFloat(part.style.left)) / 10, Math.round(10 * parseFloat(part.style.width)) / 10])]))"""
#: When hours are by the clock of a zone: seconds since the epoch.
HOURS: Final = """import('/static/hours.js').then(({occurrences}) =>
  occurrences(%s, %d, %d).map((each) => [each.begins, each.ends]))"""


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    """What is only looked at."""
    scene = Tenants()
    yield scene
    scene.close()


def opened(tenants: Tenants, browser: Browser, address: str) -> tuple[Page, float]:
    """A page whose week begins today, and when that is."""
    page = browser.page(tenants.url)
    page.when()
    midnight = float(page.run("new Date().setHours(0, 0, 0, 0) / 1000"))
    doubles.answer(page, doubles.calendar(tenants, midnight))
    page.visit(address)
    return page, midnight


def test_a_week_has_what_is_booked_and_the_hours_of_queues(tenants: Tenants, browser: Browser) -> None:
    page, _ = opened(tenants, browser, "#/calendar")
    page.when("room is made on b2.example")
    lanes = page.run(LANES)
    day, hour = 100 / 7, 100 / 7 / 24
    assert lanes["exam"] == [[round(day + 9 * hour, 1), round(4 * hour, 1)]]
    assert lanes["class"] == [[round(i * day + 14 * hour, 1), round(2 * hour, 1)] for i in range(5)]
    assert len(lanes["research"]) == 8, "seven nights, and what is left of the one before"
    page.click("button", "Day")
    page.when('data-shown="#/calendar?days=1"')
    (part,) = page.run(LANES)["class"]
    assert part == [round(100 * 14 / 24, 1), round(100 * 2 / 24, 1)]


def test_a_booking_has_a_page_from_which_it_is_cancelled(tenants: Tenants, browser: Browser) -> None:
    page, _ = opened(tenants, browser, "#/calendar")
    page.click("#view td a", "exam")
    page.when("8 GPUs on each of 1 node", "<dt>Returned if unused for</dt><dd>15 min 0 s</dd>")
    page.click("#view .head button", "Cancel")
    page.click("dialog[open] button.danger", "Cancel")
    page.when("exam is cancelled.")
    assert page.run("window.sent") == [["DELETE", "/v1/bookings/exam-1a2b3c4d", ""]]
    page.visit("#/calendar")
    assert "demo" in page.html()
    shown = page.run("[...document.querySelectorAll('td.actions')].map((each) => each.textContent)")
    assert sorted(shown) == ["", "Cancel", "Cancel"], "what is over is not cancelled"


@pytest.mark.long
def test_days_have_room_on_a_tablet_as_on_a_desk(tenants: Tenants, browser: Browser) -> None:
    page, _ = opened(tenants, browser, "#/")
    days = "[...document.querySelectorAll('.days > span')]"
    for address, count in ("#/calendar", 7), ("#/calendar?days=1", 4):
        for width in TABLET, LOOKS["light"][0]:
            page.size(width)
            page.visit(address)
            room = page.run(f"{days}.map((each) => each.clientWidth - each.scrollWidth)")
            assert room == [0] * count, (address, width)


@each_look
def test_axe_has_nothing_against_the_calendar(tenants: Tenants, browser: Browser, look: str) -> None:
    page, _ = opened(tenants, browser, "#/")
    parts = {"week": "#/calendar", "booking": "#/calendar/exam-1a2b3c4d"}
    assert judged(page, parts, look) == {}
    if look == "phone":
        assert (too_wide(page, parts), not_seen(page, {"booking": parts["booking"]})) == ({}, {})


def at(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def test_hours_go_by_the_clock_of_their_zone_over_summer_and_winter(
    tenants: Tenants, browser: Browser
) -> None:
    page = browser.page(tenants.url)
    page.when()

    def found(entry: dict[str, Any], since: float, until: float) -> list[list[float]]:
        text = str(entry).replace("'", '"').replace("None", "null")
        return [*page.run(HOURS % (text, since, until))]

    night = {"days": ["mon"], "from": "22:00", "to": "06:00", "zone": "Europe/Vienna"}
    assert found(night, at(2026, 10, 19), at(2026, 11, 1)) == [
        [at(2026, 10, 19, 20), at(2026, 10, 20, 4)], [at(2026, 10, 26, 21), at(2026, 10, 27, 5)],
    ]  # fmt: skip
    gap = {"days": None, "from": "02:30", "to": "24:00", "zone": "Europe/Vienna"}
    assert found(gap, at(2027, 3, 28), at(2027, 3, 28, 12)) == [[at(2027, 3, 28, 1), at(2027, 3, 28, 22)]]


@pytest.mark.long
def test_calendar_without_bookings_says_so(tenants: Tenants, browser: Browser) -> None:
    page = browser.page(tenants.url)
    doubles.answer(page, {"/v1/bookings": {"bookings": [], "since": time.time(), "until": time.time()}})
    page.visit("#/calendar")
    page.when("Nothing is booked then, and no queue has hours.")
