"""What is written out for executors behaves as what `dataclasses` and `typing` would have made."""

import ast
import copy
import dataclasses
import inspect
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from mesos_gpu import written
from mesos_gpu.install import flat
from mesos_gpu.install.lean import lean, without_columns
from mesos_gpu.libmesos.helpers import ROOT, STARTS

SOURCE = '''"""Of the module."""
from __future__ import annotations
import os.path, json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NewType, Protocol

if TYPE_CHECKING:
    from nowhere import Nothing

Name = NewType("Name", str)
Kind = Literal["a", "b"]
MAX: Final = 3

class Speaks(Protocol):
    """Of a protocol."""
    def say(self, what: Nothing) -> Any: ...

@dataclass(frozen=True, slots=True)
class Noun:
    """Of a noun."""
    one: int
    two: Mapping[str, int] = field(default_factory=dict)
    hidden: str | None = field(default="x", repr=False)
    four: tuple[int, ...] = (MAX,)
    def __post_init__(self) -> None:
        if self.one < 0:
            raise ValueError("below 0")
    @property
    def more(self) -> int:
        """Of a property."""
        left: int
        left = self.one + 1
        return left

@dataclass(slots=True)
class Open:
    one: Noun
    two: list[int] = field(default_factory=list)

@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""

class Row(NamedTuple):
    """Of a row."""
    one: int
    two: str = "b"
    def both(self) -> str:
        return f"{self.one}{self.two}"

@dataclass(frozen=True)
class Left:
    if TYPE_CHECKING:
        zero: int
    one: int

@dataclass(frozen=True, slots=True)
class Inner(Left):
    two: int

def use(noun: Noun, *rest: int, **more: Any) -> dict[str, Any]:
    """Of a function."""
    return asdict(replace(noun, one=7))
'''


