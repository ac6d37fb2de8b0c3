"""Findings of the doctor about a scheduler."""

from typing import Any, cast

import pytest

from isolator.node.findings import Level
from mesos_gpu.api.spec.shapes import Node, Status
from mesos_gpu.cli.host.of_scheduler import of_nodes, of_scheduler, of_status
from mesos_gpu.cli.reach.reach import Reach

TLS = {"subject": "CN=gpu", "not_after": 4102444800.0, "problem": None}
HERE, AWAY, SAFE = "http://127.0.0.1:1", "http://gpu.example.com", "https://gpu.example.com"


def said(url: str, open_to_all: bool, tls: dict[str, Any] | None) -> list[tuple[Level, str]]:
    status = cast(
        Status, {"open_to_all": open_to_all, "tls": tls, "issuer_problem": None, "journal_problem": None}
    )
    return [(finding.level, finding.text) for finding in of_status(Reach(url), status)]


CASES = {
    "here": ((HERE, False, None), [(Level.OK, "answers")]),
    "plain, from another machine": (
        (AWAY, False, None),
        [(Level.OK, "answers"), (Level.WARN, "uses plain HTTP")],
    ),
    "open to all": ((HERE, True, None), [(Level.WARN, "has no authentication")]),
    "with TLS": ((SAFE, False, TLS), [(Level.OK, "answers"), (Level.OK, "CN=gpu, until 2100-01-01")]),
    "about to end": (
        (SAFE, False, {**TLS, "problem": "expires in 2 days"}),
        [(Level.OK, "answers"), (Level.WARN, "expires in 2 days")],
    ),
}


@pytest.mark.parametrize(("given", "want"), CASES.values(), ids=CASES)
def test_doctor_reports_the_status_of_a_scheduler(
    given: tuple[str, bool, dict[str, Any] | None], want: list[tuple[Level, str]]
) -> None:
    got = said(*given)
    assert [level for level, _ in got] == [level for level, _ in want]
    assert all(words in text for (_, text), (_, words) in zip(got, want, strict=True)), got


def test_doctor_reports_a_scheduler_that_does_not_answer() -> None:
    (finding,) = of_scheduler(Reach("http://127.0.0.1:1"))
    assert (finding.level, "does not answer" in finding.text) == (Level.WARN, True)


def test_trouble_of_the_issuer_is_a_finding() -> None:
    status = cast(
        Status,
        {
            "open_to_all": False,
            "tls": TLS,
            "issuer_problem": "https://id.example answers 502",
            "journal_problem": None,
        },
    )
    findings = of_status(Reach(SAFE), status)
    assert [(each.check, each.level) for each in findings if "502" in each.text] == [("login", Level.WARN)]


def test_journal_that_is_too_large_is_a_finding() -> None:
    told = "the journal in /j has 300 MiB of 256: its last 7 days are kept"
    status = cast(Status, {"open_to_all": False, "tls": TLS, "issuer_problem": None, "journal_problem": told})
    (finding,) = [each for each in of_status(Reach(SAFE), status) if each.check == "journal"]
    assert (finding.level, finding.text) == (Level.WARN, told)
    assert "--journal-size" in finding.remedy


def test_scheduler_of_an_earlier_version_says_nothing_of_its_journal() -> None:
    status = cast(Status, {"open_to_all": False, "tls": TLS, "issuer_problem": None})
    assert [each.level for each in of_status(Reach(SAFE), status)] == [Level.OK, Level.OK]


def test_doctor_reports_agents_on_which_nothing_can_start() -> None:
    nodes = [
        {"hostname": "a1", "launch_problem": None},
        {"hostname": "a2", "launch_problem": "started 3 times"},
    ]
    (finding,) = of_nodes(cast(list[Node], nodes))
    assert (finding.level, finding.text) == (Level.WARN, "a2: started 3 times")
    assert "--executor-archive" in finding.remedy
