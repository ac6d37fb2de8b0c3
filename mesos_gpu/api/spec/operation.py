"""Definition of an operation of /v1 in the OpenAPI document."""

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
    """An operation: one method at one path.

    Attributes:
        id: Operation id in the document.
        summary: Short description of the operation.
        answers: Types or media types by status; a tuple for several of them.
        refusals: Further statuses, whose answers are an `Error`.
        query: Parameters of the query.
        body: Type of the request's body.
        example: Example of a body.
        examples: Several examples by name, instead of `example`.
        raw_body: Whether the body is bytes, and not JSON.
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
    """Return a parameter of the query."""
    return {"name": name, "in": "query", "description": about, "schema": schema}


def of_patterns(name: str, about: str) -> Schema:
    """Return a parameter of the query that may be repeated, each time with a pattern."""
    return in_query(name, MANY_PATTERNS, f"{about}; may be repeated for several patterns; * matches anything")
