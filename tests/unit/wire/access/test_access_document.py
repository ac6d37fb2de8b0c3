"""The document as JSON: it comes back as it was, and all that is wrong is told at once, each with its place."""

from typing import Any

import pytest

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import JOB_KILL, QUEUE_WRITE
from mesos_gpu.model.access.document import AccessDocument, Binding, Limits, Role, Shared
from mesos_gpu.wire.access import check, document
from mesos_gpu.wire.access import token as tokens

DOCUMENT = AccessDocument(
    version=3,
    comment="why",
    roles=(
        Role(
            "shop",
            ("app:write:/shop/*", "job:kill:own"),
            Limits(("www", "svc-*"), ("nginx:*",), ("/data",), 5, True),
        ),
        Role("plain", ("gpu:*",)),
    ),
    bindings=(
        Binding(("ann@corp", "CN=bob,O=corp"), ("ml",), ("admin", "shop"), ("research",), ("/research/*",)),
        Binding(("*",), (), ("viewer",)),
    ),
    unix_users={"ann@corp": "ann"},
    shares={"research": (Shared.JOBS, Shared.OUTPUT)},
)


def decoded(value: dict[str, Any]) -> AccessDocument:
    made = document.decode(value)
    assert isinstance(made, AccessDocument), made
    return made


def problems(value: dict[str, Any]) -> dict[str, str]:
    made = document.decode(value)
    assert isinstance(made, list), made
    return {problem.path: problem.reason for problem in made}


def bound(**fields: Any) -> dict[str, Any]:
    return {"bindings": [{"names": ["ann"], "roles": ["user"], **fields}]}


def role(**fields: Any) -> dict[str, Any]:
    return {"roles": [{"name": "shop", "rights": ["job:run"], **fields}]}


def limited(**fields: Any) -> dict[str, Any]:
    return role(limits=fields)


def test_access_document_comes_back_as_it_was() -> None:
    assert decoded(document.encode(DOCUMENT)) == DOCUMENT
    assert decoded({}) == AccessDocument()


def test_access_document_defaults_are_wide_for_bindings_and_narrow_for_limits() -> None:
    made = decoded({**bound(), **role()})
    assert made.bindings == (Binding(("ann",), (), ("user",), ("*",), ("/*",)),)
    assert made.roles == (Role("shop", ("job:run",), Limits((), ("*",), (), 0, False)),)


