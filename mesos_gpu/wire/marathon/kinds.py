"""How a value of a field is read from JSON and written to it: one table serves both directions. Pure.

A kind reads what it can. A value that is out of its range is reported and given all the same: the rules that
come later look at the whole. What is of another type is reported, and None.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from mesos_gpu.wire.checking import is_number
from mesos_gpu.wire.marathon.problems import Report

LARGEST_INTEGER: Final = 2**31 - 1
_EXACT: Final = 2**53  # a float beyond holds no more the integer that was meant
_UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")  # neither execve nor a store takes it


class Kind(Protocol):
    """The kind of a field's value."""

    def read(self, value: object, report: Report) -> Any:
        """What the value says; None, after a report, if it says nothing that can be used."""

    def write(self, value: Any) -> object:
        """Write a value as JSON."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string of `least` to `most` characters. `pattern` must match all of it."""

    least: int = 0
    most: int | None = None
    pattern: re.Pattern[str] | None = None

    def read(self, value: object, report: Report) -> str | None:
        """See `Kind`."""
        if not isinstance(value, str):
            report.mistyped("error.expected.jsstring")
            return None
        if why := self._problem(value):
            report.wrong(why)
        return value

    def _problem(self, value: str) -> str:
        if _UNFIT.search(value):
            return "must not have a NUL in it"
        if len(value) < self.least:
            return "must not be empty"
        if self.most is not None and len(value) > self.most:
            return f"is longer than {self.most} characters"
        if self.pattern and not self.pattern.fullmatch(value):
            return f"must fully match regular expression '{self.pattern.pattern}'"
        return ""

    def write(self, value: str) -> str:
        """See `Kind`."""
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number; `whole` ones may be written as 3.0, and are read as int."""

    least: float | None = None
    most: float | None = None
    whole: bool = False

    def read(self, value: object, report: Report) -> float | int | None:
        """See `Kind`."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_number(value):
            report.mistyped("error.expected.jsnumber")
            return None
        if self.whole and (value != int(value) or abs(value) > LARGEST_INTEGER):
            report.mistyped("error.expected.int")
            return None
        if self.least is not None and value < self.least:
            report.wrong(f"is less than {plain(self.least)}")
        if self.most is not None and value > self.most:
            report.wrong(f"is greater than {plain(self.most)}")
        return int(value) if self.whole else float(value)

    def write(self, value: float) -> float:
        """See `Kind`."""
        return plain(value)


def plain(value: float) -> float:
    """An int where it is the same: clients choke on "instances": 3.0."""
    return int(value) if value == int(value) and abs(value) < _EXACT else value


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def read(self, value: object, report: Report) -> bool | None:
        """See `Kind`."""
        if not isinstance(value, bool):
            report.mistyped("error.expected.jsboolean")
            return None
        return value

    def write(self, value: bool) -> bool:
        """See `Kind`."""
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of an enum's values."""

    of: type[Enum]

    def read(self, value: object, report: Report) -> Enum | None:
        """See `Kind`."""
        if not isinstance(value, str):
            report.mistyped("error.expected.jsstring")
            return None
        choice = next((member for member in self.of if member.value == value), None)
        if choice is None:
            report.mistyped("error.unknown.enum.literal")
        return choice

    def write(self, value: Enum) -> object:
        """See `Kind`."""
        return value.value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; of `distinct` ones a repetition is dropped, as a set does."""

    item: Kind
    distinct: bool = False
    least: int = 0

    def read(self, value: object, report: Report) -> tuple[Any, ...] | None:
        """See `Kind`."""
        if not isinstance(value, list):
            report.mistyped("error.expected.jsarray")
            return None
        items = []
        for i, item in enumerate(value):
            with report.at(i):
                read = self.item.read(item, report)
            if read is not None:
                items.append(read)
        if len(value) < self.least:
            report.wrong("must not be empty")
        return tuple(dict.fromkeys(items)) if self.distinct else tuple(items)

    def write(self, value: tuple[Any, ...]) -> list[object]:
        """See `Kind`."""
        return [self.item.write(item) for item in value]


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any keys."""

    item: Kind

    def read(self, value: object, report: Report) -> dict[str, Any] | None:
        """See `Kind`."""
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        items = {}
        for key, item in value.items():
            with report.at(key):
                if _UNFIT.search(key):
                    report.wrong("must not have a NUL in its name")
                read = self.item.read(item, report)
            if read is not None:
                items[key] = read
        return items

    def write(self, value: Mapping[str, Any]) -> dict[str, object]:
        """See `Kind`."""
        return {key: self.item.write(item) for key, item in value.items()}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A value that is the only one of an object: {"secret": ...}. `made` makes a noun of it."""

    key: str
    item: Kind
    made: Callable[[Any], Any] | None = None
    attribute: str = ""  # of that noun

    def read(self, value: object, report: Report) -> Any:
        """See `Kind`."""
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        if value.get(self.key) is None:
            report.mistyped("error.path.missing", self.key)
            return None
        with report.at(self.key):
            item = self.item.read(value[self.key], report)
        return self.made(item) if self.made and item is not None else item

    def write(self, value: Any) -> dict[str, object]:
        """See `Kind`."""
        return {self.key: self.item.write(getattr(value, self.attribute) if self.attribute else value)}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: `key` in JSON is `name` here. What is None, or empty and `omit_empty`, is not written."""

    key: str
    name: str
    kind: Kind
    required: bool = False
    omit_empty: bool = False
    legacy: bool = False  # read only: the rules turn it into something else


