"""Conversion of types to JSON Schema: TypedDicts of texts, numbers, lists, mappings and each other.

msgspec is not used for this: after its version 0.22 has read TypedDicts, Python 3.11 sometimes crashes in its garbage
collector.
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


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity, as part of a union
class Says:
    """JSON Schema keywords that annotate a type."""

    keywords: Mapping[str, Any]


def says(**keywords: Any) -> Says:
    """Return an annotation of a type with JSON Schema keywords."""
    return Says(keywords)


def one_of(*values: Enum) -> Says:
    """Return an annotation that restricts a type to the values of enumeration members."""
    return says(enum=[value.value for value in values])


def declare(shape: Any, hints: Mapping[str, Any]) -> None:
    """Add fields to a TypedDict, or replace types of its fields, before other types are derived from it."""
    shape.__annotations__ = {
        **hints,
        **{key: hint for key, hint in shape.__annotations__.items() if key not in hints},
    }
    if shape.__total__:
        shape.__required_keys__ = frozenset(shape.__annotations__)
    else:
        shape.__optional_keys__ = frozenset(shape.__annotations__)


class Schemas:
    """Converter of types that collects the schemas of TypedDicts.

    A field is described by the annotations of its type.

    Args:
        reference: Form of the references to collected schemas, with {name}.
    """

    def __init__(self, reference: str) -> None:
        self.components: dict[str, Schema] = {}
        self._reference = reference

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type.

        Raises:
            TypeError: The type is not supported.
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
            return _any_of([self.of(member) for member in inner])
        if origin in (Required, NotRequired):
            return self.of(inner[0])
        if origin is list:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is dict:
            keys = {key: keyword for key, keyword in self.of(inner[0]).items() if key != "type"}
            names = {"propertyNames": keys} if keys else {}
            return {"type": "object", **names, "additionalProperties": self.of(inner[1])}
        raise TypeError(f"{kind} has no JSON Schema here")

    def _named(self, kind: Any) -> Schema:
        """Return a reference to the schema of a TypedDict, which is added to the components."""
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
    """Return the schema of a union. Null becomes a second type of a single other type; integer is part of number."""
    null, number = {"type": "null"}, {"type": "number"}
    kinds = [kind for kind in kinds if kind != {"type": "integer"} or number not in kinds]
    others = [kind for kind in kinds if kind != null]
    if len(kinds) == 1:
        return kinds[0]
    if len(others) == len(kinds) or len(others) > 1 or "type" not in others[0]:
        return {"anyOf": kinds}
    nullable = {**others[0], "type": [others[0]["type"], "null"]}
    if "enum" in nullable:
        nullable["enum"] = [*nullable["enum"], None]
    return nullable
