"""Answers as types, also those of a scheduler of an earlier release, which does not say what is new since.

The types of all answers take longer to import than most commands take. So an answer of a `Kind` is held against its
type only when a field is asked for that it lacks.
"""

import json
import typing
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

from mesos_gpu.model.job_state import JobState

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job

_T = TypeVar("_T")
PATIENCE_S: Final = 60.0  # how long a command that follows a job outlives the scheduler
_SHAPES: Final = "mesos_gpu.api.spec.shapes"


class Kind(Generic[_T]):
    """A type of answers, a JSON object, that is imported when it is needed."""

    def __init__(self, name: str, module: str = _SHAPES) -> None:
        """Name the type and its module."""
        self._name, self._module = name, module

    def load(self) -> type[_T]:
        """Return the type."""
        return cast("type[_T]", getattr(import_module(self._module), self._name))


class _Record(dict[str, Any]):
    """An object of an answer, which knows how its missing fields are found out."""

    __slots__ = ("complete",)

    def __init__(self, fields: dict[str, Any], complete: Callable[[], None]) -> None:
        super().__init__(fields)
        self.complete = complete

    def __missing__(self, key: str) -> Any:
        self.complete()
        if key in self:
            return self[key]
        raise KeyError(key)


def read(content: bytes, kind: Kind[_T], fails: Callable[[ValueError], Exception]) -> _T:
    """Return an answer; fields that are missing and nullable are None.

    Args:
        content: Body of the response, JSON.
        kind: Type of the answer.
        fails: Function that makes an exception of what is wrong; raised here, or by a field that is missing.
    """
    whole: list[Any] = []

    def complete() -> None:
        try:
            _overlay(whole[0], decoded(content, kind.load()))
        except ValueError as error:
            raise fails(error) from error

    try:
        whole.append(
            json.loads(content, object_hook=lambda fields: _Record(fields, complete), parse_constant=_no)
        )
        if not isinstance(whole[0], dict):
            return decoded(content, kind.load())
    except (ValueError, RecursionError):
        try:
            return decoded(content, kind.load())  # which says what is wrong
        except ValueError as error:
            raise fails(error) from error
    return cast("_T", whole[0])


def ended(job: "Job") -> bool:
    """Whether nothing of a job will change any more."""
    return JobState(job["state"]).ended


def _no(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _overlay(had: Any, checked: Any) -> None:
    """Add the fields of a checked answer to the answer as it came."""
    if isinstance(had, dict) and isinstance(checked, dict):
        for key, value in checked.items():
            if key in had:
                _overlay(had[key], value)
            else:
                had[key] = value
    elif isinstance(had, list) and isinstance(checked, list):
        for mine, other in zip(had, checked, strict=True):
            _overlay(mine, other)


def decoded(content: bytes, kind: type[_T]) -> _T:
    """An answer. What it leaves out is None, if it may be.

    Raises:
        msgspec.DecodeError: It is none of that kind.
    """
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(_filled(msgspec.json.decode(content), kind), kind)
        except msgspec.ValidationError:
            raise error from None  # what is wrong with the answer as it came


def _filled(value: Any, kind: Any) -> Any:
    """The value with None for each key that an object lacks and that may be None."""
    import types

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