def test_access_document_has_one_form_for_all_apps() -> None:
    assert decoded(bound(apps=["*", "/*"])).bindings[0].apps == ("/*",)


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"colour": 1}, "/colour", "unknown field; known fields are version, comment"),
        ({"binding": []}, "/binding", "did you mean bindings"),
        ({"version": -1}, "/version", "from 0 to"),
        ({"version": 1.5}, "/version", "must be an integer"),
        ({"version": True}, "/version", "must be an integer"),
        ({"comment": "a\nb"}, "/comment", "must be one line"),
        ({"comment": "\x1b[31m"}, "/comment", "must be one line"),
        ({"roles": {}}, "/roles", "must be a list of at most 200 objects"),
        ({"roles": ["x"]}, "/roles/0", 'must be an object, got "x"'),
        ({"roles": [{}]}, "/roles/0/name", "it is missing"),
        ({"roles": [{"name": "x"}]}, "/roles/0/rights", "must have at least one right"),
        (role(name="admin"), "/roles/0/name", "admin is a built-in role"),
        (role(name="Shop"), "/roles/0/name", "must be 1 to 63 of a-z"),
        ({"roles": 2 * role()["roles"]}, "/roles/1/name", "there are two roles shop; rename or remove one"),
        (
            role(rights=["job:fly"]),
            "/roles/0/rights/0",
            "there is no such right; use one of job:run, job:see",
        ),
        (
            role(rights=["jobs:run"]),
            "/roles/0/rights/0",
            "no right has the kind 'jobs'; use one of access, app",
        ),
        (role(rights=["gpu:drain:own"]), "/roles/0/rights/0", "cannot be restricted by 'own'"),
        (role(rights=["job:run", 5]), "/roles/0/rights/1", "must be a string, got 5"),
        (role(rights=["job:run", "job:run"]), "/roles/0/rights/1", "appears twice"),
        (role(rights=[f"app:write:{'*/' * 9}"]), "/roles/0/rights/0", "8 asterisks"),
        (limited(users=["root"]), "/roles/0/limits/users/0", "--allow-root"),
        (limited(users=["Ann!"]), "/roles/0/limits/users/0", "must be a user of Linux"),
        (limited(images=[""]), "/roles/0/limits/images/0", "must be an image"),
        (limited(volumes=["data"]), "/roles/0/limits/volumes/0", "or an absolute path"),
        (limited(volumes=["/data/../etc"]), "/roles/0/limits/volumes/0", "or an absolute path"),
        (limited(volumes=["/data/"]), "/roles/0/limits/volumes/0", "or an absolute path"),
        (limited(highest_priority=1001), "/roles/0/limits/highest_priority", "from -1000 to 1000"),
        (limited(highest_priority=1e308), "/roles/0/limits/highest_priority", "from -1000 to 1000"),
        (limited(must_be_preemptible="yes"), "/roles/0/limits/must_be_preemptible", "true or false"),
        (limited(colour=1), "/roles/0/limits/colour", "unknown field"),
        (role(limits=[]), "/roles/0/limits", "must be an object"),
        ({"bindings": [{"roles": ["user"]}]}, "/bindings/0", "but has neither"),
        ({"bindings": [{"names": ["ann"]}]}, "/bindings/0/roles", "must have at least one role"),
        (bound(roles=["usr"]), "/bindings/0/roles/0", 'there is no role "usr"; did you mean user'),
        (bound(names=["ann*"]), "/bindings/0/names/0", "must be exact"),
        (bound(groups=["*"]), "/bindings/0/groups/0", "must be exact"),
        (bound(names=[" ann"]), "/bindings/0/names/0", "without blanks"),
        (bound(names=["a\x1b[2J"]), "/bindings/0/names/0", "must be printable"),
        (bound(names=["a" * 257]), "/bindings/0/names/0", "1 to 256 characters"),
        (bound(queues=["Research"]), "/bindings/0/queues/0", "must be a queue or a pattern"),
        (bound(queues=["*" * 9]), "/bindings/0/queues/0", "8 asterisks"),
        (bound(apps=["shop"]), "/bindings/0/apps/0", "must be the path of an app"),
        (bound(queues="research"), "/bindings/0/queues", "must be a list"),
        (bound(colour=1), "/bindings/0/colour", "unknown field"),
        ({"bindings": [*1001 * bound()["bindings"]]}, "/bindings", "at most 1000 objects, got 1001"),
        (
            {"bindings": 4 * [{"names": [f"{n:0256}" for n in range(300)], "roles": ["user"]}]},
            "/",
            "262144 bytes",
        ),
        ({"unix_users": {"ann": "root"}}, "/unix_users/ann", "--allow-root"),
        ({"unix_users": {"a/b": "Ann"}}, "/unix_users/a~1b", "must be a user name of Linux"),
        ({"unix_users": {"*": "ann"}}, "/unix_users/*", "must be exact"),
        ({"unix_users": []}, "/unix_users", "must be an object"),
        ({"shares": {"ml": ["env"]}}, "/shares/ml", "must be a list of jobs, commands, output"),
        ({"shares": {"ml": [[]]}}, "/shares/ml", "must be a list of jobs, commands, output"),
        ({"shares": {"M L": []}}, "/shares/M L", "is not the name of one"),
    ],
)
def test_access_document_problem_is_reported_with_its_place(
    value: dict[str, Any], path: str, words: str
) -> None:
    found_at = problems(value)
    assert path in found_at
    assert words in found_at[path]


def test_access_document_problems_are_reported_at_once() -> None:
    value = {
        "roles": [{"name": "admin", "rights": ["job:fly"]}],
        **bound(roles=["usr"]),
        "unix_users": {"a": "root"},
    }
    assert set(problems(value)) == {
        "/roles/0/name", "/roles/0/rights/0", "/bindings/0/roles/0", "/unix_users/a",
    }  # fmt: skip


def test_access_question_is_about_a_subject_or_the_cluster() -> None:
    asked = check.decode({"name": "ann", "right": "job:kill", "queue": "ml", "owner": "bob"})
    assert asked == check.Question("ann", (), JOB_KILL, Subject("bob", "ml"))
    assert check.decode({"right": "queue:write", "queue": "ml"}) == check.Question("", (), QUEUE_WRITE, None)
    wrong = check.decode({"right": "job:fly", "name": "*", "colour": 1})
    assert isinstance(wrong, list)
    assert {problem.path for problem in wrong} == {"/right", "/name", "/colour"}


def test_token_request_lives_30_days_by_default_and_is_bounded() -> None:
    year_s = 365 * tokens.DAY_S
    made = tokens.decode({}, year_s)
    assert made == tokens.TokenRequest("", None, None, 30 * tokens.DAY_S, "")
    shorter = tokens.decode({}, 60.0)
    assert isinstance(shorter, tokens.TokenRequest)
    assert shorter.lifetime_s == 60.0


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"lifetime_s": 366 * tokens.DAY_S}, "/lifetime_s"),
        ({"lifetime_s": 0}, "/lifetime_s"),
        ({"lifetime_s": "1d"}, "/lifetime_s"),
        ({"name": "*"}, "/name"),
        ({"rights": []}, "/rights"),
        ({"rights": ["job:fly"]}, "/rights/0"),
        ({"queues": []}, "/queues"),
        ({"apps": ["x"]}, "/apps/0"),
        ({"comment": "a\nb"}, "/comment"),
        ({"secret": "x"}, "/secret"),
    ],
)
def test_token_request_problem_is_reported_with_its_place(value: dict[str, Any], path: str) -> None:
    wrong = tokens.decode(value, 365 * tokens.DAY_S)
    assert isinstance(wrong, list)
    assert [problem.path for problem in wrong] == [path]
