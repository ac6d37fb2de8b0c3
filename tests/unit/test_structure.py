"""Bounds of the state, the settings, classes and functions, and the seam between the REST interface and the engine."""

import ast
import re
from collections import Counter
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
MAX_CLASS_FIELDS: Final = 30  # of a class
MAX_LINES: Final = 60  # of a function, without its docstring
PRODUCT: Final = ("mesos_gpu", "isolator", "volumes")
# Present exceptions: they must not grow, and are to become fewer.
#: Classes with more methods.
METHODS: Final = {"Work": 37, "HookStore": 31, "Bounded": 30}
#: Classes with more fields.
FIELDS: Final = {
    "App": 39,
    "Assignment": 41,
    "Fragmentation": 31,
    "Job": 34,
    "JobSpec": 55,
    "Options": 68,
    "Task": 38,
}
#: Fields with `Any`, by package.
UNTYPED_FIELDS: Final = {
    "isolator/executor": 1,
    "isolator/images": 1,
    "isolator/runs": 1,
    "mesos_gpu/adapters": 5,
    "mesos_gpu/api": 21,
    "mesos_gpu/cli": 4,
    "mesos_gpu/engine": 3,
    "mesos_gpu/local": 1,
    "mesos_gpu/model": 5,
    "mesos_gpu/scheduler": 2,
    "mesos_gpu/simulate": 1,
    "mesos_gpu/wire": 7,
}
#: Class names that several modules have, by package.
DOUBLED_NAMES: Final = {
    "isolator/executor": 1,
    "mesos_gpu/adapters": 6,
    "mesos_gpu/api": 17,
    "mesos_gpu/cli": 8,
    "mesos_gpu/engine": 6,
    "mesos_gpu/libmesos": 1,
    "mesos_gpu/model": 11,
    "mesos_gpu/policy": 9,
    "mesos_gpu/simulate": 4,
    "mesos_gpu/wire": 5,
}
#: Functions that are longer.
LINES: Final = {
    "isolator/runs/docker_run.py: start": 62,
    "mesos_gpu/cli/local/up.py: up": 71,
    "mesos_gpu/scheduler/__main__.py: _run": 61,
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


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    """Read all modules of the product."""
    return {path: path.read_text() for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))}


def methods_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield each class of a module with the number of its own methods, without special ones except __init__."""
    if len(re.findall(r"^ +(?:async )?def ", text, re.M)) <= MAX_METHODS:
        return
    for node in classes_in(text):
        functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        names = {each.name for each in functions}
        yield node.name, sum(name == "__init__" or not name.startswith("__") for name in names)


def classes_in(text: str) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module."""
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def test_classes_have_few_methods(sources: dict[Path, str]) -> None:
    large = {
        name: count
        for text in sources.values()
        for name, count in methods_of(text)
        if count > METHODS.get(name, MAX_METHODS)
    }
    assert large == {}


@pytest.mark.parametrize("methods", [MAX_METHODS, MAX_METHODS + 1])
def test_methods_of_a_class_are_counted(methods: int) -> None:
    bodies = "".join(f"    async def m{n}(self): ...\n" for n in range(methods))
    text = f"class Small: ...\nclass Seen:\n    def __eq__(self, other): ...\n{bodies}"
    assert dict(methods_of(text)) == {"Small": 0, "Seen": methods}


def declared_in(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields that a class declares, each with its type as text."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            hint = ast.unparse(each.annotation)
            if "ClassVar" not in hint:
                yield each.target.id, hint


def fields_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield each class of a module with the number of its fields: declared ones, and attributes that methods assign."""
    named = re.findall(r"^ +(\w+): .*(?<![,:.])$|\bself\.(\w+)(?=[^=\n]* = )", text, re.M)
    if len(set(named)) <= MAX_CLASS_FIELDS:
        return
    for node in classes_in(text):
        assigned = {
            each.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            if isinstance(each.value, ast.Name) and each.value.id == "self"
        }
        yield node.name, len(assigned | {name for name, _ in declared_in(node)})


def test_classes_have_few_fields(sources: dict[Path, str]) -> None:
    large = {
        name: count
        for text in sources.values()
        for name, count in fields_of(text)
        if count > FIELDS.get(name, MAX_CLASS_FIELDS)
    }
    assert large == {}


def test_fields_of_a_class_are_counted() -> None:
    declared = "".join(f"    field{n}: int = {n}\n" for n in range(30))
    method = "    def set(self, other):\n        self.field1 = self.a = 1\n        other.b = 2\n"
    assert dict(fields_of(f"class Seen:\n    c: ClassVar[int] = 1\n{declared}{method}")) == {"Seen": 31}


def package_of(path: Path) -> str:
    """Return the package of the second level that a module is in, such as mesos_gpu/engine, or of the first level."""
    *folders, _ = path.relative_to(ROOT).parts
    return "/".join(folders[:2])


def untyped_fields(text: str) -> Iterator[str]:
    """Yield the fields of classes of a module whose type has `Any` in it."""
    if "Any" in text and re.search(r"^ +\w+: (.*\bAny\b.*(?<!,)|Annotated\[)$", text, re.M):
        for node in classes_in(text):
            yield from (
                f"{node.name}.{name}" for name, hint in declared_in(node) if re.search(r"\bAny\b", hint)
            )


def test_fields_have_a_type_without_any(sources: dict[Path, str]) -> None:
    untyped: dict[str, list[str]] = {}
    for path, text in sources.items():
        untyped.setdefault(package_of(path), []).extend(untyped_fields(text))
    assert {
        package: fields for package, fields in untyped.items() if len(fields) > UNTYPED_FIELDS.get(package, 0)
    } == {}


def test_field_with_any_is_found() -> None:
    text = "class Seen:\n    a: dict[str, Any] = field()\n    b: int\n    def f(self, c: Any): ...\n"
    assert list(untyped_fields(text)) == ["Seen.a"]


def test_class_names_are_unique_in_a_package(sources: dict[Path, str]) -> None:
    counts: dict[str, Counter[str]] = {}
    for path, text in sources.items():
        counts.setdefault(package_of(path), Counter()).update(re.findall(r"^ *class (\w+)", text, re.M))
    doubled = {package: [name for name, n in names.items() if n > 1] for package, names in counts.items()}
    assert {
        package: names for package, names in doubled.items() if len(names) > DOUBLED_NAMES.get(package, 0)
    } == {}


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield each function of a module that may be too long, with its lines without the docstring."""
    marks = [
        (text.count("\n", 0, mark.start()), len(mark[1]), mark[2] == "def")
        for mark in re.finditer(r"^( *)(?:async )?(def|class|@)", text, re.M)
    ]
    end = text.count("\n")
    if not any(
        next((line for line, other, _ in marks[number + 1 :] if other <= indent), end) - begin > MAX_LINES
        for number, (begin, indent, is_function) in enumerate(marks)
        if is_function
    ):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            is_docstring = ast.get_docstring(node) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_functions_are_short(sources: dict[Path, str]) -> None:
    long = {
        f"{path.relative_to(ROOT)}: {name}": count
        for path, text in sources.items()
        for name, count in long_functions(text)
        if count > LINES.get(f"{path.relative_to(ROOT)}: {name}", MAX_LINES)
    }
    assert long == {}


def test_lines_of_a_function_are_counted_without_its_docstring() -> None:
    body = "    pass\n" * (MAX_LINES + 1)
    text = f'def seen():\n    """Do.\n\n    More.\n    """\n{body}X = 1\n'
    assert dict(long_functions(text)) == {"seen": MAX_LINES + 2}


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
