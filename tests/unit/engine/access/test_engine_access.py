"""Versions of the document and tokens in the engine: conflicts, bounds, what is forgotten, what a journal has."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine import journal
from mesos_gpu.engine.access.tokens import KEEP_EXPIRED_S, MAX_OF_NAME, SWEEP_S
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.engine.versions import MAX_VERSIONS
from mesos_gpu.errors import Conflict, NotFound, TooMuch
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.saves import ForgetAccess, ForgetToken, SaveAccess, SaveToken
from mesos_gpu.wire import journal as wire
from tests.doubles.builders import World, only, saved_of

ADMIN = AccessDocument(by="root", comment="the first", bindings=(Binding(("ann",), (), ("admin",)),))
DAY_S = 86400.0


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def token(id: str = "a1", name: str = "ann", **fields: Any) -> Token:
    return replace(Token(id, name, "5a17", f"digest-of-{id}", 0.0, 0.0), **fields)


def create(world: World, id: str = "a1", lifetime_s: float = DAY_S, **fields: Any) -> Token:
    return only(world.feed(ev.TokenCreated(token(id, **fields), lifetime_s)), SaveToken).token


def test_access_document_of_an_earlier_state_has_version_0_and_grants_nothing(world: World) -> None:
    assert world.state.rights.access == AccessDocument()


def test_access_change_is_the_next_version_and_survives_a_restart(world: World) -> None:
    first = only(world.feed(ev.AccessChanged(ADMIN, 0)), SaveAccess).document
    assert first == replace(ADMIN, version=1, at=world.now)
    world.now += 1
    world.feed(ev.AccessChanged(replace(ADMIN, unix_users={"ann": "ann2"}), 1))
    restored = State.restored(0.0, saved_of(world.state))
    assert restored.rights.access.version == 2
    assert restored.rights.access_versions == {1: first, 2: world.state.rights.access}


def test_access_change_on_another_version_is_refused_and_changes_nothing(world: World) -> None:
    world.feed(ev.AccessChanged(ADMIN, 0))
    for version in (0, 2):
        with pytest.raises(Conflict, match=f"is at version 1, and version {version} was read"):
            world.feed(ev.AccessChanged(AccessDocument(), version))
    assert world.state.rights.access.bindings == ADMIN.bindings


def test_access_change_to_an_equal_document_is_no_new_version(world: World) -> None:
    world.feed(ev.AccessChanged(ADMIN, 0))
    assert world.feed(ev.AccessChanged(replace(ADMIN, comment="again", by="bob"), 1)) == []
    assert world.state.rights.access.version == 1


def test_access_versions_keep_the_latest_and_their_numbers_go_on(world: World) -> None:
    for version in range(MAX_VERSIONS + 3):
        effects = world.feed(ev.AccessChanged(AccessDocument(unix_users={"ann": f"u{version}"}), version))
    assert only(effects, ForgetAccess).version == 3
    assert list(world.state.rights.access_versions) == list(range(4, MAX_VERSIONS + 4))
    assert State.restored(0.0, saved_of(world.state)).rights.access.version == MAX_VERSIONS + 3


def test_token_has_its_times_from_the_engine_and_no_longer_life_than_its_proof(world: World) -> None:
    made = create(world, created_at=1.0, expires_at=9e9)
    assert (made.created_at, made.expires_at) == (world.now, world.now + DAY_S)
    until = world.now + 60
    made = only(world.feed(ev.TokenCreated(token("a2"), DAY_S, until)), SaveToken).token
    assert made.expires_at == until
    assert State.restored(0.0, saved_of(world.state)).rights.tokens == world.state.rights.tokens


def test_revoked_token_is_gone_with_all_that_were_made_with_it(world: World) -> None:
    for id, made_with in (("a1", ""), ("a2", "a1"), ("a3", "a2"), ("b1", "")):
        create(world, id, made_with=made_with)
    effects = world.feed(ev.TokenRevoked("a1"))
    assert {each.id for each in effects if isinstance(each, ForgetToken)} == {"a1", "a2", "a3"}
    assert list(world.state.rights.tokens) == ["b1"]
    with pytest.raises(NotFound, match="there is no token a1"):
        world.feed(ev.TokenRevoked("a1"))


def test_token_use_is_recorded_and_that_of_a_revoked_token_is_not(world: World) -> None:
    create(world)
    world.now += 5
    used = only(world.feed(ev.TokenUsed("a1", "10.0.0.1")), SaveToken).token
    assert (used.used_at, used.used_from) == (world.now, "10.0.0.1")
    assert world.feed(ev.TokenUsed("gone", "10.0.0.1")) == []


def test_tokens_of_a_name_are_limited_and_the_first_expired_makes_room(world: World) -> None:
    for index in range(MAX_OF_NAME):
        create(world, f"a{index}", lifetime_s=100.0 - (index == 7))
    with pytest.raises(TooMuch, match=f"ann has {MAX_OF_NAME} tokens"):
        create(world, "more")
    create(world, "b1", name="bob")
    world.now += 99.5
    assert only(world.feed(ev.TokenCreated(token("more"), 1.0)), ForgetToken).id == "a7"
    with pytest.raises(TooMuch):
        create(world, "yet-more")


def test_expired_token_is_forgotten_after_30_days(world: World) -> None:
    create(world, lifetime_s=100.0)
    create(world, "a2", lifetime_s=2 * DAY_S)
    world.now += 100.0 + KEEP_EXPIRED_S
    world.feed(ev.Tick())
    assert list(world.state.rights.tokens) == ["a1", "a2"]
    world.now += SWEEP_S
    assert only(world.feed(ev.Tick()), ForgetToken).id == "a1"


def test_journal_has_no_proof_of_a_token_and_replays_to_the_same_state(world: World) -> None:
    settings = Settings.of("executor", "monitor")
    steps: list[ev.Event] = [
        ev.TokenCreated(token(), DAY_S),
        ev.TokenUsed("a1", "::1"),
        ev.TokenCreated(token("a2", made_with="a1"), DAY_S),
        ev.TokenRevoked("a1"),
    ]
    state = world.state
    head = b"".join(journal.state_pieces(1, journal.begun_with(state)))
    outcomes: list[tuple[ev.Event, list[fx.Effect]]] = [
        (event, step(state, event, 5.0, settings)) for event in steps[:3]
    ]
    line = journal.batch_line(1, 5.0, list(outcomes))
    later = b"".join(journal.state_pieces(4, journal.begun_with(state)))
    for text in (head, line, later):
        assert b"5a17" not in text
        assert b"digest-of" not in text
    twin = journal.STATES.decode(wire.decode_beside(head).state)
    for recorded, (_, effects) in zip(wire.decode_batch(line).steps, outcomes, strict=True):
        again = step(twin, journal.EVENTS.decode(recorded.event), 5.0, settings)
        assert journal.digest(again) == recorded.digest == journal.digest(effects)
    assert journal.STATES.encode(twin) == bytes(wire.decode_beside(later).state)
    assert state.rights.tokens["a1"].digest == "digest-of-a1"  # the state itself has it still
