"""Kinds of fields, which define both parsing from JSON and writing to JSON; pure functions.

A value out of range is reported but still returned, so that later rules can check the whole. A value of a wrong type
is reported, and None is returned.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from mesos_gpu.wire.checking import is_number
from mesos_gpu.wire.marathon.problems import Report

LARGEST_INTEGER: Final = 2**31 - 1
_EXACT: Final = 2**53  # larger floats cannot represent all integers
_UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")  # characters that neither execve nor a store accepts


class Kind(Protocol):
    """Interface of a kind of field values."""

    def read(self, value: object, report: Report) -> Any:
        """Return the parsed value; None, after a report, if it has a wrong type."""

    def write(self, value: Any) -> object:
        """Return a value as JSON."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string of `least` to `most` characters that `pattern` matches as a whole."""

    least: int = 0
    most: int | None = None
    pattern: re.Pattern[str] | None = None

    def read(self, value: object, report: Report) -> str | None:
        if not isinstance(value, str):
            report.mistyped("error.expected.jsstring")
            return None
        if why := self._problem(value):
            report.wrong(why)
        return value

    def _problem(self, value: str) -> str:
        if _UNFIT.search(value):
            return "must not contain NUL"
        if len(value) < self.least:
            return "must not be empty"
        if self.most is not None and len(value) > self.most:
            return f"is longer than {self.most} characters"
        if self.pattern and not self.pattern.fullmatch(value):
            return f"must fully match regular expression '{self.pattern.pattern}'"
        return ""

    def write(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number. Whole ones may be written as 3.0, and are returned as int."""

    least: float | None = None
    most: float | None = None
    whole: bool = False

    def read(self, value: object, report: Report) -> float | int | None:
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
        return plain(value)


def plain(value: float) -> float:
    """Return an int if the value is whole, as some clients cannot parse "instances": 3.0."""
    return int(value) if value == int(value) and abs(value) < _EXACT else value


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false, as a boolean."""

    def read(self, value: object, report: Report) -> bool | None:
        if not isinstance(value, bool):
            report.mistyped("error.expected.jsboolean")
            return None
        return value

    def write(self, value: bool) -> bool:
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of an enum."""

    of: type[Enum]

    def read(self, value: object, report: Report) -> Enum | None:
        if not isinstance(value, str):
            report.mistyped("error.expected.jsstring")
            return None
        choice = next((member for member in self.of if member.value == value), None)
        if choice is None:
            report.mistyped("error.unknown.enum.literal")
        return choice

    def write(self, value: Enum) -> object:
        return value.value


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; if `distinct`, repeated items are dropped as in a set."""

    item: Kind
    distinct: bool = False
    least: int = 0

    def read(self, value: object, report: Report) -> tuple[Any, ...] | None:
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
        return [self.item.write(item) for item in value]


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any keys, and values of one kind."""

    item: Kind

    def read(self, value: object, report: Report) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        items = {}
        for key, item in value.items():
            with report.at(key):
                if _UNFIT.search(key):
                    report.wrong("must not have NUL in its name")
                read = self.item.read(item, report)
            if read is not None:
                items[key] = read
        return items

    def write(self, value: Mapping[str, Any]) -> dict[str, object]:
        return {key: self.item.write(item) for key, item in value.items()}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A value as the only field of an object, as in {"secret": …}. `made` constructs an object from it."""

    key: str
    item: Kind
    made: Callable[[Any], Any] | None = None
    attribute: str = ""  # attribute of that object with the value

    def read(self, value: object, report: Report) -> Any:
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
        return {self.key: self.item.write(getattr(value, self.attribute) if self.attribute else value)}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: `key` in JSON, `name` in code. None, or an empty value with `omit_empty`, is not written."""

    key: str
    name: str
    kind: Kind
    required: bool = False
    omit_empty: bool = False
    legacy: bool = False  # only parsed, and converted to current fields


@dataclass(frozen=True, slots=True)
class Record:
    """An object with known fields. Null counts as absent; other keys are ignored unless `strict`.

    Without `made` it returns a dict of the sent fields by name, for rules that depend on what was sent.
    """

    fields: tuple[Field, ...]
    made: Callable[..., Any] | None = None
    strict: bool = False

    def read(self, value: object, report: Report) -> Any:
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        values, whole = {}, True
        for field in self.fields:
            given = value.get(field.key)
            if given is None:
                whole = whole and not field.required
                if field.required:
                    report.mistyped("error.path.missing", field.key)
                continue
            with report.at(field.key):
                item = field.kind.read(given, report)
            whole = whole and (item is not None or not field.required)
            if item is not None:
                values[field.name] = item
        if self.strict:
            self._refuse_unknown(value, report)
        if self.made is None:
            return values
        return self.made(**values) if whole else None

    def _refuse_unknown(self, value: dict[str, object], report: Report) -> None:
        known = [keys.key for keys in self.fields]
        for key in value:
            if key not in known:
                report.wrong(f"unknown field; known fields are {', '.join(known)}", key)

    def write(self, value: Any) -> dict[str, object]:
        written = {}
        for field in self.fields:
            item = None if field.legacy else getattr(value, field.name)
            if item is not None and not (field.omit_empty and not item):
                written[field.key] = field.kind.write(item)
        return written


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that Marathon knows but that is not supported here, so that it is refused with a reason."""

    why: str

    def read(self, value: object, report: Report) -> None:
        report.wrong(self.why)

    def write(self, value: Any) -> object:
        return value


@dataclass(frozen=True, slots=True)
class Keyed:
    """An object of one of several kinds, selected by which key it has."""

    by_key: Mapping[str, Kind]
    of: Callable[[Any], str]  # returns the key of the kind to write a value with

    def read(self, value: object, report: Report) -> Any:
        if not isinstance(value, dict):
            report.mistyped("error.expected.jsobject")
            return None
        for key, kind in self.by_key.items():
            if value.get(key) is not None:
                return kind.read(value, report)
        report.mistyped("error.path.missing", list(self.by_key)[-1])
        return None

    def write(self, value: Any) -> object:
        return self.by_key[self.of(value)].write(value)


@dataclass(frozen=True, slots=True)
class TextOr:
    """A string of the kind `text`, or a value of the kind `other`."""

    text: Kind
    other: Kind

    def read(self, value: object, report: Report) -> Any:
        return (self.text if isinstance(value, str) else self.other).read(value, report)

    def write(self, value: Any) -> object:
        return (self.text if isinstance(value, str) else self.other).write(value)