def module(source: str, name: str, *, leaned: bool) -> Any:
    made = ModuleType(name)
    sys.modules[name] = made
    code = lean(source) if leaned else source
    exec(compile(code, name, "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.fixture(scope="module")
def both() -> Any:
    yield module(SOURCE, "as_written", leaned=False), module(SOURCE, "as_leaned", leaned=True)
    for name in ("as_written", "as_leaned"):
        del sys.modules[name]


def told(one: Any) -> dict[str, object]:
    """All that a user of the module could see."""
    noun, row = one.Noun(1, {"a": 1}, "secret"), one.Row(5)
    opened = one.Open(noun)
    opened.two.append(4)
    return {
        "repr": [repr(each) for each in (noun, row, opened, one.Empty(), one.Inner(1, 2))],
        "equal": [one.Noun(1) == one.Noun(1), one.Noun(1) == one.Noun(2), one.Noun(1) == 1, one.Empty() == one.Empty()],
        "unlike": [row == (5, "b"), opened == one.Open(noun, [4]), opened == one.Open(noun)],
        "hash": [hash(one.Noun(1, ()) ) == hash((1, (), "x", (3,))), one.Open.__hash__, hash(one.Empty()) == hash(())],
        "fresh": one.Noun(1).two is not one.Noun(1).two,
        "slots": [each.__slots__ for each in (one.Noun, one.Open, one.Empty)],
        "match": [each.__match_args__ for each in (one.Noun, one.Open, one.Row)],
        "row": [row._fields, row._replace(one=6), row._asdict(), one.Row._make([1, "c"]), row.both(), row.one, [*row]],
        "of dataclasses": [
            [(f.name, f.repr, f.default) for f in dataclasses.fields(one.Noun) if f.name != "two"],
            dataclasses.asdict(opened), dataclasses.astuple(opened), repr(dataclasses.replace(noun, one=9)),
            [dataclasses.is_dataclass(each) for each in (one.Noun, one.Row)],
        ],
        "named": [(each | None) is None or (None | each) is None for each in (one.Name, one.Kind)],
        "use": one.use(noun), "more": noun.more, "name": one.Name("x"), "least": one.MAX,
        "pickled": pickle.loads(pickle.dumps(noun)) == noun and pickle.loads(pickle.dumps(row)) == row,
        "copied": copy.copy(noun) == noun and copy.deepcopy(opened) == opened and copy.copy(row) == row,
        "signature": [
            [(p.name, p.kind) for p in inspect.signature(each.__init__).parameters.values()]
            for each in (one.Noun, one.Open, one.Empty)
        ],
    }  # fmt: skip


def test_a_module_that_is_made_lean_does_the_same(both: Any) -> None:
    assert told(both[1]) == told(both[0])


WRONG: Mapping[str, Any] = {
    "a field is set": lambda one: setattr(one.Noun(1), "one", 2),
    "a field is removed": lambda one: delattr(one.Noun(1), "one"),
    "a new attribute": lambda one: setattr(one.Open(1), "other", 2),
    "too few": lambda one: one.Noun(),
    "unknown": lambda one: one.Noun(1, five=2),
    "too many": lambda one: one.Row(1, 2, 3),
    "refused by itself": lambda one: one.Noun(-1),
    "a row without such a field": lambda one: one.Row(1)._replace(three=3),
    "replaced by none of its fields": lambda one: one.use(one.Row(1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_module_that_is_made_lean_refuses_the_same(both: Any, name: str) -> None:
    raised = []
    for one in both:
        with pytest.raises((AttributeError, TypeError, ValueError)) as error:
            WRONG[name](one)
        raised.append(error.type)
    assert raised[1] is raised[0]


def test_lean_code_has_no_imports_and_docstrings_for_readers() -> None:
    code = compile(lean(SOURCE), "leaned", "exec", dont_inherit=True)
    assert {"os", "json", "nowhere", "typing", "collections.abc"}.isdisjoint(code.co_names)
    assert b"Of a" not in b"".join(pickle.dumps(text) for text in constants(code))
    assert "dataclasses" in code.co_names, "Left is of a kind that is not written out"


def constants(code: Any) -> list[Any]:
    own = [each for each in code.co_consts if isinstance(each, str)]
    return own + [text for each in code.co_consts if inspect.iscode(each) for text in constants(each)]


def test_lines_keep_their_numbers(both: Any) -> None:
    lines = [one.use.__code__.co_firstlineno for one in both]
    assert lines[0] == lines[1] == SOURCE[: SOURCE.index("def use")].count("\n") + 1


@pytest.mark.parametrize(
    "field",
    [
        "one: ClassVar[int] = 1",
        "one: InitVar[int]",
        "one: int = field(default=1, compare=False)",
        "_: KW_ONLY",
    ],
)
def test_fields_of_other_kinds_are_left_to_dataclasses(field: str) -> None:
    imports = "from dataclasses import dataclass, field, InitVar, KW_ONLY"
    source = f"{imports}\n@dataclass(slots=True)\nclass Noun:\n    {field}\n"
    code = compile(lean(source), "leaned", "exec", dont_inherit=True)
    assert "dataclass" in code.co_names


def classes(one: Any) -> dict[str, type]:
    return {
        name: each
        for name, each in vars(one).items()
        if inspect.isclass(each) and each.__module__ == one.__name__
    }


@pytest.mark.on_change("install")
def test_all_classes_that_executors_import_are_as_they_were() -> None:
    compared = 0
    for each in flat.reached(Path(ROOT), STARTS):
        if each.name in ("isolator", "mesos_gpu.written"):
            continue
        real = __import__(each.name, fromlist=["x"])
        leaned = ModuleType(each.name)
        leaned.__file__ = real.__file__
        exec(compile(each.tree, each.file, "exec", dont_inherit=True), leaned.__dict__)
        assert classes(leaned).keys() == classes(real).keys(), each.name
        for name, one in classes(leaned).items():
            assert shape(one) == shape(classes(real)[name]), f"{each.name}.{name}"
            compared += dataclasses.is_dataclass(one)
    assert compared > 30


def shape(one: Any) -> dict[str, object]:
    """What can be compared of two classes whose values are of different modules."""
    noun = dataclasses.is_dataclass(one)
    parameters = inspect.signature(one).parameters.values() if noun or hasattr(one, "_fields") else ()
    return {
        "names": {name for name in vars(one) if not name.startswith("_")},
        "bases": [each.__name__ for each in one.__mro__ if each.__name__ not in ("Protocol", "Generic")],
        "fields": [field.name for field in dataclasses.fields(one)]
        if noun
        else getattr(one, "_fields", None),
        "parameters": [(each.name, each.default is inspect.Parameter.empty) for each in parameters],
        "slots": getattr(one, "__slots__", None) or None,
        "hashed": one.__hash__ is not None,
    }


def test_lean_asdict_and_astuple_go_as_deep_as_dataclasses(both: Any) -> None:
    for one in both:
        noun = one.Open(one.Noun(1, {"a": one.Row(2)}), [one.Noun(3)])
        assert written.asdict(noun) == dataclasses.asdict(noun)
        assert written.astuple(noun) == dataclasses.astuple(noun)
        assert written.asdict(noun)["two"] is not noun.two


def test_regular_expressions_of_a_module_are_compiled_when_they_are_first_used() -> None:
    source = "import re\nfrom typing import Final\nNAME: Final = re.compile('(a)b', re.I)\nOTHER = re.compile('[')\n"
    module: dict[str, Any] = {}
    exec(compile(lean(source), "module", "exec"), module)
    assert isinstance(module["NAME"], written.Pattern)
    match = module["NAME"].fullmatch("AB")
    assert match is not None
    assert (match.group(1), module["NAME"].pattern) == ("A", "(a)b")
    with pytest.raises(re.error):
        module["OTHER"].pattern  # noqa: B018 - what cannot be compiled says so then


@pytest.mark.on_change("install")
def test_no_function_of_re_is_given_what_is_not_compiled_yet() -> None:
    """A regular expression that is compiled late has the methods of a compiled one, and is none."""
    trees = [module.tree for module in flat.reached(Path(ROOT), STARTS)]
    late = {
        ast.unparse(each.targets[0])
        for tree in trees
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.value).startswith("_Pattern(")
    }
    assert len(late) > 5
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            assert not late & {ast.unparse(given) for given in node.args}


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import signal\nnumber = signal.SIGTERM", "import _signal as signal"),
        ("import signal\nnumber = signal.Signals(15)", "import signal"),
        ("import signal\nnumber = getattr(signal, 'SIGTERM')", "import signal"),
        ("import signal as s\nnumber = s.SIGTERM", "import signal as s"),
        ("import sqlite3\ndb = sqlite3.connect(':memory:')", "import _sqlite3 as sqlite3"),
        ("import sqlite3\nday = sqlite3.DateFromTicks(0)", "import sqlite3"),
    ],
)
def test_modules_are_imported_as_what_they_are_made_of_if_that_has_all_that_is_used(
    source: str, imported: str
) -> None:
    assert ast.unparse(lean(source)).splitlines()[0] == imported


def lines(code: CodeType) -> list[int | None]:
    """Return the line of each instruction."""
    return [line for begin, end, line in code.co_lines() for _ in range(begin, end)]


def test_code_without_columns_has_its_lines() -> None:
    source = "def one(x):\n    y = x.a + len(x.b) * x.c[x.d]\n    return (\n        y +\n        x.e)\n"
    whole, small = (
        compile(tree, "<source>", "exec") for tree in (ast.parse(source), without_columns(ast.parse(source)))
    )
    inner, small_inner = whole.co_consts[0], small.co_consts[0]
    assert lines(small_inner) == lines(inner)
    assert len(small_inner.co_linetable) < len(inner.co_linetable)
