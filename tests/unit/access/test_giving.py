"""Rights that a caller may give: none beyond its own, and each document keeps an admin."""

from dataclasses import replace

import pytest

from mesos_gpu.access.decide import Rights
from mesos_gpu.access.giving import givers, has_everything, is_narrower, overreach
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller, Narrowing, Proof
from mesos_gpu.model.access.document import AccessDocument, Binding, Limits, Role, Shared

WRITER = Role(
    "writer",
    ("access:write", "job:kill", "job:see:own", "app:write:/shop/*"),
    Limits(("www",), ("nginx:*",), ("/data",), 5),
)
DOCUMENT = AccessDocument(
    version=1,
    roles=(WRITER,),
    bindings=(
        Binding(("boss",), (), ("admin",)),
        Binding(("will",), (), ("writer",)),
        Binding(("half",), (), ("admin",), ("research",)),
    ),
)


def rights(name: str, narrowing: Narrowing | None = None) -> Rights:
    return Rights(DOCUMENT, Caller(name, proof=Proof.TOKEN, narrowing=narrowing))


def reach(who: Rights, *, roles: tuple[Role, ...] = (), **changes: object) -> list[str]:
    new = replace(DOCUMENT, roles=(*DOCUMENT.roles, *roles), **changes)  # type: ignore[arg-type]
    return [path for path, _ in overreach(who, DOCUMENT, new)]


def given(*bindings: Binding) -> tuple[Binding, ...]:
    return (*DOCUMENT.bindings, *bindings)


def test_access_giver_with_every_right_may_give_every_right() -> None:
    for who in (
        rights("boss"),
        Rights(DOCUMENT, ANYBODY),
        Rights(DOCUMENT, Caller("root", local_admin=True)),
    ):
        assert has_everything(who)
        assert reach(who, bindings=(), unix_users={"a": "b"}, shares={"q": (Shared.JOBS,)}) == []
    for less in (rights("will"), rights("half"), Rights(DOCUMENT, NOBODY)):
        assert not has_everything(less)
    assert not has_everything(rights("boss", Narrowing(("access:*",))))


@pytest.mark.parametrize(
    ("role", "binding", "allowed"),
    [
        (Role("r", ("job:kill",)), Binding(("x",)), True),  # its limits are for nothing: it runs nothing
        (Role("r", ("job:kill",), Limits(images=())), Binding(("x",)), True),
        (Role("r", ("job:kill:own",), Limits(images=())), Binding(("x",), queues=("ml",)), True),
        (Role("r", ("job:see:own",), Limits(images=())), Binding(("x",)), True),
        (Role("r", ("job:see",), Limits(images=())), Binding(("x",)), False),  # bindings of the caller alone
        (Role("r", ("app:write:/shop/a",), Limits(images=())), Binding(("x",)), True),
        (Role("r", ("app:write:/shop/*",), Limits(images=())), Binding(("x",)), True),
        (Role("r", ("app:write:/*",), Limits(images=())), Binding(("x",)), False),
        (Role("r", ("app:write",), Limits(images=())), Binding(("x",), apps=("/shop/*",)), False),
        (Role("r", ("*",), Limits(images=())), Binding(("x",)), False),
        (Role("r", ("job:*",), Limits(images=())), Binding(("x",)), False),
        (
            Role("r", ("app:write:/shop/a",), Limits(("www",), ("nginx:1",), ("/data/x",), 5)),
            Binding(("x",)),
            True,
        ),
        (Role("r", ("app:write:/shop/a",), Limits(("db",), ())), Binding(("x",)), False),
        (Role("r", ("app:write:/shop/a",), Limits((), ("*",))), Binding(("x",)), False),
        (Role("r", ("app:write:/shop/a",), Limits((), (), ("/",))), Binding(("x",)), False),
        (Role("r", ("app:write:/shop/a",), Limits((), (), ("/database",))), Binding(("x",)), False),
        (Role("r", ("app:write:/shop/a",), Limits((), (), (), 6)), Binding(("x",)), False),
    ],
)
def test_access_giver_with_fewer_rights_gives_no_more(role: Role, binding: Binding, allowed: bool) -> None:
    bindings = given(replace(binding, roles=("r",)))
    assert reach(rights("will"), roles=(role,), bindings=bindings) == ([] if allowed else ["/bindings/3"])


