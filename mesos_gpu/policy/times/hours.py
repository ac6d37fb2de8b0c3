"""Settings of queues by time of day (`hours` of a document): which apply, and when they change. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from math import inf
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.tenancy import HOURS_FIGURES, Hours, QueueDocument, QueueSpec, Weekday
from mesos_gpu.policy.times.local_time import DAY_S, first_moment, shown_at

MAX_SPANS: Final = 100  # variants of a document that hours may produce; each is checked like a document
_WEEKS: Final = 54  # weeks in which every zone has each of its offsets at some time
_DAYS: Final = tuple(Weekday)
_END: Final = "24:00"
_LONG: Final = 10  # days that contain each change of a week
_EPOCH: Final = date(1970, 1, 1).toordinal()
Window = tuple[tuple[Weekday, ...], str, str, str]  # of an entry of `hours`: days, begin, end and zone
Holding = frozenset[int]  # numbers of the windows that are active


@dataclass(frozen=True, slots=True)
class Span:
    """Time in which the settings of all queues stay as they are.

    Attributes:
        since: Begin in seconds since the epoch; minus infinity without a begin.
        until: End in seconds since the epoch; infinity without an end.
        document: Document with the settings that apply then.
    """

    since: float
    until: float
    document: QueueDocument


class DocumentVariants:
    """All spans of a document. Results are cached, as most days of a year are alike.

    Args:
        document: Document with `hours`.
    """

    def __init__(self, document: QueueDocument) -> None:
        self._document = document
        entries = {path: [_window(entry) for entry in spec.hours] for path, spec in document.queues.items()}
        windows = list(dict.fromkeys(window for of in entries.values() for window in of))
        self._windows = dict(enumerate(windows))
        self._numbers = {path: [windows.index(entry) for entry in of] for path, of in entries.items() if of}
        self._zones = tuple(sorted({zone for *_, zone in windows}))
        self._documents: dict[Holding, QueueDocument] = {frozenset(): document}
        self._begun: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self._borders: dict[int, list[int]] = {}

    def at(self, moment: float) -> Span:
        """Return the span that contains a time. Begins and ends of entries that change no setting do not end a span."""
        document, today = self._document_at(moment), int(moment // DAY_S)
        if not self._zones:
            return Span(-inf, inf, document)
        later = (at for day in range(today, today + _LONG) for at in self._borders_of(day))
        back = (at for day in range(today, today - _LONG, -1) for at in reversed(self._borders_of(day)))
        until = (at for at in later if at > moment and self._document_at(at) is not document)
        since = (at for at in back if at <= moment and self._document_at(at - 1) is not document)
        return Span(next(since, -inf), next(until, inf), document)

    def of_year(self, moment: float) -> Iterator[tuple[float, QueueDocument]]:
        """Yield each variant of the document in the year that follows, with its first time, the current one first.

        Weeks are alike, except those with a clock change.
        """
        seen = set[Holding]()
        for at in self._moments(moment) if self._zones else ():
            holding = self._holding(at)
            if holding not in seen:
                seen.add(holding)
                yield at, self._with(holding)

    def _moments(self, moment: float) -> Iterator[float]:
        """Yield a time, and all changes of one week for each set of the zones' offsets in the year that follows."""
        yield moment
        seen = set[tuple[Any, ...]]()
        for week in range(_WEEKS):
            begins = moment + week * 7 * DAY_S
            ends, first = begins + 7 * DAY_S, int(begins // DAY_S)
            offsets = tuple(_offset(zone, at) for zone in self._zones for at in (begins, ends))
            if offsets not in seen:
                seen.add(offsets)
                borders = (at for day in range(first, first + 8) for at in self._borders_of(day))
                yield from (at for at in borders if begins < at <= ends)

    def _document_at(self, moment: float) -> QueueDocument:
        return self._with(self._holding(moment))

    def _with(self, holding: Holding) -> QueueDocument:
        """Return the document with some windows active; one object for all windows that give equal settings."""
        cached = self._documents.get(holding)
        if cached is None:
            document = self._made(holding)
            cached = next((other for other in self._documents.values() if other == document), document)
            self._documents[holding] = cached
        return cached

    def _made(self, holding: Holding) -> QueueDocument:
        """Build the document with some windows active."""
        queues = dict(self._document.queues)
        for path, numbers in self._numbers.items():
            numbered = zip(queues[path].hours, numbers, strict=True)
            entries = [entry for entry, number in numbered if number in holding]
            queues[path] = _spec(queues[path], entries)
        return replace(self._document, queues=queues)

    def _holding(self, moment: float) -> Holding:
        """Return the numbers of the windows that are active at a time."""
        holding: list[int] = []
        for zone in self._zones:
            today = shown_at(moment, ZoneInfo(zone)).toordinal()
            begun = (*self._begun_on(zone, today - 1), *self._begun_on(zone, today))
            holding += [number for begins, ends, number in begun if begins <= moment < ends]
        return frozenset(holding)

    def _borders_of(self, day: int) -> list[int]:
        """Return the begins and ends of entries on a UTC day, counted from the epoch, in order."""
        borders = self._borders.get(day)
        if borders is None:
            first = _EPOCH + day
            near = range(first - 2, first + 2)  # local days: one begins at most 14 h before that of UTC
            begun = (window for zone in self._zones for on in near for window in self._begun_on(zone, on))
            borders = sorted({at for begins, ends, _ in begun for at in (begins, ends) if at // DAY_S == day})
            self._borders[day] = borders
        return borders

    def _begun_on(self, zone: str, day: int) -> list[tuple[int, int, int]]:
        """Return begin, end and number of the windows of a zone that begin on a local day."""
        begun = self._begun.get((zone, day))
        if begun is None:
            on, place = date.fromordinal(day), ZoneInfo(zone)
            begun = [
                (*_times(window, on, place), number)
                for number, window in self._windows.items()
                if window[3] == zone and _DAYS[on.weekday()] in window[0]
            ]
            self._begun[zone, day] = begun
        return begun


def span_at(document: QueueDocument, moment: float) -> Span:
    """Return the span that contains a time, as `DocumentVariants.at` does."""
    return DocumentVariants(document).at(moment)


def spans_of_year(document: QueueDocument, moment: float) -> Iterator[tuple[float, QueueDocument]]:
    """Yield each variant of the document in the year that follows, as `DocumentVariants.of_year` does."""
    return DocumentVariants(document).of_year(moment)


def changed(before: QueueDocument, after: QueueDocument) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of `after` that differ from `before`, by queue."""
    differ: dict[str, dict[str, Any]] = {}
    for path, spec in after.queues.items():
        old = before.queues.get(path)
        if old is not None and spec is not old:
            names = [name for name in HOURS_FIGURES if getattr(spec, name) != getattr(old, name)]
            if names:
                differ[path] = {name: getattr(spec, name) for name in names}
    return differ


def _offset(zone: str, moment: float) -> timedelta | None:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()


def _spec(spec: QueueSpec, entries: Sequence[Hours]) -> QueueSpec:
    """Return a queue with the settings of some of its entries; where two set the same one, the later counts."""
    figures: dict[str, Any] = {}
    for entry in entries:
        for name in HOURS_FIGURES:
            value = getattr(entry, name)
            if isinstance(value, Mapping):
                figures[name] = {**figures.get(name, getattr(spec, name)), **value}
            elif value is not None:
                figures[name] = value
    return replace(spec, **figures) if figures else spec


def _window(entry: Hours) -> Window:
    return entry.days, entry.begins, entry.ends, entry.zone


def _times(window: Window, day: date, place: ZoneInfo) -> tuple[int, int]:
    """Return begin and end of an entry that begins on a local day."""
    _, begins, ends, _ = window
    from_, to = time.fromisoformat(begins), time() if ends == _END else time.fromisoformat(ends)
    return _at(day, from_, place), _at(day + timedelta(days=to <= from_), to, place)


@lru_cache(maxsize=4096)
def _at(day: date, clock: time, place: ZoneInfo) -> int:
    return first_moment(datetime.combine(day, clock), place)
