"""Assignments to fields of an app by dotted path, "env.LANG" or "healthChecks.0.path", with values as text; pure."""

import copy
import difflib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.wire.checking import MEANT
from mesos_gpu.wire.marathon.kinds import (
    Choice,
    Flag,
    Keyed,
    Kind,
    ListOf,
    MapOf,
    Number,
    Record,
    TextOr,
    Wrapped,
)
from mesos_gpu.wire.marathon.problems import NOT_VALID, Report
from mesos_gpu.wire.marathon.shapes import APP

_SAYS_NOTHING: Final[tuple[object, ...]] = (
    None,
    [],
    {},
    "",
)  # values of obsolete fields in Marathon's output that mean nothing


class WrongAssignment(ValueError):
    """Error of an assignment that names no field, or whose value has another type than the field."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment of `value`, which is JSON of the field's type."""

    path: tuple[str | int, ...]
    value: Any


def assignment_of(key: str, text: str) -> Assignment:
    """Parse an assignment. Values of text fields are taken as they are, others as JSON; lists of texts may have commas.

    Raises:
        WrongAssignment: The field does not exist, or the text is not a valid value of it.
    """
    path, kind = _way(key)
    for value in _readings(text, kind):
        report = Report()
        kind.read(value, report)
        problems = report.problems()
        if problems is None or problems.message == NOT_VALID:  # ranges are checked with the whole app
            return Assignment(path, value)
    raise WrongAssignment(f"{key}: {text!r} is not {_form(kind)}")


def path_of(key: str) -> tuple[str | int, ...]:
    """Parse the dotted path of a field.

    Raises:
        WrongAssignment: The field does not exist.
    """
    return _way(key)[0]


def unknown_fields(value: object, kind: Kind = APP, path: str = "") -> list[str]:
    """Return fields in an app's JSON that Marathon does not know and ignores, each with a suggestion if there is
    one."""
    kind = _inner(kind)
    if isinstance(kind, ListOf) and isinstance(value, list):
        return [
            name for i, item in enumerate(value) for name in unknown_fields(item, kind.item, f"{path}{i}.")
        ]
    if isinstance(kind, Wrapped) and isinstance(value, dict):
        return unknown_fields(value.get(kind.key), kind.item, f"{path}{kind.key}.")
    if not isinstance(kind, Record) or not isinstance(value, dict):
        return []
    fields = {field.key: field.kind for field in kind.fields}
    unknown = []
    for key, item in value.items():
        if key in fields:
            unknown += unknown_fields(item, fields[key], f"{path}{key}.")
        elif item not in _SAYS_NOTHING:
            unknown.append(
                f"{path}{key}" + "".join(f" (did you mean {near}?)" for near in _near(key, fields))
            )
    return unknown


def _near(name: str, names: Collection[str]) -> list[str]:
    meant = [key for key in MEANT.get(name.lower(), ()) if key in names]
    return meant[:1] or difflib.get_close_matches(name, list(names), n=1)


def assigned(app: dict[str, Any], assignments: Sequence[Assignment]) -> dict[str, Any]:
    """Return the top-level fields of an app's JSON that assignments change, with their new values, for a PATCH.

    Raises:
        WrongAssignment: An index is beyond the end of its list.
    """
    changed: dict[str, Any] = {}
    for assignment in assignments:
        top, *rest = assignment.path
        changed.setdefault(str(top), copy.deepcopy(app.get(str(top))))
        changed[str(top)] = _with(changed[str(top)], rest, assignment)
    return changed


def without(app: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return the top-level field of an app's JSON without what is at `path`; None as its value if `path` is the field.

    Raises:
        WrongAssignment: Nothing exists at `path`.
    """
    within = {str(path[0]): copy.deepcopy(app.get(str(path[0])))}
    at: Any = within
    try:
        for step in path[:-1]:
            at = at[step]
        if at[path[-1]] is None:
            raise KeyError(path[-1])
        del at[path[-1]]
    except (KeyError, IndexError, TypeError):
        raise WrongAssignment(f"{'.'.join(map(str, path))}: the app does not have it") from None
    return within or {str(path[0]): None}


def _form(kind: Kind) -> str:
    """Return a description of the values of a kind."""
    match kind:
        case Number(whole=True):
            return "a whole number"
        case Number():
            return "a number"
        case Flag():
            return "true or false"
        case Choice(of=kinds):
            return f"one of {', '.join(str(member.value) for member in kinds)}"
        case ListOf():
            return "a list, as JSON, or as text with commas if its items are text"
        case _:
            return "its JSON"


def _with(value: Any, path: Sequence[str | int], of: Assignment) -> Any:
    if not path:
        return of.value
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        value = value if isinstance(value, dict) else {}
        value[step] = _with(value.get(step), rest, of)
        return value
    value = value if isinstance(value, list) else []
    if step > len(value):
        name = ".".join(map(str, of.path))
        raise WrongAssignment(f"{name}: the list has {len(value)} items; use {len(value)} to append one")
    return [*value[:step], _with(value[step] if step < len(value) else None, rest, of), *value[step + 1 :]]


def _readings(text: str, kind: Kind) -> list[Any]:
    """Return the possible meanings of a text, the most likely first."""
    readings: list[Any] = [text]
    try:
        readings.insert(0 if isinstance(kind, ListOf | MapOf) else 1, json.loads(text))
    except ValueError:
        if isinstance(kind, ListOf):
            readings.insert(0, [part.strip() for part in text.split(",") if part.strip()])
    return readings


def _way(key: str) -> tuple[tuple[str | int, ...], Kind]:
    """Return the steps to a field, and its kind. A path below a map is a single key, also with dots."""
    kind: Kind = APP
    path: list[str | int] = []
    steps = key.split(".")
    while steps:
        kind = _inner(kind)
        if isinstance(kind, MapOf):
            path.append(".".join(steps))
            if not path[-1]:
                raise WrongAssignment(f"{key}: a name must follow the dot")
            return tuple(path), kind.item
        step = steps.pop(0)
        if isinstance(kind, ListOf) and step.isdecimal():
            path.append(int(step))
            kind = kind.item
        elif isinstance(kind, Wrapped) and step == kind.key:
            path.append(step)
            kind = kind.item
        elif isinstance(kind, Record):
            path.append(step)
            kind = _field(kind, step, key)
        else:
            at = ".".join(map(str, path))
            wants = "a number, from 0" if isinstance(kind, ListOf) else "nothing"
            raise WrongAssignment(f"{key}: after {at} must follow {wants}, got {step!r}")
    return tuple(path), kind


def _inner(kind: Kind) -> Kind:
    """Return the kind that has the fields of a kind."""
    if isinstance(kind, TextOr):
        return _inner(kind.other)
    if isinstance(kind, Keyed):
        fields = [field for each in kind.by_key.values() if isinstance(each, Record) for field in each.fields]
        return Record(tuple({field.key: field for field in fields}.values()))
    fields_of = getattr(kind, "fields", None)
    return fields_of if isinstance(fields_of, Record) else kind


def _field(record: Record, step: str, key: str) -> Kind:
    kind = next((field.kind for field in record.fields if field.key == step), None)
    if kind is None:
        names = [field.key for field in record.fields]
        near = _near(step, names)
        raise WrongAssignment(
            f"{key}: there is no field {step}; "
            + (f"did you mean {near[0]}?" if near else f"fields are {', '.join(names)}")
        )
    return kind