def test_limits_count_where_their_role_lets_something_run() -> None:
    """Neither a role that runs nothing, nor one for another queue, lets its holder give wider limits."""
    small = Role("small", ("job:run",), Limits((), ("corp/*",), (), 0, True))
    large = Role("large", ("job:run",), Limits(("svc-*",), ("*",), ("/data",), 5))
    writes = Role("writes", ("access:write",), Limits(("*",), ("*",), ("*",), 100))
    old = AccessDocument(
        roles=(small, large, writes),
        bindings=(
            Binding(("will",), (), ("small", "writes", "viewer")),
            Binding(("will",), (), ("large",), ("gpu-*",)),
        ),
    )
    will = Rights(old, Caller("will", proof=Proof.TOKEN))
    for role, queues, allowed in (
        (small, ("*",), True),
        (large, ("gpu-a",), True),
        (large, ("*",), False),
        (Role("r", ("job:run",), Limits((), ("*",), (), 0, True)), ("ml",), False),
        (Role("r", ("job:run",), Limits((), ("corp/*",))), ("ml",), False),  # not preemptible
    ):
        new = replace(
            old,
            roles=(*old.roles, replace(role, name="given")),
            bindings=(*old.bindings, Binding(("eve",), (), ("given",), queues)),
        )
        assert ([] if allowed else ["/bindings/2"]) == [path for path, _ in overreach(will, old, new)], role


def test_a_pattern_of_all_apps_is_as_wide_as_none_and_one_of_secrets_is_not() -> None:
    for have, right, allowed in (
        ("app:write:/*", "app:write", True),
        ("app:write", "app:write:*", True),
        ("secret:use:/*", "secret:use", False),
    ):
        old = AccessDocument(
            roles=(Role("some", ("access:write", have), Limits(images=())),),
            bindings=(Binding(("will",), (), ("some",)),),
        )
        role = Role("r", (right,), Limits(images=(), must_be_preemptible=True))
        new = replace(old, roles=(*old.roles, role), bindings=(*old.bindings, Binding(("eve",), (), ("r",))))
        assert (overreach(Rights(old, Caller("will", proof=Proof.TOKEN)), old, new) == []) is allowed


def test_access_document_may_keep_bindings_of_others_but_not_move_them() -> None:
    assert reach(rights("will"), bindings=DOCUMENT.bindings[:2], comment="less") == []
    to_himself = replace(DOCUMENT.bindings[0], names=("boss", "will"))
    assert reach(rights("will"), bindings=(to_himself, *DOCUMENT.bindings[1:])) == ["/bindings/0"]
    wider = replace(DOCUMENT.bindings[2], queues=("*",))
    assert reach(rights("will"), bindings=(*DOCUMENT.bindings[:2], wider)) == ["/bindings/2"]


def test_a_role_that_is_bound_already_grows_for_those_alone_who_have_what_it_gives() -> None:
    grown = replace(DOCUMENT, roles=(replace(WRITER, rights=("*",)),))
    assert [path for path, _ in overreach(rights("will"), DOCUMENT, grown)] == ["/bindings/1"]
    assert overreach(rights("boss"), DOCUMENT, grown) == []


def test_unix_users_and_shares_are_for_those_who_have_everything() -> None:
    assert reach(rights("will"), unix_users={"will": "postgres"}) == ["/unix_users"]
    assert reach(rights("will"), shares={"research": (Shared.OUTPUT,)}) == ["/shares"]


def test_a_narrowed_proof_gives_no_more_than_it_is_good_for() -> None:
    narrowed = rights("boss", Narrowing(("access:*", "job:kill")))
    role = Role("r", ("job:kill",), Limits(images=()))
    assert reach(narrowed, roles=(role,), bindings=given(Binding(("x",), (), ("r",)))) == []
    assert reach(narrowed, bindings=given(Binding(("x",), (), ("admin",)))) == ["/bindings/3"]


def test_access_document_givers_are_its_admins_of_everything() -> None:
    assert givers(DOCUMENT) == [0, 1]  # `half` has it for one queue, which is for nothing
    assert givers(replace(DOCUMENT, bindings=DOCUMENT.bindings[2:])) == []
    assert givers(AccessDocument(bindings=(Binding((), (), ("admin",)),))) == []
    assert givers(AccessDocument(bindings=(Binding((), ("ops",), ("viewer", "admin")),))) == [0]


@pytest.mark.parametrize(
    ("wide", "narrow", "is_it"),
    [
        (None, Narrowing(), True),
        (Narrowing(), Narrowing(), True),
        (Narrowing(("job:*",)), Narrowing(("job:run", "job:kill:own")), True),
        (Narrowing(("job:*",)), Narrowing(), False),
        (Narrowing(("job:kill:own",)), Narrowing(("job:kill",)), False),
        (Narrowing(queues=("ml-*",)), Narrowing(queues=("ml-a", "ml-b*")), True),
        (Narrowing(queues=("ml-*",)), Narrowing(queues=("ml-a", "m*")), False),
        (Narrowing(apps=("/shop/*",)), Narrowing(apps=("/shop", "/shop/a/*")), True),
        (Narrowing(apps=("/shop/*",)), Narrowing(apps=("/*",)), False),
        (Narrowing(("app:write:/shop/*",)), Narrowing(("app:write:/shop/a/*",)), True),
        (Narrowing(("app:write:/shop/*",)), Narrowing(("app:write",)), False),
    ],
)
def test_narrowed_proof_is_compared_with_another(
    wide: Narrowing | None, narrow: Narrowing, is_it: bool
) -> None:
    assert is_narrower(wide, narrow) is is_it
