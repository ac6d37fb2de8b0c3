"""SQL has parameters only: no statement is made of what somebody said."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import isolator
import mesos_gpu

ROOTS = [Path(package.__path__[0]) for package in (mesos_gpu, isolator)]
CALLS = {"execute", "executemany", "executescript"}
#: What statements are made of while the program runs: versions of a schema, its own files, and statements from the
#: constants of their module.
INSERTED = {"VERSION", "_SCHEMA", "number", "script"}
PASSED = {"statement"}
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
_SQL = re.compile(r"^\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|ATTACH|WITH|PRAGMA|BEGIN)\b")


def modules() -> Iterator[Path]:
    for root in ROOTS:
        for path in sorted(root.rglob("*.py")):
            if re.search(r"^\s*import sqlite3$", path.read_text(), re.MULTILINE):
                yield path


def is_sound(statement: ast.expr) -> bool:
    """Whether a statement is a constant, or made of what INSERTED and PASSED have."""
    match statement:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name):
            return name in PASSED or _CONSTANT.fullmatch(name) is not None
        case ast.Subscript(value=ast.Name(id=name)):
            return _CONSTANT.fullmatch(name) is not None
        case ast.JoinedStr(values=values):
            inserted = [each.value for each in values if isinstance(each, ast.FormattedValue)]
            return all(isinstance(each, ast.Name) and each.id in INSERTED for each in inserted)
        case _:
            return False


def unsound(tree: ast.Module) -> list[int]:
    """Lines where a statement may have been made of what somebody said."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS
    ]
    lines = {call.lineno for call in calls if call.args and not is_sound(call.args[0])}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = [node for node in ast.walk(function) if isinstance(node, ast.expr)]
            lines |= {node.lineno for node in inner if _is_made(node) and not is_sound(node)}
    return sorted(lines)


def _is_made(node: ast.expr) -> bool:
    """Whether it makes a text that begins as SQL does."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return _SQL.match(text) is not None
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=ast.Constant(value=str(text))):
            return _SQL.match(text) is not None
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _SQL.match(text) is not None
        case _:
            return False


def test_there_are_such_modules() -> None:
    assert {"sqlite_store.py", "ledger.py"} <= {path.name for path in modules()}


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: path.stem)
def test_statements_are_not_made_of_what_somebody_said(path: Path) -> None:
    assert unsound(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "db.execute(f'SELECT * FROM jobs WHERE id = {job}')",
        "db.execute('DELETE FROM jobs WHERE id = ' + job)",
        "db.executescript(text)",
        "def f(job):\n    q = f'SELECT * FROM {job}'\n    return q",
        "def f(job):\n    return 'SELECT * FROM %s' % job",
        "lambda job: 'DROP TABLE {}'.format(job)",
    ],
)
def test_such_statements_are_found(code: str) -> None:
    assert unsound(ast.parse(code))
