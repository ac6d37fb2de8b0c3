"""Figures of queues in force at a time, by the time of day in the zone of their hours; independent of the engine.

Begins and ends of hours are never computed here: each minute the time of day is compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.tenancy import HOURS_FIGURES, Hours, QueueDocument, QueueSpec, Weekday

MAX_BACK_S: Final = 600.0  # seconds by which a clock may be set back without a change of hours
_MINUTE_S: Final = 60
_MINUTE: Final = timedelta(minutes=1)
_DAYS: Final = tuple(Weekday)


def holds(entry: Hours, moment: float) -> bool:
    """Return whether an entry of hours is in force at a time."""
    day, clock = _shown(entry.zone, moment)
    ends = "24:00" if entry.ends == "00:00" else entry.ends
    if entry.begins < ends:
        return _DAYS[day] in entry.days and entry.begins <= clock < ends
    today, yesterday = _DAYS[day] in entry.days, _DAYS[day - 1] in entry.days
    return (today and clock >= entry.begins) or (yesterday and clock < ends)


def _shown(zone: str, moment: float) -> tuple[int, str]:
    """Return the day of the week, from 0, and the time of day in a zone.

    While times of day repeat, as summer time ends, it is the time after the repetition.
    """
    place = ZoneInfo(zone)
    at = datetime.fromtimestamp(moment // _MINUTE_S * _MINUTE_S, UTC)
    while at.astimezone(place).fold and (at + _MINUTE).astimezone(place).fold:
        at += _MINUTE
    there = at.astimezone(place)
    return there.weekday(), f"{there:%H:%M}"


def in_force(document: QueueDocument, moment: float) -> QueueDocument:
    """Return a document with the figures of its hours at a time; the same object if it has no hours."""
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
    """The time by which hours apply: it does not go back if a clock is set back a little."""

    at: float = 0.0
    made: tuple[QueueDocument, int, QueueDocument] | None = (
        None  # document, minute and result of the latest call
    )

    def see(self, now: float) -> bool:
        """Take over the time of the scheduler's host, and return whether hours apply by it."""
        if self.at - MAX_BACK_S <= now < self.at:
            return False
        self.at = now
        return True

    def document(self, written: QueueDocument) -> QueueDocument:
        """Return a document with the figures in force."""
        minute = int(self.at // _MINUTE_S)
        if self.made is None or self.made[0] is not written or self.made[1] != minute:
            new = in_force(written, self.at)
            same = self.made is not None and self.made[2] == new
            self.made = written, minute, self.made[2] if same and self.made is not None else new
        return self.made[2]
