"""Bounds of the state, the settings, and the seam between the REST interface and the engine."""

import ast
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any, Final, get_args, get_type_hints

import pytest

from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.engine import queue
from mesos_gpu.engine.queue.reasons import BESIDE_BOOKED, IN_ALL_POOLS, IN_ONE_POOL
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import PARTS, State
from mesos_gpu.policy.admission.reasons import Reason
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.ha.copy import Copy

ROOT: Final = Path(__file__).parents[2]
MAX_FIELDS: Final = 20  # of a part
MAX_METHODS: Final = 25  # of a class
PLAIN: Final = (FunctionType, property)
BOUND: Final = (classmethod, staticmethod, cached_property)
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


def classes_of(package: ModuleType) -> list[type[Any]]:
    """Return the classes that are defined in the modules of a package."""
    modules = [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize(
    "kind", [*KINDS, View, SchedulerApi, Daemon, Copy, *classes_of(queue)], ids=lambda kind: kind.__name__
)
def test_class_of_the_state_or_the_queue_has_few_methods(kind: type[Any]) -> None:
    own = [name for name, value in vars(kind).items() if isinstance(value, (*PLAIN, *BOUND))]
    assert len([name for name in own if name == "__init__" or not name.startswith("__")]) <= MAX_METHODS


def test_reason_that_blocks_jobs_decides_explains_and_says_what_would_end_it() -> None:
    listed = {*IN_ALL_POOLS, *BESIDE_BOOKED, *IN_ONE_POOL}
    assert [each for each in listed if not {"decide", "explain", "lack"} <= vars(each).keys()] == []
    defined = {each.__name__ for each in Reason.__subclasses__()}  # a class with slots is there twice
    assert defined == {each.__name__ for each in listed}, "a reason is not in the list"


def test_class_of_the_planner_of_room_has_few_methods() -> None:
    methods = {
        f"{path.name}: {node.name}": sum(isinstance(each, ast.FunctionDef) for each in node.body)
        for path in (ROOT / "mesos_gpu" / "engine" / "preemption").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in methods.items() if count > MAX_METHODS} == {}
    assert {"rule.py: Reclaim", "planner.py: Planner"} <= methods.keys()


def test_state_of_a_view_is_used_by_its_readers_alone() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("api", "scheduler", "cli", "local")
        for path in (ROOT / "mesos_gpu" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("state", "settings")
        if isinstance(node.value, ast.Name) and node.value.id == "view"
    ]
    assert uses == []
