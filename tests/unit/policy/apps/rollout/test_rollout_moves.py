"""Moves of a deployment for one app: scale, update, stop, and wait."""

from dataclasses import replace

import pytest

from mesos_gpu.model.apps.app import App, KillSelection, UnreachableStrategy, UpgradeStrategy
from mesos_gpu.model.apps.rollout import Action, ActionKind, Instance, InstanceState, NextOperations, Target
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.policy.apps.rollout.moves import Bounds, bounds, next_moves, serves, target

BEGAN = 100.0
OLD, NEW = 1.0, 2.0


def aim(instances: int, healthy: float = 1.0, over: float = 1.0, *, in_place: bool = False) -> Target:
    strategy = UpgradeStrategy(healthy, over)
    app = App("/a", upgrade_strategy=strategy, instances=instances)
    return target(Action(ActionKind.RESTART, app), version=NEW, began_at=BEGAN, in_place=in_place)


def runs(name: str, version: float = NEW, *, at: float = 150.0, **more: object) -> Instance:
    return replace(Instance(name, version, InstanceState.RUNNING, since=at, started_at=at), **more)  # type: ignore[arg-type]


def starts(name: str, state: InstanceState, version: float = NEW, since: float = 150.0) -> Instance:
    return Instance(name, version, state, since=since)


def olds(count: int) -> list[Instance]:
    return [runs(f"o{n}", OLD, at=float(n)) for n in range(count)]


def news(count: int) -> list[Instance]:
    return [runs(f"n{n}") for n in range(count)]


BOUNDS = {
    "Marathon's defaults: as many again": (aim(4), Bounds(4, 8)),
    "half may be missing, none more": (aim(5, 0.5, 0.0), Bounds(3, 5)),
    "neither less nor more: one more": (aim(4, 1.0, 0.0), Bounds(4, 5)),
    "a share that is no whole instance: one more": (aim(1, 0.5, 0.5), Bounds(1, 2)),
    "rounded as binary fractions are, like Marathon": (aim(100, 0.07, 0.15), Bounds(8, 114)),
    "in place: one less instead of one more": (aim(4, in_place=True), Bounds(3, 4)),
    "in place, down to the share": (aim(4, 0.25, in_place=True), Bounds(1, 4)),
    "nothing is wanted": (aim(0), Bounds(0, 0)),
    "nothing is wanted, in place": (aim(0, in_place=True), Bounds(0, 0)),
}


def test_rollout_bounds_of_a_deployment() -> None:
    for name, (goal, want) in BOUNDS.items():
        assert bounds(goal) == want, name


MOVES = {
    "starts all": (aim(3), [], NextOperations(launch=3)),
    "scales up": (aim(5), news(3), NextOperations(launch=2)),
    "is as it should be": (aim(3), news(3), NextOperations(done=True)),
    "stops": (aim(0), olds(1) + news(1), NextOperations(kill=("n0", "o0"))),
    "has stopped": (aim(0), [], NextOperations(done=True)),
    "updates: as many new ones as there may be": (aim(3), olds(3), NextOperations(launch=3)),
    "updates: one at a time, first one more": (aim(3, 1, 0), olds(3), NextOperations(launch=1)),
    "updates: what the share allows goes at once, the youngest first": (
        aim(4, 0.5, 0),
        olds(4),
        NextOperations(kill=("o3", "o2")),
    ),
    "updates: places of what ended are filled": (aim(4, 0.5, 0), olds(2), NextOperations(launch=2)),
    "updates: each new one frees an old one": (
        aim(4, 0.5, 0),
        olds(2) + news(1),
        NextOperations(launch=1, kill=("o1",)),
    ),
    "updates: the last old ones": (aim(2), olds(2) + news(2), NextOperations(kill=("o1", "o0"))),
    "updates in place": (aim(4, in_place=True), olds(4), NextOperations(kill=("o3",))),
    "updates in place, the next": (aim(4, in_place=True), olds(3), NextOperations(launch=1)),
    "updates to fewer": (aim(2, 1, 0), olds(5), NextOperations(kill=("o4", "o3", "o2"))),
    "updates from fewer": (aim(4, 1, 0), olds(2), NextOperations(launch=3)),
    "an old one that never ran goes at once, those it leaves room for start": (
        aim(2, 1, 0),
        [*olds(1), starts("s", InstanceState.STAGING, OLD)],
        NextOperations(launch=1, kill=("s",)),
    ),
    "an old one that is sick goes first": (
        aim(2, 1, 0),
        [runs("o0", OLD, healthy=False), *olds(2)[1:], *news(1)],
        NextOperations(kill=("o0",)),
    ),
    "if all old ones are sick at once, they are spared as if they were not": (
        aim(4, 0.5, 0),
        [runs(f"o{n}", OLD, at=n, healthy=False) for n in range(4)],
        NextOperations(kill=("o3", "o2")),
    ),
    "old ones of unknown health are spared": (
        aim(2, 0.5, 0),
        [runs(f"o{n}", OLD, checked=True) for n in range(2)],
        NextOperations(waiting="waits for 2 old instances to show whether they are healthy"),
    ),
    "of unknown health, but enough others serve": (
        aim(2, 0.5, 0),
        [runs("o0", OLD, checked=True), runs("o1", OLD, checked=True, healthy=True)],
        NextOperations(kill=("o0",)),
    ),
    "what the user chose goes, and another one comes": (
        replace(aim(2), kill=frozenset({"n0"})),
        news(2),
        NextOperations(launch=1, kill=("n0",)),
    ),
    "what the user chose goes, an old one too": (
        replace(aim(2), kill=frozenset({"o0"})),
        [*olds(2), runs("n0", checked=True)],
        NextOperations(launch=1, kill=("o0",)),
    ),
    "what the user chose goes first": (
        replace(aim(1), kill=frozenset({"n0"})),
        news(2),
        NextOperations(kill=("n0",)),
    ),
    "what the user chose does not count among those that serve": (
        replace(aim(2), kill=frozenset({"n0"})),
        [*olds(1), *news(2)],
        NextOperations(launch=1, kill=("n0",)),
    ),
    "an instance of before the deployment needs not be healthy": (
        aim(2),
        [runs("n0", at=BEGAN - 1, checked=True, healthy=False), runs("n1")],
        NextOperations(done=True),
    ),
}


