"""Patterns, narrowing and the document: what is said to be covered is, and what is written comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.giving import is_narrower, overreach
from mesos_gpu.access.patterns import covers, fits
from mesos_gpu.access.rights import RIGHTS, parse
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import AccessDocument, Binding, Limits, Role, Shared
from mesos_gpu.wire.access import document
from tests.property.examples import examples

PATTERNS = st.text("a/*", max_size=6)
PATHS = st.text("a/", max_size=8)


@given(PATTERNS, PATTERNS, PATHS)
@settings(max_examples=250)
def test_pattern_that_covers_another_is_for_all_that_the_other_is_for(
    wide: str, narrow: str, text: str
) -> None:
    if covers(wide, narrow) and fits(narrow, text):
        assert fits(wide, text)


@given(PATTERNS, PATTERNS, PATTERNS)
@settings(max_examples=200)
def test_covering_is_passed_on(one: str, two: str, three: str) -> None:
    assert covers(one, one)
    if covers(one, two) and covers(two, three):
        for text in ("", "a", "/a", "a/", "a/a", "aa", "/", "/a/a"):
            assert fits(one, text) or not fits(three, text)


TEXTS = st.sampled_from(
    ["*", "job:*", "job:run", "job:kill", "job:kill:own", "job:see:own", "job:kill:ml*", "app:write", "app:*:own",
     "app:write:/shop/*", "app:write:/shop/a", "gpu:*", "queue:write", "access:write", "token:*", "token:create:own",
     "secret:use:team/*", "secret:use:team/a", "cluster:see"]
)  # fmt: skip
RIGHT_TEXTS = st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(tuple)
QUEUES = st.lists(
    st.sampled_from(["*", "ml", "ml-*", "ml-a", "web"]), min_size=1, max_size=2, unique=True
).map(tuple)
APPS = st.lists(
    st.sampled_from(["/*", "/shop/*", "/shop", "/shop/a", "/x"]), min_size=1, max_size=2, unique=True
).map(tuple)
NARROWINGS = st.builds(Narrowing, RIGHT_TEXTS, QUEUES, APPS)
SUBJECTS = st.none() | st.builds(
    Subject,
    st.sampled_from(["", "ann", "bob"]),
    st.sampled_from(["", "ml", "ml-a", "ml-b", "web"]),
    st.sampled_from(["", "/shop", "/shop/a", "/x"]),
    st.sampled_from(["", "team/a", "team/b", "x"]),
)
EVERYTHING = AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),))


def may(narrowing: Narrowing, right: int, subject: Subject | None) -> bool:
    rights = Rights(EVERYTHING, Caller("ann", proof=Proof.TOKEN, narrowing=narrowing))
    return rights.may(RIGHTS[right], subject)


@given(NARROWINGS, NARROWINGS, st.integers(0, len(RIGHTS) - 1), SUBJECTS)
@settings(max_examples=200)
def test_a_narrower_proof_allows_nothing_that_the_wider_one_does_not(
    wide: Narrowing, narrow: Narrowing, right: int, subject: Subject | None
) -> None:
    if is_narrower(wide, narrow) and may(narrow, right, subject):
        assert may(wide, right, subject)


ROLES = st.builds(Role, st.sampled_from(["r1", "r2"]), RIGHT_TEXTS, st.just(Limits(images=())))
BOUND = st.builds(Binding, st.just(("ann",)), st.just(()), st.just(("r1",)), QUEUES, APPS)


@given(ROLES, BOUND, ROLES, BOUND, st.integers(0, len(RIGHTS) - 1), SUBJECTS)
@settings(max_examples=200)
def test_roles_are_given_only_within_the_givers_own_rights(
    mine: Role, my_binding: Binding, given_role: Role, binding: Binding, right: int, subject: Subject | None
) -> None:
    """Who may write the document binds a role to himself: he may do no more after it than before."""
    old = AccessDocument(1, roles=(named(mine, "r1"),), bindings=(my_binding,))
    new = AccessDocument(
        2,
        roles=(*old.roles, named(given_role, "r2")),
        bindings=(my_binding, Binding(("ann",), (), ("r2",), binding.queues, binding.apps)),
    )
    ann = Caller("ann", proof=Proof.TOKEN)
    if not overreach(Rights(old, ann), old, new) and Rights(new, ann).may(RIGHTS[right], subject):
        assert Rights(old, ann).may(RIGHTS[right], subject)


def named(role: Role, name: str) -> Role:
    return Role(name, role.rights, role.limits)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and text == text.strip() and "*" not in text
)
LIMITS = st.builds(
    Limits,
    st.lists(st.sampled_from(["www", "svc-*", "*"]), unique=True).map(tuple),
    st.lists(st.sampled_from(["*", "nginx:*", "a/b@sha256:c"]), unique=True).map(tuple),
    st.lists(st.sampled_from(["*", "/", "/data", "/a/b"]), unique=True).map(tuple),
    st.integers(-1000, 1000),
    st.booleans(),
)
DOCUMENTS = st.builds(
    AccessDocument,
    version=st.integers(0, 2**53),
    comment=st.text(max_size=50).filter(str.isprintable),
    roles=st.lists(
        st.builds(Role, st.from_regex(document.ROLE_NAME, fullmatch=True).filter(lambda n: n not in
                  ("viewer", "user", "operator", "admin")), RIGHT_TEXTS, LIMITS),
        max_size=3, unique_by=lambda role: role.name,
    ).map(tuple),
    bindings=st.lists(
        st.builds(
            Binding,
            st.lists(NAMES | st.just("*"), min_size=1, max_size=3, unique=True).map(tuple),
            st.lists(NAMES, max_size=3, unique=True).map(tuple),
            st.lists(st.sampled_from(["viewer", "user", "operator", "admin"]), min_size=1, unique=True).map(tuple),
            QUEUES,
            APPS,
        ),
        max_size=4,
    ).map(tuple),
    unix_users=st.dictionaries(NAMES, st.sampled_from(["ann", "www-data", "_x"]), max_size=3),
    shares=st.dictionaries(
        st.sampled_from(["ml", "a.b-c"]), st.lists(st.sampled_from(Shared), unique=True).map(tuple), max_size=2
    ),
)  # fmt: skip


@given(DOCUMENTS)
@examples(15, 60)
def test_a_document_comes_back_as_it_was(made: AccessDocument) -> None:
    assert document.decode(document.encode(made)) == made


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*document.KNOWN, *document.ROLE_KNOWN, *document.LIMITS_KNOWN, *document.BINDING_KNOWN, "x"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*document.KNOWN, "x"]), JSON, max_size=4))
@settings(max_examples=200)
def test_document_of_any_content_is_read_or_has_problems(value: dict[str, object]) -> None:
    made = document.decode(value)
    if isinstance(made, AccessDocument):
        assert all(role.rights and all(parse(text).rights for text in role.rights) for role in made.roles)
        assert all((binding.names or binding.groups) and binding.roles for binding in made.bindings)
        assert "root" not in made.unix_users.values()
        assert document.decode(document.encode(made)) == made
    else:
        assert made
        assert all(problem.path.startswith("/") for problem in made)
