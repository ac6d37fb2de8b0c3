"""Pages with claims for security reviewers and users: each claim names tests that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("docs/security-review.md", "docs/guarantees.md")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def names_in(path: Path) -> set[str]:
    """Return the names at the top of a module: functions, and state machines that are assigned."""
    return set(re.findall(r"^(?:def )?(\w+)(?:\(| = )", path.read_text(), re.MULTILINE))


def missing_tests(page: str, text: str) -> Iterator[str]:
    """Find tests that a page names and that are not there."""
    for number, line in enumerate(text.splitlines(), 1):
        for file, name in NAMED.findall(line):
            path = ROOT / "tests" / file
            if not path.exists():
                yield f"{page}:{number}: tests/{file} is not there"
            elif name not in names_in(path):
                yield f"{page}:{number}: tests/{file} has no {name}"


def test_security_claims_name_tests_that_exist() -> None:
    texts = {page: (ROOT / page).read_text() for page in PAGES}
    assert sum(len(NAMED.findall(text)) for text in texts.values()) > 60
    assert [fault for page, text in texts.items() for fault in missing_tests(page, text)] == []


def test_security_claim_with_a_missing_test_is_found() -> None:
    text = "`unit/test_docs.py::test_gone`\n`unit/test_gone.py::test_one` `unit/test_docs.py::LINK`"
    assert list(missing_tests("a.md", text)) == [
        "a.md:1: tests/unit/test_docs.py has no test_gone",
        "a.md:2: tests/unit/test_gone.py is not there",
    ]


def test_guarantees_name_a_test_each() -> None:
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
    claims = [row for row in rows if not row.startswith(("| guarantee |", "|---"))]
    assert len(claims) > 25
    assert [row for row in claims if "::" not in row] == []


def test_security_review_begins_with_files_that_exist() -> None:
    text = (ROOT / "docs/security-review.md").read_text().partition("## First files to read")[2]
    named = re.findall(r"`((?:mesos_gpu|isolator)/[\w/.]+)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
