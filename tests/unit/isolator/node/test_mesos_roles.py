"""What a master's answers about roles mean to the doctor: limits, guarantees, and what its lists leave out."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from isolator.node.findings import Finding, Level
from isolator.node.mesos_access import Daemon
from isolator.node.mesos_roles import looked_at

OURS = {"name": "mesos-gpu", "id": "f1", "roles": ["gpu"]}
EXCLUDED = {"fair_sharing_excluded_resource_names": "gpus"}


class Told(Daemon):
    """A master that gives these answers, by path; no answer: a status."""

    answers: Mapping[str, Any]

    def ask(self, method: str, path: str, body: bytes, header: Mapping[str, str]) -> tuple[int, bytes]:
        answer = self.answers[path]
        return (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())


def role(name: str, **quota: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "weight": 1.0, "frameworks": ["f1"], "quota": {"role": name, **quota}}


def found(roles: Any, frameworks: Any = (OURS,), flags: Mapping[str, str] = EXCLUDED) -> list[Finding]:
    class Answering(Told):
        answers = {
            "/roles": roles if isinstance(roles, int) else {"roles": roles},
            "/frameworks": frameworks if isinstance(frameworks, int) else {"frameworks": [*frameworks]},
        }

    return list(looked_at(Answering("master", "m:5050", None, {}), flags))


FINDINGS = {
    "a guarantee": (
        [role("gpu", guarantee={"gpus": 4})],
        "role gpu has a Mesos guarantee: what it does not use is offered to no role",
        "mesos quota plan",
    ),
    "a limit above nested roles": (
        [role("gpu", limit={"gpus": 4}), role("gpu/night"), role("gpus/other")],
        "the limit of role gpu does not hold for gpu/night when offers are made",
        "roles without a slash",
    ),
    "a role at its limit": (
        [role("gpu", limit={"gpus": 4}, consumed={"gpus": 4, "ports": "[1-2]"})],
        "role gpu has reached its limit of 4 GPUs: it is offered no more",
        "mesos quota plan",
    ),
    "roles are refused": (403, "m:5050 does not list its roles: status 403", "view roles"),
}


@pytest.mark.parametrize(("roles", "text", "remedy"), FINDINGS.values(), ids=FINDINGS)
def test_doctor_says_which_limit_or_guarantee_holds_offers_back(roles: Any, text: str, remedy: str) -> None:
    (finding,) = found(roles)
    assert (finding.level, finding.text) == (Level.WARN, text)
    assert remedy in finding.remedy


def test_a_role_below_its_limit_is_right() -> None:
    (finding,) = found([role("gpu", limit={"gpus": 4}, consumed={"gpus": 3}), role("*")])
    assert (finding.level, finding.text) == (Level.OK, "2 roles; none of them holds back offers of GPUs")


HIDDEN = {
    "one role": ([role("*")], [OURS], "access control lists of m:5050 hide the role gpu of mesos-gpu"),
    "an older framework's": ([], [{"name": "old", "id": "f2"}], "access control lists of m:5050 hide the role * of"),
    "everything": ([], [], "m:5050 lists no roles: its access control lists hide them, or no framework is registered"),
    "frameworks": ([role("gpu")], 403, "m:5050 does not list its frameworks: status 403"),
}  # fmt: skip


@pytest.mark.parametrize(("roles", "frameworks", "text"), HIDDEN.values(), ids=HIDDEN)
def test_doctor_takes_no_omission_of_a_list_for_absence(roles: Any, frameworks: Any, text: str) -> None:
    (finding,) = found(roles, frameworks)
    assert finding.level is Level.WARN
    assert finding.text.startswith(text)
    assert "--mesos-credentials" in finding.remedy


def test_gpus_count_in_fair_shares_where_two_frameworks_are() -> None:
    both = [{**role("gpu"), "frameworks": ["f1", "f2"]}]
    (finding,) = found(both, flags={})
    assert "--fair_sharing_excluded_resource_names=gpus" in finding.remedy