def test_rollout_moves_do_not_depend_on_the_order_of_instances() -> None:
    for name, (goal, instances, want) in MOVES.items():
        assert next_moves(goal, instances, now=200.0) == want, name
        assert next_moves(goal, instances[::-1], now=200.0) == want, name


WAITS = {
    "1 new instance to be placed": [runs("a"), starts("b", InstanceState.WAITING)],
    "1 new instance to start": [runs("a"), starts("b", InstanceState.STAGING)],
    "1 new instance to run": [runs("a"), starts("b", InstanceState.STARTING)],
    "2 new instances to become healthy": [runs("a", checked=True), runs("b", checked=True)],
    "1 new instance to become healthy again": [runs("a", healthy=False), runs("b")],
    "1 new instance to pass the readiness checks": [runs("a", ready=False), runs("b")],
    "1 instance to end": [*news(2), runs("o", OLD, ending=True)],
    "1 instance to end, for 1 new instance to start": [
        runs("o", OLD, ending=True),
        runs("a"),
        starts("b", InstanceState.STAGING),
    ],
}


@pytest.mark.parametrize(("why", "instances"), WAITS.items(), ids=WAITS)
def test_rollout_names_what_it_waits_for(why: str, instances: list[Instance]) -> None:
    assert next_moves(aim(2), instances, now=200.0) == NextOperations(waiting=f"waits for {why}")


@pytest.mark.parametrize(
    ("selection", "order"),
    [
        (
            KillSelection.YOUNGEST_FIRST,
            ["wait", "cut", "sick", "stage", "start", "unready", "new", "young", "aged"],
        ),
        (
            KillSelection.OLDEST_FIRST,
            ["wait", "cut", "sick", "stage", "start", "unready", "new", "aged", "young"],
        ),
    ],
)
def test_scaling_down_takes_the_least_useful_first(selection: KillSelection, order: list[str]) -> None:
    instances = [
        runs("young", at=50.0),
        runs("aged", at=10.0),
        runs("new", checked=True),
        runs("unready", ready=False),
        starts("start", InstanceState.STARTING),
        starts("stage", InstanceState.STAGING),
        runs("sick", healthy=False),
        starts("cut", InstanceState.UNREACHABLE),
        starts("wait", InstanceState.WAITING),
    ]
    for wanted in range(9):
        goal = replace(aim(wanted), kill_selection=selection, unreachable_strategy=None)
        assert next_moves(goal, instances, now=200.0).kill == tuple(order[: 9 - wanted])


