"""Chaos has two schedulers, of which who leads dies, sleeps and wakes, and a ZooKeeper that loses what it is told: what
goes wrong then is seen, and told shortly."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.log import Log
from mesos_gpu.adapters.replicated.store import ReplicatedStore
from mesos_gpu.adapters.sqlite import schema
from mesos_gpu.engine import upkeep
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.saves import Save
from tests.chaos import run as chaos
from tests.chaos.acts import do
from tests.chaos.older import READ
from tests.chaos.schedulers import FENCED, TAKEN_OVER
from tests.chaos.settle import settle
from tests.chaos.world import World
from tests.unit.simulate.test_simulate_chaos import ON_CHANGE, SOUND, assert_found, assert_holds


@pytest.mark.parametrize(("seeds", "acts"), [(1, 60), pytest.param(6, 250, marks=ON_CHANGE)])
def test_chaos_of_switches_of_leaders_loses_no_state(seeds: int, acts: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        world = World(seed)
        for act in chaos.acts_of(random.Random(seed), acts, chaos.SWITCHES):
            do(world, act)  # raises where an invariant is broken
        settle(world)
        counts += world.counts
    assert counts["Switch"] > seeds * acts // 75
    assert seeds == 1 or (counts["Wake"] > 5 and counts["NoRoom"] > 10)
    assert counts["Launch"] > seeds * acts // 30


@pytest.mark.long
@pytest.mark.timeout(900)
def test_chaos_of_switches_finds_no_violation_in_a_hundred_thousand_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.SWITCHES,))
    assert_holds(100_000, 1)


def _terms_are_read_when_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """Who writes holds against whatever term there is then."""
    append, confirm = Log.append, Log.confirm

    def term_of(log: Log) -> int:
        return int(log._client.get_async(log._place.of(at.LEADER)).get()[1].version)

    patch.setattr(Log, "append", lambda log, number, data, _: append(log, number, data, term_of(log)))
    patch.setattr(Log, "confirm", lambda log, _: confirm(log, term_of(log)))


def _what_zookeeper_has_not_taken_is_answered(patch: pytest.MonkeyPatch) -> None:
    save = ReplicatedStore.save

    def hopeful(store: ReplicatedStore, batch: list[Save]) -> None:
        try:
            save(store, batch)
        except NoRoom:
            store._local.save(batch)

    patch.setattr(ReplicatedStore, "save", hopeful)


def _a_batch_that_is_there_already_is_anothers(patch: pytest.MonkeyPatch) -> None:
    """The answer was lost, so it is written again."""

    def append_to(log: Log, number: int, data: bytes, term: int) -> None:
        if log.last() >= number:
            number = log.last() + 1
        append(log, number, data, term)

    append = Log.append
    patch.setattr(Log, "append", append_to)


def _tasks_of_the_leader_before_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "_reconcile", lambda turn: None)
    patch.setattr(upkeep, "_ask_about_doubtful", lambda turn: None)


def _rows_of_an_earlier_schema_are_not_sealed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(schema, "seal_all", lambda db, table: None)


def _nothing_of_an_earlier_schema_is_read_of_cards(patch: pytest.MonkeyPatch) -> None:
    """A table that is made anew, as a step of a schema may do it, and nothing copied."""
    steps = schema.steps()
    lossy = [*steps[:-1], (steps[-1][0], f"{steps[-1][1]}\nDELETE FROM cards;\n")]
    patch.setattr(schema, "steps", lambda: lossy)


AGREE = "at a quiet time, engine and world agree"
BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "the fence is not checked": (_terms_are_read_when_it_is_written, {FENCED}),
    "what is not saved is answered": (_what_zookeeper_has_not_taken_is_answered, {TAKEN_OVER}),
    "a batch is written twice": (_a_batch_that_is_there_already_is_anothers, {TAKEN_OVER}),
    "tasks of the leader before are not asked for": (
        _tasks_of_the_leader_before_are_not_asked_for,
        {AGREE, "nothing starves", SOUND},
    ),
    "rows of an earlier schema are not sealed": (_rows_of_an_earlier_schema_are_not_sealed, {READ}),
    "a step of the schema loses cards": (_nothing_of_an_earlier_schema_is_read_of_cards, {READ}),
}


#: To find or to shorten them takes longer.
SLOW = ("a batch is written twice", "a step of the schema loses cards")


@pytest.mark.parametrize(
    ("bug", "rules"),
    [
        pytest.param(*BUGS[name], id=name, marks=pytest.mark.long if name in SLOW else ON_CHANGE)
        for name in BUGS
    ],
)
def test_chaos_of_switches_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.SWITCHES,))
    assert_found(rules, monkeypatch)
