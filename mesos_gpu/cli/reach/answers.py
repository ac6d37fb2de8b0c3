"""Answers as types, also those of a scheduler of an earlier release, which does not say what is new since."""

import types
import typing
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


def decoded(content: bytes, kind: type[_T]) -> _T:
    """An answer. What it leaves out is None, if it may be.

    Raises:
        msgspec.DecodeError: It is none of that kind.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(_filled(msgspec.json.decode(content), kind), kind)
        except msgspec.ValidationError:
            raise error from None  # what is wrong with the answer as it came


def _filled(value: Any, kind: Any) -> Any:
    """The value with None for each key that an object lacks and that may be None."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        fitting = [each for each in inner if each is not type(None)]
        return _filled(value, fitting[0]) if len(fitting) == 1 else value
    if isinstance(value, list) and origin is list:
        return [_filled(each, inner[0]) for each in value]
    if isinstance(value, dict) and origin is dict:
        return {key: _filled(each, inner[1]) for key, each in value.items()}
    if isinstance(value, dict) and typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        missing = {key: None for key, hint in hints.items() if key not in value and _may_be_none(hint)}
        return {**missing, **{key: _filled(each, hints.get(key)) for key, each in value.items()}}
    return value


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)
