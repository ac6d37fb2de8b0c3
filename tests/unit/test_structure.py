"""Bounds of the structure of the engine's state, and of the seam between the REST interface and the engine."""

from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any, Final, get_args, get_type_hints

import pytest

from mesos_gpu.engine.state import PARTS, State

MAX_FIELDS: Final = 20  # of a part
KINDS: Final = (State, *(get_type_hints(State)[name] for name in PARTS))


def kinds_in(hint: Any) -> Iterator[Any]:
    """Yield a type and the types of its arguments."""
    yield hint
    for each in get_args(hint):
        yield from kinds_in(each)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_part_of_the_state_has_few_fields_and_each_has_a_type(kind: type[Any]) -> None:
    assert len(fields(kind)) <= MAX_FIELDS
    untyped = [name for name, hint in get_type_hints(kind).items() if Any in kinds_in(hint)]
    assert untyped == []


def test_fields_of_all_parts_have_different_names() -> None:
    each: list[Field[Any]] = [field for kind in KINDS for field in fields(kind)]
    assert len({field.name for field in each}) == len(each)
