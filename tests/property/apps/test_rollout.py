"""Deployments in worlds where instances fail, flap, are cut off and come back: bounds hold, and they end."""

from dataclasses import replace
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.apps.app import App, Group, KillSelection, UnreachableStrategy, UpgradeStrategy
from mesos_gpu.model.apps.rollout import ActionKind, Instance, InstanceState, NextOperations, Target
from mesos_gpu.policy.apps.rollout.moves import bounds, next_moves, serves
from mesos_gpu.policy.apps.rollout.pace import Fate, fate
from mesos_gpu.policy.apps.rollout.plan import plan, rollback
from tests.property.examples import examples

ROUNDS_TO_END = 200  # of 10 s; 12 instances one after the other, each through five states
SHARES = (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0)
NEXT = {
    InstanceState.WAITING: InstanceState.STAGING,
    InstanceState.STAGING: InstanceState.STARTING,
    InstanceState.STARTING: InstanceState.RUNNING,
}


@st.composite
def targets(draw: st.DrawFn) -> Target:
    return Target(
        instances=draw(st.integers(0, 12)),
        version=2.0,
        began_at=0.0,
        upgrade_strategy=UpgradeStrategy(draw(st.sampled_from(SHARES)), draw(st.sampled_from(SHARES))),
        kill_selection=draw(st.sampled_from(KillSelection)),
        unreachable_strategy=draw(
            st.sampled_from([None, UnreachableStrategy(), UnreachableStrategy(30, 60)])
        ),
        in_place=draw(st.booleans()),
    )


class World:
    """An app on a cluster that has room for `room` instances; chance decides what becomes of each."""

    def __init__(self, target: Target, olds: int, seed: int) -> None:
        self.target, self.random, self.now, self.count = target, Random(seed), 100.0, 0
        self.instances: dict[str, Instance] = {}
        self.truth: dict[str, bool] = {}  # whether it is healthy; what is known of it may be nothing
        self.room = max(olds, target.instances) if target.in_place else 100
        for _ in range(olds):
            self.add(
                self.random.choice([0.0, 1.0, 1.0, 2.0]),
                self.random.choice([*InstanceState, InstanceState.RUNNING]),
            )

    def add(self, version: float, state: InstanceState) -> None:
        self.count += 1
        checked = self.random.random() < 0.8
        ran = self.now if state is InstanceState.RUNNING else None
        made = Instance(f"i{self.count}", version, state, self.now, ran, checked, ready=version < 2.0)
        self.instances[made.id] = made
        self.truth[made.id] = True

    def change(self, id: str, **fields: object) -> None:
        self.instances[id] = replace(self.instances[id], **fields)  # type: ignore[arg-type]

    def enter(self, id: str, state: InstanceState) -> None:
        self.change(id, state=state, since=self.now)
        if state is InstanceState.RUNNING and self.instances[id].started_at is None:
            self.change(id, started_at=self.now)

    def end(self, id: str) -> None:
        del self.instances[id], self.truth[id]

    def known(self) -> int:
        """How many serve, as far as is known."""
        return sum(serves(each) for each in self.instances.values())

    def really(self) -> int:
        """How many serve."""
        running = [each for each in self.instances.values() if each.state is InstanceState.RUNNING]
        return sum(self.truth[each.id] and each.ready and not each.ending for each in running)

    def counted(self) -> int:
        strategy = self.target.unreachable_strategy
        return sum(
            each.state is not InstanceState.UNREACHABLE
            or (not each.ending and fate(strategy, each.since, self.now) is Fate.KEEP)
            for each in self.instances.values()
        )

    def act(self) -> NextOperations:
        """Do what is asked, and check that it keeps to the bounds."""
        limits = bounds(self.target)
        moves = next_moves(self.target, self.instances.values(), now=self.now)
        assert moves == next_moves(self.target, self.instances.values(), now=self.now)
        assert bool(moves.launch or moves.kill) + moves.done + bool(moves.waiting) == 1
        if moves.launch:
            assert self.counted() + moves.launch <= limits.most
        known, really = self.known(), self.really()
        outdated = [id for id in moves.kill if self.instances[id].version != self.target.version]
        for id in outdated:
            self.change(id, ending=True)
        assert self.really() >= min(really, limits.least)
        for id in moves.kill:
            assert id in outdated or not self.instances[id].ending
            self.change(id, ending=True)
        assert self.known() >= min(known, limits.least)
        for _ in range(moves.launch):
            self.add(self.target.version, InstanceState.WAITING)
        return moves

    def misfortune(self) -> None:
        """A moment of a bad day."""
        self.now += self.random.choice([1.0, 10.0, 40.0])
        for id, each in list(self.instances.items()):
            luck = self.random.random()
            if luck < 0.4:
                self.advance(id)
            elif luck < 0.5 and each.state is InstanceState.RUNNING:
                self.truth[id] = not self.truth[id]
                self.change(id, healthy=self.truth[id] if each.checked or not self.truth[id] else None)
            elif luck < 0.55:
                self.end(id)
            elif luck < 0.6:
                self.enter(id, InstanceState.UNREACHABLE)
        if self.random.random() < 0.1:  # the scheduler was away: it knows no health any more
            for id, each in self.instances.items():
                self.change(id, healthy=None)
                self.truth[id] = self.truth[id] or not each.checked

    def advance(self, id: str) -> None:
        """What becomes of an instance if all goes well."""
        each = self.instances[id]
        if each.state is InstanceState.UNREACHABLE:
            self.enter(id, InstanceState.RUNNING)
        elif each.ending:
            self.end(id)
        elif each.state is InstanceState.RUNNING:
            self.change(id, healthy=self.truth[id] if each.checked else each.healthy, ready=True)
        elif each.state is not InstanceState.WAITING or self.holding() < self.room:
            self.enter(id, NEXT[each.state])

    def holding(self) -> int:
        return sum(each.state is not InstanceState.WAITING for each in self.instances.values())

    def fortune(self) -> None:
        """A moment of a good day: all that is new becomes healthy; what is old stays as it is."""
        self.now += 10.0
        for id, each in list(self.instances.items()):
            if each.version == self.target.version:
                self.truth[id] = True
                self.change(id, healthy=True if each.checked else None)
            self.advance(id)


