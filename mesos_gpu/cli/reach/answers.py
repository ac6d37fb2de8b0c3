"""Typed answers of the scheduler, also of an earlier release that lacks newer fields.

Importing the types of all answers takes longer than most commands. An answer of a `Kind` is therefore checked against
its type only when a missing field is accessed.
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
PATIENCE_S: Final = 60.0  # how long a command that follows a job waits for the scheduler to return
_SHAPES: Final = "mesos_gpu.api.spec.shapes"


class Kind(Generic[_T]):
    """A type of answers (JSON objects) that is imported lazily.

    Args:
        name: Name of the type.
        module: Module that defines it.
    """

    def __init__(self, name: str, module: str = _SHAPES) -> None:
        self._name, self._module = name, module

    def load(self) -> type[_T]:
        """Import and return the type."""
        return cast("type[_T]", getattr(import_module(self._module), self._name))


class _Record(dict[str, Any]):
    """An object in an answer that completes missing fields on access."""

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
        fails: Function that converts an error into an exception, raised here or on access to a missing field.
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
            return decoded(content, kind.load())  # raises an error with the reason
        except ValueError as error:
            raise fails(error) from error
    return cast("_T", whole[0])


def ended(job: "Job") -> bool:
    """Return whether a job has reached its final state."""
    return JobState(job["state"]).ended


def _no(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _overlay(had: Any, checked: Any) -> None:
    """Add missing fields of the checked answer to the original answer."""
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
    """Return an answer as a type; missing fields that may be None are None.

    Raises:
        msgspec.DecodeError: The answer does not match the type.
    """
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(_filled(msgspec.json.decode(content), kind), kind)
        except msgspec.ValidationError:
            raise error from None  # the error about the original answer


def _filled(value: Any, kind: Any) -> Any:
    """Return the value with None for all missing keys that may be None."""
    import types

    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        fitting = [option for option in inner if option is not type(None)]
        return _filled(value, fitting[0]) if len(fitting) == 1 else value
    if isinstance(value, list) and origin is list:
        return [_filled(item, inner[0]) for item in value]
    if isinstance(value, dict) and origin is dict:
        return {key: _filled(item, inner[1]) for key, item in value.items()}
    if isinstance(value, dict) and typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        missing = {key: None for key, hint in hints.items() if key not in value and _may_be_none(hint)}
        return {**missing, **{key: _filled(item, hints.get(key)) for key, item in value.items()}}
    return value


def _may_be_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)