def test_unreachable_instance_is_replaced_in_time_and_one_goes_when_it_returns() -> None:
    goal = replace(aim(2), unreachable_strategy=UnreachableStrategy(60, 600))
    cut = replace(runs("cut"), state=InstanceState.UNREACHABLE, since=200.0)
    assert (
        next_moves(goal, [cut, runs("a")], now=259.0).waiting
        == "waits for 1 new instance to be reachable again"
    )
    assert next_moves(goal, [cut, runs("a")], now=260.0) == NextOperations(launch=1)
    assert next_moves(goal, [cut, *news(2)], now=260.0) == NextOperations(done=True)
    assert next_moves(goal, [runs("cut", at=190.0), *news(2)], now=300.0) == NextOperations(kill=("cut",))


def test_unreachable_old_instance_is_asked_to_end_and_not_waited_for() -> None:
    goal = replace(aim(1), unreachable_strategy=None)
    cut = replace(runs("cut", OLD), state=InstanceState.UNREACHABLE)
    assert next_moves(goal, [cut, runs("a")], now=1e9) == NextOperations(kill=("cut",))
    assert next_moves(goal, [replace(cut, ending=True), runs("a")], now=200.0) == NextOperations(done=True)


def test_unreachable_instance_is_asked_to_end_if_it_is_not_needed() -> None:
    cut = replace(runs("cut", OLD), state=InstanceState.UNREACHABLE)
    assert next_moves(aim(1), [cut, runs("a")], now=200.0) == NextOperations(kill=("cut",))
    assert next_moves(aim(0), [replace(cut, version=NEW)], now=200.0) == NextOperations(kill=("cut",))
    assert next_moves(aim(1), [replace(cut, version=NEW), runs("a")], now=200.0) == NextOperations(done=True)


def test_unreachable_instance_that_the_user_chose_is_asked_to_end() -> None:
    cut = [replace(runs(name), state=InstanceState.UNREACHABLE) for name in ("a", "b")]
    goal = replace(aim(1), kill=frozenset({"b"}))
    assert next_moves(goal, [*cut, runs("n")], now=200.0) == NextOperations(kill=("b",))


def test_update_without_room_over_capacity_waits_unless_it_may_go_in_place() -> None:
    stuck = [*olds(4), *(starts(f"w{n}", InstanceState.WAITING) for n in range(4))]
    assert next_moves(aim(4), stuck, now=200.0) == NextOperations(
        waiting="waits for 4 new instances to be placed"
    )
    assert next_moves(aim(4, in_place=True), stuck, now=200.0) == NextOperations(kill=("o3",))


def test_update_that_needs_gpus_says_how_it_could_do_without_more() -> None:
    stuck = [*olds(2), *(starts(f"w{n}", InstanceState.WAITING) for n in range(2))]
    waiting = next_moves(replace(aim(2), gpus=2), stuck, now=200.0).waiting
    assert waiting.startswith("waits for 2 new instances to be placed; each needs 2 free GPUs beside the old")
    assert "MESOS_GPU_IN_PLACE=true" in waiting


def test_update_that_a_constraint_leaves_no_place_says_how_it_could_go_on() -> None:
    stuck = [*olds(2), *(starts(f"w{n}", InstanceState.WAITING) for n in range(2))]
    app = App("/a", instances=2, constraints=(Constraint("hostname", Operator.UNIQUE),))
    goal = target(Action(ActionKind.RESTART, app), version=NEW, began_at=BEGAN)
    words = "; each needs a node that hostname UNIQUE allows beside the old ones, which stay until it runs"
    assert words in next_moves(goal, stuck, now=200.0).waiting
    assert words not in next_moves(replace(goal, in_place=True), stuck, now=200.0).waiting


def test_target_of_an_action() -> None:
    app = App("/a", instances=3, kill_selection=KillSelection.OLDEST_FIRST)
    goal = target(Action(ActionKind.SCALE, app, kill=("x",)), version=NEW, began_at=BEGAN, in_place=True)
    assert (goal.instances, goal.in_place, goal.kill) == (3, True, frozenset({"x"}))
    assert goal.kill_selection is KillSelection.OLDEST_FIRST
    assert target(Action(ActionKind.STOP, app), version=NEW, began_at=BEGAN).instances == 0
    assert target(Action(ActionKind.START, app), version=NEW, began_at=BEGAN).instances == 0


def test_instance_serves_only_if_healthy_and_ready() -> None:
    assert serves(runs("a"))
    assert serves(runs("a", checked=True, healthy=True))
    assert not any(
        serves(each)
        for each in (
            runs("a", checked=True),
            runs("a", healthy=False),
            runs("a", ready=False),
            runs("a", ending=True),
            starts("a", InstanceState.UNREACHABLE),
        )
    )