@settings(max_examples=150)
@given(target=targets(), olds=st.integers(0, 12), days=st.integers(0, 25), seed=st.integers(0, 2**32))
def test_bounds_hold_at_every_moment_and_it_ends(target: Target, olds: int, days: int, seed: int) -> None:
    world = World(target, olds, seed)
    for _ in range(days):
        world.act()
        world.misfortune()
    for rounds in range(ROUNDS_TO_END):
        if world.act().done:
            event(f"ended after {rounds // 10 * 10} rounds or more")
            break
        world.fortune()
    else:
        raise AssertionError(f"never ends: {world.act()}, {list(world.instances.values())}")
    assert world.counted() == target.instances
    assert all(each.version == target.version for each in world.instances.values() if not each.ending)


NAMES = ("a", "b", "c", "d")


@st.composite
def trees(draw: st.DrawFn) -> Group:
    """Apps in one group or two, each depending only on what comes before it."""
    ids = [f"/{group}/{name}" if group else f"/{name}" for name in NAMES for group in ("", "g", "h")]
    chosen = sorted(draw(st.sets(st.sampled_from(ids), max_size=6)))
    apps = [
        App(
            id,
            cmd=draw(st.sampled_from(["x", "y"])),
            instances=draw(st.integers(0, 2)),
            dependencies=tuple(sorted(draw(st.sets(st.sampled_from(chosen[:n]), max_size=3)))) if n else (),
        )
        for n, id in enumerate(chosen)
    ]
    named = {group: tuple(app for app in apps if app.id.startswith(f"/{group}/")) for group in ("g", "h")}
    groups = tuple(Group(f"/{group}", apps=members) for group, members in named.items() if members)
    return Group("/", apps=tuple(app for app in apps if app.id.count("/") == 1), groups=groups)


@examples(50, 100)
@given(old=trees(), new=trees())
def test_steps_respect_dependencies_lead_to_the_target_and_can_be_undone(old: Group, new: Group) -> None:
    made = plan(old, new)
    state = {app.id: app for app in old.all_apps()}
    final = {app.id: app for app in new.all_apps()}
    place = {action.app.id: n for n, step in enumerate(made.steps) for action in step}
    for action in (action for step in made.steps for action in step):
        for other in action.app.dependencies:
            if (
                action.kind not in (ActionKind.START, ActionKind.STOP)
                and other in made.affected & final.keys()
            ):
                assert place[other] < place[action.app.id]
        if action.kind is ActionKind.STOP:
            del state[action.app.id]
        else:
            state[action.app.id] = action.app
    assert state == final
    before = {app.id: app for app in old.all_apps()}
    assert made.affected == {id for id in {**before, **final} if before.get(id) != final.get(id)}
    assert rollback(made, new).target == old
