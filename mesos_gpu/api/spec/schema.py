"""Types as JSON Schema: TypedDicts of texts, numbers, lists, mappings and each other; api/shapes.py has them.

Not by msgspec: where its 0.22 has read TypedDicts, Python 3.11 dies now and then in its garbage collector.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Schema = dict[str, Any]
_PLAIN: Final[dict[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    NoneType: "null",
}


@dataclass(frozen=True, slots=True, eq=False)  # parts of a union are hashed: by identity
class Says:
    """What stands beside a type: keywords of JSON Schema."""

    keywords: Mapping[str, Any]


def says(**keywords: Any) -> Says:
    """Keywords of the schema, to stand beside a type."""
    return Says(keywords)


def one_of(*values: Enum) -> Says:
    """These values and no others."""
    return says(enum=[value.value for value in values])


def declare(shape: Any, hints: Mapping[str, Any]) -> None:
    """Give a TypedDict fields that its source does not name, or other types for those that it does; before others are
    made of it."""
    shape.__annotations__ = {
        **hints,
        **{key: hint for key, hint in shape.__annotations__.items() if key not in hints},
    }
    if shape.__total__:
        shape.__required_keys__ = frozenset(shape.__annotations__)
    else:
        shape.__optional_keys__ = frozenset(shape.__annotations__)


class Schemas:
    """Collects the TypedDicts that it meets; a field of theirs is described by what stands beside its type."""

    def __init__(self, reference: str) -> None:
        """`reference`: where a component will be, with {name}."""
        self.components: dict[str, Schema] = {}
        self._reference = reference

    def of(self, kind: Any) -> Schema:
        """What stands for a type.

        Raises:
            TypeError: It is of no such kind.
        """
        if kind is Any:
            return {}
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if is_typeddict(kind):
            return self._named(kind)
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            described = self.of(inner[0])
            for beside in inner[1:]:
                described |= beside.keywords
            return described
        if origin in (Union, UnionType):
            return _any_of([self.of(each) for each in inner])
        if origin in (Required, NotRequired):
            return self.of(inner[0])
        if origin is list:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is dict:
            keys = {key: each for key, each in self.of(inner[0]).items() if key != "type"}
            names = {"propertyNames": keys} if keys else {}
            return {"type": "object", **names, "additionalProperties": self.of(inner[1])}
        raise TypeError(f"{kind} has no JSON Schema here")

    def _named(self, kind: Any) -> Schema:
        name = kind.__name__
        if name not in self.components:
            fields = get_type_hints(kind, include_extras=True)
            self.components[name] = {
                "description": " ".join(inspect.cleandoc(kind.__doc__).split()),
                "type": "object",
                "properties": {key: self.of(field) for key, field in fields.items()},
                "required": [key for key in fields if key in kind.__required_keys__],
            }
        return {"$ref": self._reference.format(name=name)}


def _any_of(kinds: list[Schema]) -> Schema:
    """Join kinds; a kind that may be null is written with null among its types, and every integer is a number."""
    null, number = {"type": "null"}, {"type": "number"}
    kinds = [each for each in kinds if each != {"type": "integer"} or number not in kinds]
    others = [each for each in kinds if each != null]
    if len(kinds) == 1:
        return kinds[0]
    if len(others) == len(kinds) or len(others) > 1 or "type" not in others[0]:
        return {"anyOf": kinds}
    nullable = {**others[0], "type": [others[0]["type"], "null"]}
    if "enum" in nullable:
        nullable["enum"] = [*nullable["enum"], None]
    return nullable
