"""Runtime support for modules that mesos_gpu/install/lean.py rewrites; `dataclasses` accepts their classes.

Every executor imports this module at its start, so other modules are only imported when they are needed.
"""

from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import Any

at = _tuplegetter  # (index, docstring): the descriptor of one field of a named tuple


class Named:
    """Stand-in for a NewType, and for a type in annotations."""

    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        """Return the value unchanged, as a NewType does."""
        return value

    def __or__(self, other: object) -> "Named":
        """Return the stand-in itself for `Name | None`, which is evaluated when a module is imported."""
        return self

    __ror__ = __or__


class Late:
    """Default of a field that is created for each object.

    Args:
        make: Function that creates the value, like dataclasses' default_factory.
    """

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


class Pattern:
    """A regular expression that is compiled when it is first used, as most are needed by few tasks only.

    Args:
        given: Arguments of `re.compile`, which caches compiled expressions.
    """

    __slots__ = ("_given",)

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled expression."""
        import re

        return getattr(re.compile(*self._given), name)


class Fields:
    """Descriptor for `__dataclass_fields__`, which `dataclasses.fields`, `replace` and `asdict` read.

    Args:
        untold: Names of fields that the repr of the class leaves out.
    """

    __slots__ = ("_untold",)

    def __init__(self, *untold: str) -> None:
        self._untold = untold

    def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
        """Return a `dataclasses.Field` by field name, made from the parameters of __init__."""
        import dataclasses

        names, defaults = owner.__match_args__, owner.__init__.__defaults__ or ()
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        fields: dict[str, Any] = {}
        for name in names:
            default = given.get(name, dataclasses.MISSING)
            late = isinstance(default, Late)
            field: Any = dataclasses.field(
                **({"default_factory": default.make} if late else {"default": default}),
                repr=name not in self._untold,
            )
            field.name, field._field_type = name, dataclasses._FIELD  # type: ignore[attr-defined]
            fields[name] = field
        return fields


def replace(noun: Any, /, **changes: Any) -> Any:
    """Return a copy with changed fields, like `dataclasses.replace`, without importing dataclasses in executors."""
    if not _is_noun(noun.__class__):
        raise TypeError("replace() should be called on dataclass instances")
    given = {name: getattr(noun, name) for name in noun.__match_args__}
    return noun.__class__(**given | changes)


def asdict(noun: Any) -> dict[str, Any]:
    """Return the fields as a dict, like `dataclasses.asdict`; only dataclasses and containers are copied."""
    return {name: _plain(getattr(noun, name), asdict) for name in noun.__match_args__}


def astuple(noun: Any) -> tuple[Any, ...]:
    """Return the fields as a tuple, like `dataclasses.astuple`, with copies as in `asdict`."""
    return tuple(_plain(getattr(noun, name), astuple) for name in noun.__match_args__)


def _plain(value: Any, of_noun: Callable[[Any], Any]) -> Any:
    kind = value.__class__
    if kind in (str, int, float, bool, bytes, type(None)):
        return value
    if _is_noun(kind):
        return of_noun(value)
    if isinstance(value, tuple | list):
        items = [_plain(each, of_noun) for each in value]
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(value, dict):
        return kind((_plain(name, of_noun), _plain(each, of_noun)) for name, each in value.items())
    return value


def _is_noun(kind: type) -> bool:
    """Return whether a type is a dataclass, or was rewritten from one."""
    return any("__dataclass_fields__" in each.__dict__ for each in kind.__mro__)