HINT = (
    "; each needs 1 free GPU beside the old ones, which stay until it runs: with the label "
    "MESOS_GPU_IN_PLACE=true an old one ends first"
)


@pytest.mark.parametrize(
    ("goal", "instances", "why"),
    [
        (replace(aim(1), gpus=1), [*olds(1), starts("w", InstanceState.WAITING)], f"1 new instance to be placed{HINT}"),
        (aim(1), [*olds(1), starts("w", InstanceState.WAITING)], "1 new instance to be placed"),
        (replace(aim(1), gpus=1), [*olds(1), starts("w", InstanceState.STAGING)], "1 new instance to start"),
        (replace(aim(1), gpus=1), [starts("w", InstanceState.WAITING)], "1 new instance to be placed"),
        (
            replace(aim(1), gpus=0.5), [*olds(1), starts("w", InstanceState.WAITING)],
            f"1 new instance to be placed{HINT.replace('1 free GPU', '0.5 free GPUs')}",
        ),
        (
            aim(1), [runs("o", OLD, checked=True), runs("n", checked=True)],
            "1 new instance to become healthy, for 1 old instance to show whether it is healthy",
        ),
        (
            aim(3), [runs("a", ready=False), runs("b", checked=True), starts("c", InstanceState.STARTING),
                     runs("o", OLD, ending=True), runs("p", OLD, ending=True)],
            "2 instances to end, for 1 new instance to run, for 1 new instance to become healthy, "
            "for 1 new instance to pass the readiness checks",
        ),
    ],
)  # fmt: skip
def test_rollout_that_waits_says_for_how_many(goal: Target, instances: list[Instance], why: str) -> None:
    assert next_moves(goal, instances, now=200.0) == NextOperations(waiting=f"waits for {why}")


@pytest.mark.parametrize(
    ("began", "state", "done"),
    [
        (BEGAN - 1, InstanceState.RUNNING, True),
        (BEGAN, InstanceState.RUNNING, False),
        (BEGAN - 1, InstanceState.UNREACHABLE, False),
        (None, InstanceState.RUNNING, False),
    ],
)
def test_instance_that_ran_before_the_deployment_is_settled(
    began: float | None, state: InstanceState, done: bool
) -> None:
    one = replace(runs("n", checked=True), started_at=began, state=state)
    goal = replace(aim(1), unreachable_strategy=None)
    assert next_moves(goal, [one], now=200.0).done is done


@pytest.mark.parametrize(
    ("selection", "first"), [(KillSelection.YOUNGEST_FIRST, "b"), (KillSelection.OLDEST_FIRST, "a")]
)
def test_age_of_an_instance_is_from_when_it_first_ran(selection: KillSelection, first: str) -> None:
    goal = replace(aim(1), kill_selection=selection)
    pair = [replace(runs("a", at=10.0), since=90.0), replace(runs("b", at=20.0), since=30.0)]
    assert next_moves(goal, pair, now=200.0).kill == (first,)
    staging = [starts("a", InstanceState.STAGING, since=10.0), starts("b", InstanceState.STAGING, since=20.0)]
    assert next_moves(goal, staging, now=200.0).kill == (first,)
    same = [runs("y", at=10.0), runs("x", at=10.0)]
    assert next_moves(goal, same, now=200.0).kill == ("x",)


def test_old_instance_that_is_known_to_serve_is_spared_while_others_may_recover() -> None:
    goal = aim(4, 0.5, 0)
    sick = [runs(f"s{n}", OLD, healthy=False) for n in range(2)]
    unknown = [runs(f"u{n}", OLD, checked=True) for n in range(2)]
    assert next_moves(goal, [*sick, *unknown], now=200.0) == NextOperations(kill=("s0", "s1"))
    assert next_moves(goal, [*sick[:1], *unknown, *olds(1)], now=200.0) == NextOperations(kill=("s0",))
    assert next_moves(goal, [*unknown, *olds(2)], now=200.0) == NextOperations(kill=("u0", "u1"))


def test_target_of_an_action_has_all_of_its_app() -> None:
    unreachable = UnreachableStrategy(1, 2)
    app = App("/a", instances=3, gpus=2, unreachable_strategy=unreachable)
    assert target(Action(ActionKind.RESTART, app), version=NEW, began_at=BEGAN) == Target(
        3, NEW, BEGAN, app.upgrade_strategy, app.kill_selection, unreachable, gpus=2
    )
