"""Conversion of declared fields from and to JSON, for the kinds that jobs and other documents share; pure functions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mesos_gpu.model.arrays.indexes import FORM, Unreadable, listed, parsed, text_of
from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.fields import MAX_RECEIVERS, RECEIVER, RECEIVER_FORM, Field, Kind, entry
from mesos_gpu.wire.checking import Check, is_number, is_text, show

Reader = Callable[[Check, Field], Any]  # returns the value of a present field; reports problems to the check
Writer = Callable[[Any], Any]


def read_fields(
    check: Check, fields: Iterable[Field], readers: Mapping[type[Kind], Reader]
) -> dict[str, Any]:
    """Return the values of fields by their names in the dataclass, with defaults for absent ones."""
    return {
        field.name: entry(readers, field.kind)(check, field) if field.key in check.given else field.standard()
        for field in fields
    }


def write_fields(
    value: object, fields: Iterable[Field], writers: Mapping[type[Kind], Writer | None]
) -> dict[str, Any]:
    """Return all fields in the form that `read_fields` parses; null for a field without value."""
    written = {}
    for field in fields:
        item, as_json = getattr(value, field.name), entry(writers, field.kind)
        written[field.key] = item if item is None or as_json is None else as_json(item)
    return written


def _text(check: Check, field: Field) -> str | None:
    kind = field.kind
    assert isinstance(kind, of.Text)
    return check.text(field.key, field.default, kind.pattern, kind.form)


def _secret_path(check: Check, field: Field) -> str | None:
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, of.SecretPath)
    if is_text(got) and kind.pattern.fullmatch(got):
        return str(got)
    check.problem(field.key, f"must be {kind.form}")
    default: str | None = field.default
    return default


def _number(check: Check, field: Field) -> float | None:
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, of.Number)
    if not is_number(got) or not kind.holds(got):
        check.problem(field.key, f"must be {kind.words}, got {show(got)}")
        default: float | None = field.default
        return default
    return float(got) + 0.0  # not -0.0


def _whole(check: Check, field: Field) -> int | None:
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, of.Whole)
    if not is_number(got) or got != int(got) or not kind.holds(got):
        check.problem(field.key, f"must be {kind.words}, got {show(got)}")
        default: int | None = field.default
        return default
    return int(got)


def _flag(check: Check, field: Field) -> bool:
    return check.flag(field.key)


def _one_of(check: Check, field: Field) -> Any:
    kind = field.kind
    assert isinstance(kind, of.OneOf)
    needed = check.given.get(field.needs)
    if field.needs and not (isinstance(needed, str) and needed):
        return field.default  # the field that it needs is missing, which is reported elsewhere
    return check.one_of(field.key, next(iter(kind.of)) if field.default is None else field.default)


def _some_of(check: Check, field: Field) -> tuple[Any, ...]:
    kind, got = field.kind, check.given[field.key]
    assert isinstance(kind, of.SomeOf)
    known = {choice.value: choice for choice in kind.of}
    if not isinstance(got, list) or not all(isinstance(each, str) and each in known for each in got):
        check.problem(field.key, f"must be a list of {', '.join(known)}, got {show(got)}")
        return ()
    return tuple(dict.fromkeys(known[each] for each in got))


def _models(check: Check, field: Field) -> tuple[str, ...]:
    got = check.given[field.key]
    models = [got] if isinstance(got, str) else got
    if not isinstance(models, list) or not all(is_text(m) and m.strip() for m in models):
        check.problem(field.key, f"must be a model or a list of models, got {show(got)}")
        return ()
    if len(set(models)) != len(models):
        check.problem(field.key, f"must not have a model twice, got {show(models)}; remove one")
    return tuple(models)


def _receivers(check: Check, field: Field) -> tuple[str, ...]:
    got = check.given[field.key]
    named = [got] if isinstance(got, str) else got
    if not isinstance(named, list) or len(named) > MAX_RECEIVERS:
        check.problem(field.key, f"must be a list of at most {MAX_RECEIVERS} receivers, got {show(got)}")
        return ()
    for index, receiver in enumerate(named):
        if not isinstance(receiver, str) or not RECEIVER.fullmatch(receiver):
            check.problem(f"{field.key}/{index}", f"must be {RECEIVER_FORM}, got {show(receiver)}")
    return tuple(dict.fromkeys(each for each in named if isinstance(each, str)))


def _indexes(check: Check, field: Field) -> str | None:
    """Return the text of an array's indexes in canonical form."""
    got = check.given[field.key]
    try:
        if isinstance(got, str):
            indexes = parsed(got)
        elif isinstance(got, list) and got and all(type(index) is int for index in got):
            indexes = listed(got)
        else:
            raise Unreadable(FORM)
    except Unreadable as error:
        check.problem(field.key, f"must be {error}; got {show(got)}")
        return None
    return text_of(indexes.runs, indexes.at_once)


def _strings(check: Check, field: Field) -> dict[str, str]:
    kind = field.kind
    assert isinstance(kind, of.Strings)
    return check.strings(field.key, kind.key, kind.without)


PLAIN_READERS: Final[Mapping[type[Kind], Reader]] = {
    of.Text: _text,
    of.SecretPath: _secret_path,
    of.Number: _number,
    of.Whole: _whole,
    of.Flag: _flag,
    of.OneOf: _one_of,
    of.SomeOf: _some_of,
    of.Models: _models,
    of.Receivers: _receivers,
    of.ArrayIndexes: _indexes,
    of.Strings: _strings,
}
#: Conversion to JSON by kind; None if the value is valid JSON already.
PLAIN_WRITERS: Final[Mapping[type[Kind], Writer | None]] = {
    of.Text: None,
    of.Number: None,
    of.Flag: None,
    of.OneOf: lambda choice: choice.value,
    of.SomeOf: lambda choices: [choice.value for choice in choices],
    of.Models: list,
    of.Receivers: list,
    of.ArrayIndexes: None,
    of.Strings: dict,
}
