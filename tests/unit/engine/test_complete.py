"""A new effect or event that a table has forgotten is seen when the table's module is imported."""

import ast
import inspect
from collections.abc import Iterable
from dataclasses import is_dataclass
from types import ModuleType
from typing import Final, get_args

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine import step
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.model import saves
from mesos_gpu.scheduler import messages
from tests.chaos.rules import calls

#: By its name: the kinds of a table, and all that it must have.
TABLES: Final[dict[str, tuple[Iterable[type], Iterable[type]]]] = {
    "order of effects": (fx.ORDER, (*saves.SAVES, *fx.DONE_OUTSIDE)),
    "handlers of events": (step.HANDLERS, get_args(ev.Event)),
    "handlers of effects": (messages._HANDLERS, fx.DONE_OUTSIDE),
    "checks of chaos": (calls.CHECKS, {*fx.DONE_OUTSIDE} - {fx.Publish}),
}


#: Dataclasses that effects are made of.
PARTS: Final = {fx.LaunchTask}


class Invented:
    """A kind that nobody has thought of yet."""


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_effects_and_events_are_complete(name: str) -> None:
    kinds, needed = TABLES[name]
    see_complete(name, kinds, needed)


@pytest.mark.parametrize("name", TABLES)
def test_table_without_an_entry_for_a_kind_names_it(name: str) -> None:
    kinds, needed = TABLES[name]
    with pytest.raises(LookupError, match=rf"{name} lacks \['Invented'\]"):
        see_complete(name, kinds, [*needed, Invented])


@pytest.mark.parametrize("name", TABLES)
def test_table_with_an_entry_of_no_kind_names_it(name: str) -> None:
    kinds, needed = TABLES[name]
    with pytest.raises(LookupError, match=r"has \['Invented'\] too much"):
        see_complete(name, [*kinds, Invented], needed)


def test_order_table_with_a_kind_twice_names_it() -> None:
    with pytest.raises(LookupError, match=r"has \['Launch'\] too much"):
        see_complete("order", [*fx.ORDER, fx.Launch], fx.ORDER)


@pytest.mark.parametrize("module", [fx, step, messages, calls])
def test_table_is_checked_when_its_module_is_imported(module: ModuleType) -> None:
    statements = ast.parse(inspect.getsource(module)).body
    calls = [
        each.value.func
        for each in statements
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
    ]
    assert [call.id for call in calls if isinstance(call, ast.Name)] == ["see_complete"]


def test_lists_of_saves_and_calls_have_all_kinds() -> None:
    defined = [
        each for each in vars(saves).values() if isinstance(each, type) and issubclass(each, saves.Save)
    ]
    see_complete("saves.SAVES", saves.SAVES, [each for each in defined if each is not saves.Save])
    effects = [
        each
        for each in vars(fx).values()
        if isinstance(each, type) and is_dataclass(each) and each.__module__ == fx.__name__
    ]
    see_complete("effects", fx.ORDER, {*effects, *saves.SAVES} - PARTS)
