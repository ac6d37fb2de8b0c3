"""Statements of SQL: constants with parameters, and none made of values."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import isolator
import mesos_gpu

ROOTS = [Path(package.__path__[0]) for package in (mesos_gpu, isolator)]
CALLS = {"execute", "executemany", "executescript"}
#: Parts of statements that are made while the program runs: versions of a schema, its own files, and statements from
#: the constants of their module.
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
    """Return whether a statement is a constant, or made of names in INSERTED and PASSED."""
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
    """Return the lines where a statement may be made of values."""
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
    """Return whether an expression makes a text that begins as SQL does."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return _SQL.match(text) is not None
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=ast.Constant(value=str(text))):
            return _SQL.match(text) is not None
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _SQL.match(text) is not None
        case _:
            return False


def test_sql_statements_are_not_made_of_values() -> None:
    paths = list(modules())
    assert {"sqlite_store.py", "ledger.py"} <= {path.name for path in paths}
    assert [f"{path}:{line}" for path in paths for line in unsound(ast.parse(path.read_text()))] == []


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
def test_sql_statement_made_of_values_is_found(code: str) -> None:
    assert unsound(ast.parse(code))
