"""Steps of a deployment, their undoing, versions and locks."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.rollout import Plan, VersionInfo
from mesos_gpu.policy.apps.rollout.plan import locks, plan, rollback, versions_after

Steps = list[list[str]]


def tree(*apps: App, groups: tuple[Group, ...] = ()) -> Group:
    return Group("/", apps=apps, groups=groups)


def steps(of: Plan) -> Steps:
    return [[f"{action.kind.value} {action.app.id}" for action in step] for step in of.steps]


A, B, C = (
    App("/a", cmd="a"),
    App("/b", cmd="b", dependencies=("/a",)),
    App("/c", cmd="c", dependencies=("/b",)),
)
FRONT = Group("/front", apps=(App("/front/web"),), dependencies=("/back",))
BACK = Group("/back", apps=(App("/back/api", dependencies=("/back/db",)), App("/back/db")))

PLANS: Mapping[str, tuple[Group, Group, Steps]] = {
    "nothing changes": (tree(A, B), tree(A, B), []),
    "new: known first, then scaled": (tree(), tree(A), [["StartApplication /a"], ["ScaleApplication /a"]]),
    "new without instances": (
        tree(),
        tree(replace(A, instances=0)),
        [["StartApplication /a"], ["ScaleApplication /a"]],
    ),
    "gone": (tree(A, B), tree(A), [["StopApplication /b"]]),
    "only the number": (tree(A), tree(replace(A, instances=3)), [["ScaleApplication /a"]]),
    "a label is a change too": (tree(A), tree(replace(A, labels={"x": "y"})), [["RestartApplication /a"]]),
    "changed, and none is wanted": (
        tree(A),
        tree(replace(A, cmd="z", instances=0)),
        [["ScaleApplication /a"]],
    ),
    "dependencies first": (
        tree(),
        tree(C, B, A),
        [
            ["StartApplication /a", "StartApplication /b", "StartApplication /c"],
            ["ScaleApplication /a"],
            ["ScaleApplication /b"],
            ["ScaleApplication /c"],
        ],
    ),
    "one in between that stays makes no step": (
        tree(A, B, C),
        tree(replace(A, cmd="z"), B, replace(C, cmd="z")),
        [["RestartApplication /a"], ["RestartApplication /c"]],
    ),
    "the same depth shares a step": (
        tree(A, B, App("/d"), App("/e")),
        tree(*(replace(app, cmd="z") for app in (A, B, App("/d"))), replace(App("/e"), instances=2)),
        [
            ["RestartApplication /a", "RestartApplication /d", "ScaleApplication /e"],
            ["RestartApplication /b"],
        ],
    ),
    "groups depend on groups": (
        tree(),
        tree(groups=(FRONT, BACK)),
        [
            ["StartApplication /back/api", "StartApplication /back/db", "StartApplication /front/web"],
            ["ScaleApplication /back/db"],
            ["ScaleApplication /back/api"],
            ["ScaleApplication /front/web"],
        ],
    ),
    "an app depends on a group": (
        tree(groups=(BACK,)),
        tree(replace(A, dependencies=("/back",)), groups=(BACK,)),
        [["StartApplication /a"], ["ScaleApplication /a"]],
    ),
    "what does not exist is not waited for": (
        tree(),
        tree(replace(A, dependencies=("/nowhere",))),
        [["StartApplication /a"], ["ScaleApplication /a"]],
    ),
}


@pytest.mark.parametrize(("original", "target", "want"), PLANS.values(), ids=PLANS)
def test_deployment_plan_has_these_steps(original: Group, target: Group, want: Steps) -> None:
    made = plan(original, target)
    assert steps(made) == want
    assert made.affected == {name.split()[1] for step in want for name in step}


def test_restart_without_a_change() -> None:
    idle = replace(B, instances=0)
    made = plan(tree(A, idle), tree(A, idle), restarts=["/a", "/b", "/gone"])
    assert steps(made) == [["RestartApplication /a"], ["ScaleApplication /b"]]
    assert made.restarts == {"/a", "/b"}


def test_scaling_takes_the_chosen_instances() -> None:
    for instances in (1, 2):  # of two: one fewer, or another one instead
        made = plan(
            tree(replace(A, instances=2)), tree(replace(A, instances=instances)), kill={"/a": ("a.1",)}
        )
        assert [(action.app.instances, action.kill) for action in made.steps[0]] == [(instances, ("a.1",))]


CIRCLES = {
    "two apps": (tree(replace(A, dependencies=("/b",)), B), {"/a -> /b -> /a", "/b -> /a -> /b"}),
    "itself": (tree(replace(A, dependencies=("/a",))), {"/a -> /a"}),
    "its own group": (
        tree(groups=(Group("/g", apps=(App("/g/x", dependencies=("/g",)),)),)),
        {"/g/x -> /g/x"},
    ),
}


@pytest.mark.parametrize(("target", "circles"), CIRCLES.values(), ids=CIRCLES)
def test_dependency_cycles_are_refused(target: Group, circles: set[str]) -> None:
    with pytest.raises(BadConfiguration) as caught:
        plan(tree(), target)
    assert caught.value.what.removeprefix("apps depend on each other in a circle: ") in circles


def test_dependency_cycle_is_named_in_the_order_of_dependence() -> None:
    first = replace(A, dependencies=("/c",))  # a needs c, c needs b, b needs a
    with pytest.raises(BadConfiguration) as caught:
        plan(tree(), tree(first, B, C))
    names = caught.value.what.split(": ")[1].split(" -> ")
    needs = {"/a": "/c", "/c": "/b", "/b": "/a"}
    assert all(needs[one] == other for one, other in pairwise(names))


def test_deployment_plan_of_a_long_chain() -> None:
    chain = [App(f"/a{n}", dependencies=(f"/a{n - 1}",) if n else ()) for n in range(3000)]
    assert len(plan(tree(), tree(*chain)).steps) == 3001


NESTED = tree(A, groups=(FRONT, BACK, Group("/empty", dependencies=("/front",))))
CHANGES = {
    "an app changed": tree(replace(A, cmd="z"), groups=NESTED.groups),
    "an app scaled": tree(replace(A, instances=7), groups=NESTED.groups),
    "an app added, and its groups": tree(
        A, groups=(*NESTED.groups, Group("/n", groups=(Group("/n/m", apps=(App("/n/m/x"),)),)))
    ),
    "everything gone": tree(),
    "a group gone": tree(A, groups=(BACK, NESTED.groups[2])),
    "dependencies of a group changed": tree(
        A, groups=(replace(FRONT, dependencies=("/a",)), *NESTED.groups[1:])
    ),
    "a role enforced": tree(A, groups=(replace(FRONT, enforce_role=True), *NESTED.groups[1:])),
    "an app moved to another place": tree(
        groups=(BACK, FRONT, Group("/empty"), Group("/z", apps=(App("/z/a"),)))
    ),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_rollback_gives_back_what_was(changed: Group) -> None:
    there = plan(NESTED, changed)
    back = rollback(there, changed)
    assert (back.original, back.target) == (changed, NESTED)
    assert rollback(back, NESTED).target.apps == changed.apps


def test_rollback_of_a_restart_restarts() -> None:
    back = rollback(plan(tree(A), tree(A), restarts=["/a"]), tree(A))
    assert steps(back) == [["RestartApplication /a"]]


def test_rollback_leaves_what_others_did() -> None:
    ours = tree(replace(A, cmd="z"), B, groups=(Group("/n", apps=(App("/n/x"),), dependencies=("/a",)),))
    others = Group("/n", apps=(App("/n/x"), App("/n/y")), dependencies=("/a", "/b"))
    scaled = replace(B, instances=5)
    back = rollback(plan(tree(A, B), ours), tree(replace(A, cmd="z"), scaled, groups=(others,)))
    kept = Group("/n", apps=(App("/n/y"),), dependencies=("/b",))
    assert back.target == tree(A, scaled, groups=(kept,))
    assert steps(back) == [["StopApplication /n/x"], ["RestartApplication /a"]]


def test_rollback_makes_groups_anew_that_others_took_away() -> None:
    original = tree(groups=(Group("/n", groups=(Group("/n/m", apps=(App("/n/m/x"),)),)),))
    gone = tree(groups=(Group("/n", groups=(Group("/n/m"),)),))
    assert rollback(plan(original, gone), tree()).target == original


def test_versions_change_with_what_was_changed() -> None:
    first = VersionInfo(1.0, 1.0, 1.0)
    versions = {"/a": first, "/b": first, "/d": first, "/e": first}
    old = tree(A, B, App("/d"), App("/e"))
    new = tree(replace(A, cmd="z"), replace(B, instances=2), App("/d"), App("/f"))
    made = plan(old, new, restarts=["/d"])
    after = versions_after(made, versions, at=2.0)
    assert after == {
        "/a": VersionInfo(2.0, 2.0, 2.0),
        "/b": VersionInfo(2.0, 2.0, 1.0),
        "/d": VersionInfo(2.0, 1.0, 2.0),
        "/f": VersionInfo(2.0, 2.0, 2.0),
    }
    back = rollback(made, new)
    assert versions_after(back, after, at=3.0, known=versions) == versions
    assert versions_after(plan(new, new), after, at=4.0) == after


def test_running_deployments_lock_their_apps() -> None:
    running = {"d2": {"/a", "/b"}, "d1": {"/b"}, "d3": {"/c"}}
    assert locks(running, {"/b", "/x"}) == ("d1", "d2")
    assert locks(running, {"/x"}) == locks(running, ()) == locks({}, {"/b"}) == ()
