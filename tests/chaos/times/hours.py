"""Which figures of queues hold at a moment, by what a clock on the wall shows then; worked out apart from the engine.

No begin or end of hours is ever computed here, but by looking minute by minute what a clock shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.tenancy import HOURS_FIGURES, Hours, QueueDocument, QueueSpec, Weekday

MAX_BACK_S: Final = 600.0  # that a clock may be set back, and hours stay as they are
_MINUTE_S: Final = 60
_MINUTE: Final = timedelta(minutes=1)
_DAYS: Final = tuple(Weekday)


def holds(entry: Hours, moment: float) -> bool:
    """Whether an entry does at a moment."""
    day, clock = _shown(entry.zone, moment)
    ends = "24:00" if entry.ends == "00:00" else entry.ends
    if entry.begins < ends:
        return _DAYS[day] in entry.days and entry.begins <= clock < ends
    today, yesterday = _DAYS[day] in entry.days, _DAYS[day - 1] in entry.days
    return (today and clock >= entry.begins) or (yesterday and clock < ends)


def _shown(zone: str, moment: float) -> tuple[int, str]:
    """The day of the week, from 0, and the time that a clock shows. While it shows times for the second time, all of
    them have been."""
    place = ZoneInfo(zone)
    at = datetime.fromtimestamp(moment // _MINUTE_S * _MINUTE_S, UTC)
    while at.astimezone(place).fold and (at + _MINUTE).astimezone(place).fold:
        at += _MINUTE
    there = at.astimezone(place)
    return there.weekday(), f"{there:%H:%M}"


def in_force(document: QueueDocument, moment: float) -> QueueDocument:
    """A document with the figures that its hours give it at a moment; without hours it is the same object."""
    queues = {path: _now(spec, moment) for path, spec in document.queues.items() if spec.hours}
    return replace(document, queues={**document.queues, **queues}) if queues else document


def _now(spec: QueueSpec, moment: float) -> QueueSpec:
    figures: dict[str, Any] = {}
    for entry in spec.hours:
        if holds(entry, moment):
            for name in HOURS_FIGURES:
                value = getattr(entry, name)
                if isinstance(value, Mapping):
                    figures[name] = {**figures.get(name, getattr(spec, name)), **value}
                elif value is not None:
                    figures[name] = value
    return replace(spec, **figures)


@dataclass(slots=True)
class Watch:
    """The time by which hours are looked at: a clock that is set back a little lets none come twice."""

    at: float = 0.0
    made: tuple[QueueDocument, int, QueueDocument] | None = None  # of which document, and in which minute

    def see(self, now: float) -> bool:
        """Take in what the clock of the scheduler's host shows; whether the hours are looked at by it."""
        if self.at - MAX_BACK_S <= now < self.at:
            return False
        self.at = now
        return True

    def document(self, written: QueueDocument) -> QueueDocument:
        """What holds of a document now."""
        minute = int(self.at // _MINUTE_S)
        if self.made is None or self.made[0] is not written or self.made[1] != minute:
            new = in_force(written, self.at)
            same = self.made is not None and self.made[2] == new
            self.made = written, minute, self.made[2] if same and self.made is not None else new
        return self.made[2]