@dataclass(frozen=True, slots=True)
class Record:
    """An object whose fields are known. Null is as absent; other keys are ignored unless it is `strict`.

    Without `made` it gives a dict by name of what was sent, for rules that must know what was.
    """

    fields: tuple[Field, ...]
    made: Callable[..., Any] | None = None
    strict: bool = False

    def read(self, value: object, report: Report) -> Any:
        """See `Kind`."""
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        values, whole = {}, True
        for known in self.fields:
            given = value.get(known.key)
            if given is None:
                whole = whole and not known.required
                if known.required:
                    report.mistyped("error.path.missing", known.key)
                continue
            with report.at(known.key):
                item = known.kind.read(given, report)
            whole = whole and (item is not None or not known.required)
            if item is not None:
                values[known.name] = item
        if self.strict:
            self._refuse_unknown(value, report)
        if self.made is None:
            return values
        return self.made(**values) if whole else None

    def _refuse_unknown(self, value: dict[str, object], report: Report) -> None:
        known = [known.key for known in self.fields]
        for key in value:
            if key not in known:
                report.wrong(f"unknown field; known are {', '.join(known)}", key)

    def write(self, value: Any) -> dict[str, object]:
        """See `Kind`."""
        written = {}
        for known in self.fields:
            item = None if known.legacy else getattr(value, known.name)
            if item is not None and not (known.omit_empty and not item):
                written[known.key] = known.kind.write(item)
        return written


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that Marathon knows and that is not offered here: said, never passed over."""

    why: str

    def read(self, value: object, report: Report) -> None:
        """See `Kind`."""
        report.wrong(self.why)

    def write(self, value: Any) -> object:
        """See `Kind`: there is none."""
        return value


@dataclass(frozen=True, slots=True)
class Keyed:
    """An object that is one of several, told apart by which of the keys it has."""

    by_key: Mapping[str, Kind]
    of: Callable[[Any], str]  # the key that a noun is written with

    def read(self, value: object, report: Report) -> Any:
        """See `Kind`."""
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        for key, kind in self.by_key.items():
            if value.get(key) is not None:
                return kind.read(value, report)
        report.mistyped("error.path.missing", list(self.by_key)[-1])
        return None

    def write(self, value: Any) -> object:
        """See `Kind`."""
        return self.by_key[self.of(value)].write(value)


@dataclass(frozen=True, slots=True)
class TextOr:
    """A string, or else what `other` reads. `text` says which strings."""

    text: Kind
    other: Kind

    def read(self, value: object, report: Report) -> Any:
        """See `Kind`."""
        return (self.text if isinstance(value, str) else self.other).read(value, report)

    def write(self, value: Any) -> object:
        """See `Kind`."""
        return (self.text if isinstance(value, str) else self.other).write(value)
