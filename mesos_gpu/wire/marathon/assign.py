"""Fields of an app named by a dotted path, "env.LANG" or "healthChecks.0.path", with values as text. Pure."""

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
)  # values of a field that Marathon printed and has no more


class WrongAssignment(ValueError):
    """An assignment that names no field, or whose value is of another type than the field's."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`value` is JSON, of the field's type."""

    path: tuple[str | int, ...]
    value: Any


def assignment_of(key: str, text: str) -> Assignment:
    """Read one: text as it is for a field that is text, else JSON; a list of texts may be written with commas.

    Raises:
        WrongAssignment: See there.
    """
    path, kind = _way(key)
    for value in _readings(text, kind):
        report = Report()
        kind.read(value, report)
        problems = report.problems()
        if problems is None or problems.message == NOT_VALID:  # the range is the whole app's affair
            return Assignment(path, value)
    raise WrongAssignment(f"{key}: {text!r} is not {_form(kind)}")


def path_of(key: str) -> tuple[str | int, ...]:
    """Read the path of a field.

    Raises:
        WrongAssignment: There is none of that name.
    """
    return _way(key)[0]


def unknown_fields(value: object, kind: Kind = APP, path: str = "") -> list[str]:
    """What the JSON of an app has that no app has: Marathon ignores it. Each with the field that it may be."""
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
    meant = [each for each in MEANT.get(name.lower(), ()) if each in names]
    return meant[:1] or difflib.get_close_matches(name, list(names), n=1)


def assigned(app: dict[str, Any], assignments: Sequence[Assignment]) -> dict[str, Any]:
    """The top fields of the app's JSON that have another value then: what a PATCH has to say.

    Raises:
        WrongAssignment: A list has no such item.
    """
    changed: dict[str, Any] = {}
    for each in assignments:
        top, *rest = each.path
        changed.setdefault(str(top), copy.deepcopy(app.get(str(top))))
        changed[str(top)] = _with(changed[str(top)], rest, each)
    return changed


def without(app: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    """The top field of the app's JSON without what is at `path`; None if that is the field itself.

    Raises:
        WrongAssignment: There is nothing.
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
    """What a value of it is."""
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
        raise WrongAssignment(f"{name}: there are {len(value)} items; the next has the number {len(value)}")
    return [*value[:step], _with(value[step] if step < len(value) else None, rest, of), *value[step + 1 :]]


def _readings(text: str, kind: Kind) -> list[Any]:
    """What `text` may mean, the likeliest first."""
    readings: list[Any] = [text]
    try:
        readings.insert(0 if isinstance(kind, ListOf | MapOf) else 1, json.loads(text))
    except ValueError:
        if isinstance(kind, ListOf):
            readings.insert(0, [part.strip() for part in text.split(",") if part.strip()])
    return readings


def _way(key: str) -> tuple[tuple[str | int, ...], Kind]:
    """Steps down to a field, and its kind. What is below a map is one key, whatever dots it has."""
    kind: Kind = APP
    path: list[str | int] = []
    steps = key.split(".")
    while steps:
        kind = _inner(kind)
        if isinstance(kind, MapOf):
            path.append(".".join(steps))
            if not path[-1]:
                raise WrongAssignment(f"{key}: after the dot follows a name")
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
            raise WrongAssignment(f"{key}: after {at} follows {wants}, and not {step!r}")
    return tuple(path), kind


def _inner(kind: Kind) -> Kind:
    """The one with the fields."""
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
            + (f"is it {near[0]}?" if near else f"there are {', '.join(names)}")
        )
    return kind
