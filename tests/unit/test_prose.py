"""The check of language: each rule, and counts that may only fall."""

import pytest

from scripts import prose


def rules_of(source: str) -> list[str]:
    return [fault.rule for fault in prose.faults_of(source)]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def f():\n    """What a job waits for."""', "docstring begins with a question word"),
        ('"""Who may stop a job."""', "docstring begins with a question word"),
        ('class A:\n    """Of a queue."""', "docstring begins with a pronoun"),
        ('def f(a):\n    """Do.\n\n    Args:\n        a: It.\n    """', "parameter without a noun"),
        ('class A:\n    """A.\n\n    Attributes:\n        a: Of a job.\n    """', "parameter without a noun"),
        ('def f():\n    """Return the limit. None: it has none."""', "riddle after None"),
        ("x = 1  # None: no limit", "riddle after None"),
        ('def f():\n    """Do."""', "docstring too short to help"),
        (
            'def f(a):\n    """Do.\n\n    Args:\n        a: A job.\n    """',
            "parameter explained in few words",
        ),
        ("MOST = 3", "constant named MOST_ and not MAX_"),
        ("x = 1  # he waits", "person for a thing"),
        ("x = 1  # nobody asks", "vague or archaic word"),
        ("raise ValueError('whoever was told')", "vague or archaic word"),
        ("MOST_JOBS = 3", "constant named MOST_ and not MAX_"),
        ("class A:\n    _LEAST_GPUS: int = 3", "constant named MOST_ and not MAX_"),
        ("def test_what_a_job_does(): ...", "test name without its subject"),
        ("async def test_it_is_so(): ...", "test name without its subject"),
        ("def test_two_words(): ...", "test name without its subject"),
        ("def f(found): ...", "variable named found"),
        ("x = [found for found in ()]", "variable named found"),
        ("match x:\n    case [found]: ...", "variable named found"),
    ],
)
def test_prose_rule_finds_its_fault(source: str, rule: str) -> None:
    assert rule in rules_of(source)


@pytest.mark.parametrize(
    "source",
    [
        'def f(a):\n    """Return the limit.\n\n    Args:\n        a: GPUs per task.\n    """',
        "MAX_JOBS = 3  # the scheduler refuses more",
        "def test_queue_refuses_a_job_over_its_limit(): ...",
        "class A:\n    found: int = 0",
        "def f(x: int | None = None) -> None: ...",
    ],
)
def test_prose_rules_accept_plain_text(source: str) -> None:
    assert rules_of(source) == []


FAULTS = {"a.py": [prose.Fault(3, "rule", "text"), prose.Fault(5, "rule", "more")]}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"a.py": {"rule": 2}}, []),
        ({"a.py": {"rule": 1}}, ["a.py: rule: 2, allowed 1", "a.py:3: text", "a.py:5: more"]),
        ({}, ["a.py: rule: 2, allowed 0", "a.py:3: text", "a.py:5: more"]),
        ({"a.py": {"rule": 3}}, ["fewer than 3"]),
        ({"a.py": {"rule": 2}, "b.py": {"rule": 1}}, ["b.py: rule: 0, fewer than 1"]),
    ],
)
def test_prose_counts_must_be_those_of_the_record(
    record: dict[str, dict[str, int]], words: list[str]
) -> None:
    lines = prose.compare(FAULTS, record)
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


@pytest.mark.parametrize(
    ("counts", "record", "merged"),
    [
        ({"a.py": {"rule": 1}}, {"a.py": {"rule": 3}}, {"a.py": {"rule": 1}}),
        ({"a.py": {"rule": 3}}, {"a.py": {"rule": 1}}, {"a.py": {"rule": 1}}),
        ({}, {"a.py": {"rule": 1}}, {}),
        ({"b.py": {"rule": 1}}, {}, {}),
    ],
)
def test_prose_record_only_falls(
    counts: dict[str, dict[str, int]], record: dict[str, dict[str, int]], merged: dict[str, dict[str, int]]
) -> None:
    assert prose.merge(counts, record) == merged
