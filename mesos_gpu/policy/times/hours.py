"""Which figures of queues hold at a moment, by the hours that a document has, and when they are others. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from math import inf
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.tenancy import HOURS_FIGURES, Hours, QueueDocument, QueueSpec, Weekday
from mesos_gpu.policy.times.local_time import DAY_S, first_moment, shown_at

MOST_SPANS: Final = (
    100  # different ones that hours may make of a document: each is checked as a document of its own
)
_WEEKS: Final = 54  # in which every zone has had each of its offsets
_DAYS: Final = tuple(Weekday)
_END: Final = "24:00"
_LONG: Final = 9  # days in which each border of a week has come
Window = tuple[tuple[Weekday, ...], str, str, str]
Active = tuple[tuple[str, tuple[int, ...]], ...]  # by queue, which of its entries hold


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which the figures of all queues stay as they are.

    Attributes:
        since: Its begin, seconds since the epoch; minus infinity: it had none.
        until: Its end; infinity: it has none.
        document: With the figures that hold in it.
    """

    since: float
    until: float
    document: QueueDocument


def span_at(document: QueueDocument, moment: float) -> Span:
    """What holds at a moment, and for how long. An entry that begins or ends and changes no figure is no border."""
    if not any(spec.hours for spec in document.queues.values()):
        return Span(-inf, inf, document)
    now = _active(document, moment)
    held, borders = _with(document, now), _borders(document, moment)

    def differs(at: float) -> bool:
        then = _active(document, at)
        return then != now and _with(document, then) != held

    before = (at for at in reversed(borders) if at <= moment)
    since = next((at for at in before if differs(at - 1)), -inf)
    until = next((at for at in borders if at > moment and differs(at)), inf)
    return Span(since, until, held)


def spans_of_year(document: QueueDocument, moment: float) -> Iterator[tuple[float, QueueDocument]]:
    """Each way in which figures hold together at any time in the year that follows, with the first moment of it: what
    holds at `moment` is the first. Weeks repeat themselves, but for those in which a clock is set."""
    seen = set[Active]()
    if not any(spec.hours for spec in document.queues.values()):
        return
    for at in _moments(document, moment):
        active = _active(document, at)
        if active not in seen:
            seen.add(active)
            yield at, _with(document, active)


def changed(before: QueueDocument, after: QueueDocument) -> Mapping[str, Mapping[str, Any]]:
    """The figures of the second document that are others in the first, by queue."""
    differ: dict[str, dict[str, Any]] = {}
    for path, spec in after.queues.items():
        old = before.queues.get(path)
        if old is not None and spec is not old:
            names = [name for name in HOURS_FIGURES if getattr(spec, name) != getattr(old, name)]
            if names:
                differ[path] = {name: getattr(spec, name) for name in names}
    return differ


def _moments(document: QueueDocument, moment: float) -> Iterator[float]:
    """A moment, and all borders of one week for each set of offsets that zones have in the year that follows."""
    yield moment
    zones = sorted({entry.zone for spec in document.queues.values() for entry in spec.hours})
    seen = set[tuple[Any, ...]]()
    for week in range(_WEEKS):
        begins = moment + week * 7 * DAY_S
        offsets = tuple(_offset(zone, begins + day * DAY_S) for zone in zones for day in (0, 7))
        if offsets not in seen:
            seen.add(offsets)
            yield from (at for at in _borders(document, begins) if begins < at <= begins + 7 * DAY_S)


def _offset(zone: str, moment: float) -> timedelta | None:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()


def _active(document: QueueDocument, moment: float) -> Active:
    return tuple(
        (path, tuple(i for i, entry in enumerate(spec.hours) if _holds(_window(entry), moment)))
        for path, spec in document.queues.items()
        if spec.hours
    )


def _with(document: QueueDocument, active: Active) -> QueueDocument:
    now = {path: _spec(document.queues[path], entries) for path, entries in active if entries}
    return replace(document, queues={**document.queues, **now}) if now else document


def _spec(spec: QueueSpec, entries: tuple[int, ...]) -> QueueSpec:
    """A queue with the figures of some of its entries: of two that say something of one the later counts."""
    figures: dict[str, Any] = {}
    for i in entries:
        for name in HOURS_FIGURES:
            value = getattr(spec.hours[i], name)
            if isinstance(value, Mapping):
                figures[name] = {**figures.get(name, getattr(spec, name)), **value}
            elif value is not None:
                figures[name] = value
    return replace(spec, **figures)


# --- of one entry


def _window(entry: Hours) -> Window:
    return entry.days, entry.begins, entry.ends, entry.zone


@lru_cache(maxsize=4096)
def _holds(window: Window, moment: float) -> bool:
    return any(begins <= moment < ends for begins, ends in _times(window, moment, range(-1, 1)))


def _borders(document: QueueDocument, moment: float) -> list[int]:
    """When entries begin or end in some days before a moment, and after it."""
    windows = {_window(entry) for spec in document.queues.values() for entry in spec.hours}
    days = range(-_LONG, _LONG)
    return sorted({at for window in windows for times in _times(window, moment, days) for at in times})


def _times(window: Window, moment: float, days: range) -> Iterator[tuple[int, int]]:
    """When an entry begins and ends that begins on one of some days, counted from that of a moment."""
    of_week, begins, ends, zone = window
    place = ZoneInfo(zone)
    today = shown_at(moment, place).date()
    for day in (today + timedelta(days=each) for each in days):
        if _DAYS[day.weekday()] in of_week:
            from_, to = time.fromisoformat(begins), time() if ends == _END else time.fromisoformat(ends)
            over = timedelta(days=to <= from_)
            yield _at(day, from_, place), _at(day + over, to, place)


@lru_cache(maxsize=4096)
def _at(day: date, clock: time, place: ZoneInfo) -> int:
    return first_moment(datetime.combine(day, clock), place)
