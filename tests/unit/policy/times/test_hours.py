"""Figures of queues by the hour: over midnight, on days of 23 and of 25 hours, and where entries overlap."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.tenancy import Guarantee, Hours, QueueDocument, QueueSpec, Weekday
from mesos_gpu.policy.times.hours import DocumentVariants, changed, span_at, spans_of_year
from mesos_gpu.policy.times.local_time import DAY_S

VIENNA = "Europe/Vienna"


def at(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def document(*hours: Hours, **more: Any) -> QueueDocument:
    return QueueDocument(version=1, queues={"batch": QueueSpec(hours=hours, **more), "other": QueueSpec()})


def weight(made: QueueDocument) -> int:
    return made.queues["batch"].weight


def test_hours_over_midnight_hold_from_the_evening_to_the_morning() -> None:
    made = document(Hours("22:00", "06:00", zone=VIENNA, weight=5))
    night = span_at(made, at("2026-11-24T23:30"))
    assert (night.since, night.until) == (at("2026-11-24T21:00"), at("2026-11-25T05:00"))
    assert weight(night.document) == 5
    day = span_at(made, night.until)
    assert (weight(day.document), day.until) == (1, at("2026-11-25T21:00"))
    assert day.document is made
    assert changed(day.document, night.document) == {"batch": {"weight": 5}}


def test_days_are_those_on_which_hours_begin() -> None:
    made = document(Hours("22:00", "06:00", (Weekday.FRI,), weight=5))
    assert weight(span_at(made, at("2026-11-28T05:59")).document) == 5, "Saturday morning"
    assert weight(span_at(made, at("2026-11-28T23:00")).document) == 1, "Saturday night"


def test_night_is_an_hour_shorter_or_longer_when_clocks_are_set() -> None:
    made = document(Hours("22:00", "06:00", zone=VIENNA, weight=5))
    lengths = []
    for evening in ("2026-03-28T22:00", "2026-10-24T22:00", "2026-07-01T22:00"):
        span = span_at(made, at(evening))
        lengths.append((span.until - span.since) / 3600)
    assert lengths == [7, 9, 8]


@pytest.mark.parametrize(
    ("zone", "begins", "ends"),
    [
        ("America/Los_Angeles", "2026-11-25T07:00", "2026-11-26T06:00"),
        ("Pacific/Pago_Pago", "2026-11-25T10:00", "2026-11-26T09:00"),
        ("Pacific/Kiritimati", "2026-11-24T09:00", "2026-11-25T08:00"),
        ("UTC", "2026-11-24T23:00", "2026-11-25T22:00"),
    ],
)
def test_hours_of_nearly_a_day_begin_and_end_by_the_clock_of_their_zone(
    zone: str, begins: str, ends: str
) -> None:
    made = document(Hours("23:00", "22:00", (Weekday.TUE,), zone=zone, weight=5))
    before, held = span_at(made, at(begins) - 1), span_at(made, at(begins))
    assert (before.until, weight(before.document)) == (at(begins), 1)
    assert (held.since, held.until, weight(held.document)) == (at(begins), at(ends), 5)
    after = span_at(made, at(ends))
    assert (after.since, weight(after.document)) == (at(ends), 1)
    assert span_at(made, at(ends) - 1) == held


def test_hours_that_a_day_skips_do_not_hold_on_it_and_those_that_come_twice_hold_once() -> None:
    skipped = document(Hours("02:15", "02:45", zone=VIENNA, weight=5))
    span = span_at(skipped, at("2026-03-28T12:00"))
    assert span.until == at("2026-03-30T00:15"), "the next day"
    twice = document(Hours("02:00", "03:00", zone=VIENNA, weight=5))
    span = span_at(twice, at("2026-10-25T00:30"))
    assert (span.since, span.until) == (at("2026-10-25T00:00"), at("2026-10-25T02:00"))


def test_hours_of_a_later_entry_win_and_only_in_the_pools_it_names() -> None:
    made = document(
        Hours("08:00", "20:00", guarantee_gpus={"a100": Guarantee(4000)}, weight=2),
        Hours("12:00", "13:00", guarantee_gpus={"default": Guarantee(1000)}, weight=9),
        guarantee_gpus={"default": Guarantee(8000)},
    )
    noon = span_at(made, at("2026-11-24T12:30")).document.queues["batch"]
    assert noon.guarantee_gpus == {"a100": Guarantee(4000), "default": Guarantee(1000)}
    assert noon.weight == 9
    assert (
        span_at(made, at("2026-11-24T14:00")).document.queues["batch"].guarantee_gpus["default"].milli == 8000
    )


def test_entry_that_changes_no_figure_is_no_border() -> None:
    alone = document(Hours("09:00", "10:00", weight=1, limit_gpus={"default": 4}), limit_gpus={"default": 4})
    assert (span_at(alone, at("2026-11-24T09:30")).since, span_at(alone, 0.0).until) == (-inf, inf)
    hidden = document(Hours("12:00", "13:00", weight=7), Hours("08:00", "20:00", weight=5))
    span = span_at(hidden, at("2026-11-24T12:30"))
    assert (span.since, span.until) == (at("2026-11-24T08:00"), at("2026-11-24T20:00"))


def test_document_without_hours_holds_for_ever() -> None:
    made = document()
    assert span_at(made, 0.0) == span_at(made, 1e9)
    assert (span_at(made, 0.0).until, [*spans_of_year(made, 0.0)]) == (inf, [])


def test_spans_of_a_year_have_each_way_in_which_hours_meet() -> None:
    zones = Hours("08:00", "20:00", zone=VIENNA, weight=2), Hours("19:30", "20:30", zone="UTC", band=1)
    meets = {
        (weight(made), made.queues["batch"].band)
        for _, made in spans_of_year(document(*zones), at("2026-11-24T00:00"))
    }
    assert meets == {(1, 0), (2, 0), (1, 1)}, "in winter they do not meet"
    summer = Hours("08:00", "20:00", zone=VIENNA, weight=2), Hours("18:30", "18:45", zone="UTC", band=1)
    meets = {
        (weight(made), made.queues["batch"].band)
        for _, made in spans_of_year(document(*summer), at("2026-06-24T00:00"))
    }
    assert (2, 1) in meets, "in the winter that comes 18:30 UTC is 19:30 there"


CLOCKS = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from([0, 15, 30]))
ENTRIES = st.builds(
    lambda begins, ends, days, zone, weight: Hours(begins, ends, tuple(days), zone, weight=weight),
    CLOCKS,
    CLOCKS | st.just("24:00"),
    st.lists(st.sampled_from([*Weekday]), min_size=1, unique=True),
    st.sampled_from(["UTC", VIENNA, "America/Santiago"]),
    st.integers(2, 9),
).filter(lambda entry: entry.begins != entry.ends)
MOMENTS = st.integers(int(at("2026-01-01T00:00")), int(at("2027-12-31T00:00")))


def shown(entry: Hours, moment: int) -> bool:
    """Whether a clock on the wall says that an entry holds; away from days on which it is set."""
    local = datetime.fromtimestamp(moment, ZoneInfo(entry.zone))
    clock, today = f"{local:%H:%M}", [*Weekday][local.weekday()]
    yesterday = [*Weekday][(local - timedelta(days=1)).weekday()]
    if entry.begins < entry.ends:
        return today in entry.days and entry.begins <= clock < entry.ends
    return (today in entry.days and clock >= entry.begins) or (yesterday in entry.days and clock < entry.ends)


def is_set(entry: Hours, moment: int) -> bool:
    offsets = {
        datetime.fromtimestamp(moment + hours * 3600, ZoneInfo(entry.zone)).utcoffset()
        for hours in (-36, 0, 36)
    }
    return len(offsets) > 1


@pytest.mark.parametrize("count", [50, pytest.param(100, marks=pytest.mark.long)])
def test_hours_hold_as_a_wall_clock_shows(count: int) -> None:
    @settings(max_examples=count)
    @given(st.lists(ENTRIES, min_size=1, max_size=3), MOMENTS)
    def check(entries: list[Hours], moment: int) -> None:
        if any(is_set(entry, moment) for entry in entries):
            return
        on = [entry.weight for entry in entries if shown(entry, moment)]
        assert weight(span_at(document(*entries), moment).document) == (on[-1] if on else 1)

    check()


@given(st.lists(ENTRIES, min_size=1, max_size=3), MOMENTS, st.integers(0, 99))
@settings(max_examples=40)
def test_span_of_hours_changes_at_its_ends_alone(entries: list[Hours], moment: int, percent: int) -> None:
    assume(len({entry.weight for entry in entries}) == len(entries))
    made = document(*entries)
    span = span_at(made, moment)
    assert span.since <= moment < span.until
    if span.until < inf:
        begin = int(max(span.since, moment - DAY_S))
        inside = span_at(made, begin + int(span.until - begin) * percent // 100)
        assert (inside.document, inside.until) == (span.document, span.until)
        assert span_at(made, span.until).since == span.until


@given(st.lists(ENTRIES, min_size=1, max_size=3), st.lists(MOMENTS, min_size=2, max_size=8))
@settings(max_examples=40)
def test_spans_kept_equal_spans_computed(entries: list[Hours], moments: list[int]) -> None:
    made = document(*entries)
    spans = DocumentVariants(made)
    assert [spans.at(moment) for moment in moments] == [span_at(made, moment) for moment in moments]


@given(st.lists(ENTRIES, min_size=1, max_size=2), MOMENTS)
@settings(max_examples=25)
def test_spans_of_a_year_cover_each_moment(entries: list[Hours], moment: int) -> None:
    made, begin = document(*entries), at("2026-11-24T12:34")
    then = begin + (moment - at("2026-01-01T00:00")) % (364 * DAY_S)
    assert span_at(made, then).document.queues in [each.queues for _, each in spans_of_year(made, begin)]


def test_hours_without_a_zone_are_in_utc() -> None:
    assert (
        datetime.fromtimestamp(
            span_at(document(Hours("09:00", "10:00", weight=2)), at("2026-11-24T09:00")).until, UTC
        ).hour
        == 10
    )
