"""Decisions about rights: roles, bindings, patterns, sharing of queues, and narrowed proofs."""

import pytest

from mesos_gpu.access import rights as r
from mesos_gpu.access.decide import Rights, Subject, unix_user_of
from mesos_gpu.access.patterns import fits
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller, Narrowing, Proof
from mesos_gpu.model.access.document import AccessDocument, Binding, Limits, Role, Shared

DOCUMENT = AccessDocument(
    version=1,
    roles=(
        Role(
            "shop", ("app:write:/shop/*", "secret:use:team/*"), Limits(("www",), ("nginx:*",), ("/data",), 5)
        ),
    ),
    bindings=(
        Binding(("root@corp",), (), ("admin",)),
        Binding(("vera",), (), ("viewer",)),
        Binding(("ann",), ("ml",), ("user",), ("research",), ("/research/*",)),
        Binding(("sue",), (), ("shop",)),
        Binding(("otto",), (), ("operator",)),
    ),
    shares={"research": (Shared.JOBS,)},
)


def rights(name: str, *groups: str, narrowing: Narrowing | None = None) -> Rights:
    return Rights(DOCUMENT, Caller(name, frozenset(groups), Proof.TOKEN, narrowing=narrowing))


ANNS, BOBS = Subject("ann", "research"), Subject("bob", "research")


def test_rights_of_unproved_callers_are_none_or_all_without_proofs() -> None:
    assert not any(Rights(DOCUMENT, NOBODY).may(right, ANNS) for right in r.RIGHTS)
    assert all(Rights(DOCUMENT, ANYBODY).may(right, ANNS) for right in r.RIGHTS)
    assert not any(rights("nobody-bound").may_some(right) for right in r.RIGHTS)


def test_an_admin_has_every_right_and_so_has_root_by_the_kernels_word() -> None:
    local = Rights(AccessDocument(), Caller("root", proof=Proof.SOCKET, local_admin=True))
    for who in (rights("root@corp"), local):
        assert all(who.may(right, ANNS) and who.may(right) for right in r.RIGHTS)


def test_a_user_commands_its_own_jobs_in_its_queues_and_sees_what_these_share() -> None:
    ann = rights("ann")
    assert ann.may(r.JOB_RUN, ANNS)
    assert ann.may(r.JOB_KILL, ANNS)
    assert not ann.may(r.JOB_KILL, BOBS)
    assert ann.may(r.JOB_SEE, BOBS)  # the queue shares that
    assert not ann.may(r.JOB_READ, BOBS)
    assert not ann.may(r.JOB_OUTPUT, BOBS)
    assert not ann.may(r.JOB_SEE, Subject("bob", "other"))
    assert not ann.may(r.JOB_KILL, Subject("ann", "other"))  # no longer a queue of the caller


def test_groups_bind_like_names() -> None:
    assert rights("carl", "ml").may(r.JOB_RUN, Subject("carl", "research"))
    assert not rights("carl", "other").may(r.JOB_RUN, Subject("carl", "research"))


def test_instances_are_judged_as_their_apps() -> None:
    ann = rights("ann")
    assert ann.may(r.JOB_KILL, Subject("bob", "research", "/research/web"))
    assert not ann.may(r.JOB_KILL, Subject("ann", "research", "/shop/web"))


def test_paths_narrow_twice() -> None:
    sue = rights("sue")
    assert sue.may(r.APP_WRITE, Subject(app="/shop"))
    assert sue.may(r.APP_WRITE, Subject(app="/shop/a/b"))
    assert not sue.may(r.APP_WRITE, Subject(app="/shopping"))
    assert sue.may(r.SECRET_USE, Subject(name="team/hf", app="/shop/a"))
    assert not sue.may(r.SECRET_USE, Subject(name="other/hf", app="/shop/a"))


def test_rights_over_the_cluster_need_a_binding_for_all_of_it() -> None:
    local = AccessDocument(1, bindings=(Binding(("ann",), (), ("operator", "admin"), ("research",)),))
    ann = Rights(local, Caller("ann", proof=Proof.TOKEN))
    assert not ann.may(r.GPU_DRAIN)
    assert not ann.may(r.ACCESS_WRITE)
    assert ann.may(r.GPU_SEE)
    assert rights("otto").may(r.GPU_DRAIN)
    assert not rights("otto").may(r.JOB_ENV, ANNS)


def test_token_has_fewer_rights_than_its_name() -> None:
    ann = rights("ann", narrowing=Narrowing(("job:see",)))
    assert ann.may(r.JOB_SEE, ANNS)
    assert not ann.may(r.JOB_KILL, ANNS)
    assert "does not allow it" in ann.missing(r.JOB_KILL, ANNS)
    wide = rights("vera", narrowing=Narrowing(("*",)))
    assert not wide.may(r.JOB_KILL, ANNS)


def test_access_refusal_names_the_right_and_its_givers() -> None:
    vera = rights("vera")
    assert vera.missing(r.JOB_KILL, BOBS) == "vera lacks the right job:kill in queue research"
    assert vera.who_can_give() == "ask root@corp to bind a role that gives it (mesos-gpu access apply)"


def test_limits_are_those_of_the_roles_that_give_the_right() -> None:
    assert rights("sue").limits(r.APP_WRITE, Subject(app="/shop/a")).images == ("nginx:*",)
    assert rights("sue").limits(r.JOB_RUN, ANNS) == Limits(images=(), must_be_preemptible=True)
    assert rights("root@corp").limits(r.JOB_RUN, ANNS).users == ("*",)


def test_unix_user_follows_from_the_name() -> None:
    document = AccessDocument(unix_users={"ann@corp": "ann", "eve": "root"})
    assert unix_user_of(document, "ann@corp") == "ann"
    assert unix_user_of(document, "bob") == "bob"
    assert unix_user_of(document, "bob@corp") is None
    assert unix_user_of(document, "eve") is None
    assert unix_user_of(document, "root") is None


@pytest.mark.parametrize(
    ("pattern", "text", "does"),
    [
        ("*", "", True),
        ("/shop/*", "/shop", True),
        ("/shop/*", "/shop/a", True),
        ("/shop/*", "/shopx", False),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*a", "a", False),
        ("research", "research/x", False),
        ("q[a]*", "qa", False),
    ],
)
def test_pattern_matches_its_subjects(pattern: str, text: str, does: bool) -> None:
    assert fits(pattern, text) is does


def test_pattern_match_of_a_long_pattern_is_quick() -> None:
    assert not fits("*a" * 2000 + "b", "a" * 20000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("job:fly", "there is no such right; use one of job:run"),
        ("fly:job", "no right has the kind 'fly'"),
        ("job", "there is no such right; use one of job:run"),
        ("", "no right has the kind ''"),
        ("gpu:drain:own", "cannot be restricted by 'own'"),
        ("gpu:drain:x", "cannot be restricted by 'x'"),
        ("job:kill:own:x", "cannot be restricted by 'own:x'"),
    ],
)
def test_rights_that_there_are_not(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        r.parse(text)
