"""Pages that name tests for what they claim, for security reviewers and for users, name tests that there are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("security-review", "guarantees")
NAMED = [
    each
    for page in PAGES
    for each in re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / f"docs/{page}.md").read_text())
]


def test_the_pages_name_tests() -> None:
    assert len(NAMED) > 60


def test_each_guarantee_names_a_test() -> None:
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
    told = [row for row in rows if not row.startswith(("| guarantee |", "|---"))]
    assert len(told) > 25
    assert [row for row in told if "::" not in row] == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_a_claim_names_is_a_test(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    machines = {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} | machines


def test_every_file_and_folder_to_begin_with_is_there() -> None:
    text = (ROOT / "docs/security-review.md").read_text().partition("## Where to begin")[2]
    named = re.findall(r"`((?:mesos_gpu|isolator)/[\w/.]+)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
