"""Bounds of the state, the settings, classes, and the seam between the REST interface and the engine."""

import ast
import re
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import pytest

from mesos_gpu.engine.queue.reasons import BESIDE_BOOKED, IN_ALL_POOLS, IN_ONE_POOL
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import PARTS, State
from mesos_gpu.policy.admission.reasons import Reason

ROOT: Final = Path(__file__).parents[2]
MAX_FIELDS: Final = 20  # of a part
MAX_METHODS: Final = 25  # of a class
#: Classes with more methods, and how many; they are to be divided and must not grow.
LARGE: Final = {
    "VirtualMesos": 41,
    "Work": 38,
    "HookStore": 31,
    "Bounded": 30,
}
KINDS: Final = (State, *(get_type_hints(State)[name] for name in PARTS))
SETTINGS: Final = (Settings, *get_type_hints(Settings).values())


def kinds_in(hint: Any) -> Iterator[Any]:
    """Yield a type and the types of its arguments."""
    yield hint
    for each in get_args(hint):
        yield from kinds_in(each)


@pytest.mark.parametrize("kind", [*KINDS, *SETTINGS], ids=lambda kind: kind.__name__)
def test_part_of_the_state_or_settings_has_few_fields_and_each_has_a_type(kind: type[Any]) -> None:
    assert len(fields(kind)) <= MAX_FIELDS
    untyped = [name for name, hint in get_type_hints(kind).items() if Any in kinds_in(hint)]
    assert untyped == []


@pytest.mark.parametrize("kinds", [KINDS, SETTINGS], ids=["state", "settings"])
def test_fields_of_all_parts_have_different_names(kinds: tuple[type[Any], ...]) -> None:
    each: list[Field[Any]] = [field for kind in kinds for field in fields(kind)]
    assert len({field.name for field in each}) == len(each)


def classes_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield each class of a module with the number of its own methods, without special ones except __init__."""
    if len(re.findall(r"^ +(?:async )?def ", text, re.M)) <= MAX_METHODS:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            functions = [
                each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            names = {each.name for each in functions}
            yield node.name, sum(name == "__init__" or not name.startswith("__") for name in names)


def test_classes_have_few_methods() -> None:
    large = {
        name: count
        for package in ("mesos_gpu", "isolator", "volumes")
        for path in (ROOT / package).rglob("*.py")
        for name, count in classes_of(path.read_text())
        if count > LARGE.get(name, MAX_METHODS)
    }
    assert large == {}


@pytest.mark.parametrize("methods", [MAX_METHODS, MAX_METHODS + 1])
def test_methods_of_a_class_are_counted(methods: int) -> None:
    bodies = "".join(f"    async def m{n}(self): ...\n" for n in range(methods))
    text = f"class Small: ...\nclass Seen:\n    def __eq__(self, other): ...\n{bodies}"
    assert dict(classes_of(text)) == {"Small": 0, "Seen": methods}


def test_reason_that_blocks_jobs_decides_explains_and_says_what_would_end_it() -> None:
    listed = {*IN_ALL_POOLS, *BESIDE_BOOKED, *IN_ONE_POOL}
    assert [each for each in listed if not {"decide", "explain", "lack"} <= vars(each).keys()] == []
    defined = {each.__name__ for each in Reason.__subclasses__()}  # a class with slots is there twice
    assert defined == {each.__name__ for each in listed}, "a reason is not in the list"


def test_state_of_a_view_is_used_by_its_readers_alone() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("api", "scheduler", "cli", "local")
        for path in (ROOT / "mesos_gpu" / folder).rglob("*.py")
        if re.search(r"\bview\s*\.\s*(state|settings)\b", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("state", "settings")
        if isinstance(node.value, ast.Name) and node.value.id == "view"
    ]
    assert uses == []
