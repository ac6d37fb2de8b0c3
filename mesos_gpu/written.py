"""What modules have that mesos_gpu/install/lean.py has written out; `dataclasses` takes its classes for its own.

Nothing is imported here before it is asked for: this comes with each executor's start.
"""

from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import Any

at = _tuplegetter  # (index, docstring): the descriptor of one field of a named tuple


class Named:
    """A name for a type: NewType's returns what it is given; annotations join it with others."""

    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        """Nothing changes: the name is for type checkers."""
        return value

    def __or__(self, other: object) -> "Named":
        """`Name | None` is evaluated where a module is imported."""
        return self

    __ror__ = __or__


class Late:
    """The default of a field that is made anew for each object."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        """`make`: as dataclasses' default_factory."""
        self.make = make


class Pattern:
    """A regular expression that is compiled when it is first used: most are for what few tasks have."""

    __slots__ = ("_given",)

    def __init__(self, *given: Any) -> None:
        """`given`: as to `re.compile`, which keeps what it has compiled."""
        self._given = given

    def __getattr__(self, name: str) -> Any:
        """What a compiled one has."""
        import re

        return getattr(re.compile(*self._given), name)


class Fields:
    """The descriptor `__dataclass_fields__`: what `dataclasses.fields`, `replace` and `asdict` look for."""

    __slots__ = ("_untold",)

    def __init__(self, *untold: str) -> None:
        """`untold`: fields that the class' repr leaves out."""
        self._untold = untold

    def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
        """A `dataclasses.Field` for each name, made from what __init__ takes."""
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
    """Do what `dataclasses.replace` does."""
    if not _is_noun(noun.__class__):
        raise TypeError("replace() should be called on dataclass instances")
    given = {name: getattr(noun, name) for name in noun.__match_args__}
    return noun.__class__(**given | changes)


def asdict(noun: Any) -> dict[str, Any]:
    """Do what `dataclasses.asdict` does, but what is neither of such a class nor a row or mapping is not copied."""
    return {name: _plain(getattr(noun, name), asdict) for name in noun.__match_args__}


def astuple(noun: Any) -> tuple[Any, ...]:
    """Do what `dataclasses.astuple` does, but for copies as of `asdict`."""
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
    """Whether it is a dataclass, or is written out as one."""
    return any("__dataclass_fields__" in each.__dict__ for each in kind.__mro__)
