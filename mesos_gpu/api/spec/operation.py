"""An operation of /v1, as its OpenAPI document has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mesos_gpu.api.spec.schema import Schema
from mesos_gpu.wire.listing.filters import MAX_LENGTH, MAX_PATTERNS

MANY_PATTERNS: Final[Schema] = {
    "type": "array",
    "maxItems": MAX_PATTERNS,
    "items": {"type": "string", "maxLength": MAX_LENGTH},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What one verb does at one path.

    `answers`: by status a shape, a text's media type, or several of them; `refusals`: more statuses, with an `Error`.
    """

    id: str
    summary: str
    answers: Mapping[int, Any]
    refusals: tuple[int, ...] = ()
    query: tuple[Schema, ...] = ()
    body: type | None = None
    example: Mapping[str, Any] | None = None
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, in place of `example`
    raw_body: bool = False  # the body is bytes, no JSON


def in_query(name: str, schema: Schema, about: str) -> Schema:
    """A parameter of the query."""
    return {"name": name, "in": "query", "description": about, "schema": schema}


def of_patterns(name: str, about: str) -> Schema:
    """A parameter of the query that may be given several times, each time with a pattern."""
    return in_query(name, MANY_PATTERNS, f"{about}; any of these; * stands for anything")
