"""The page for security reviewers names tests that there are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/security-review.md").read_text())


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_a_claim_names_is_a_test(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_file_and_folder_to_begin_with_is_there() -> None:
    text = (ROOT / "docs/security-review.md").read_text().partition("## Where to begin")[2]
    named = re.findall(r"`((?:mesos_gpu|isolator)/[\w/.]+)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
