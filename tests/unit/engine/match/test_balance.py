"""Offers at the end of a match: when they are asked for, held and given back, to the second."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.engine.match.offers import MANY_OFFERS, balance, on_offers, wants_offers
from mesos_gpu.engine.parts.mesos import MesosPart
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking, BookingSpec
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.wire.mesos.reservations import reserved
from tests.doubles.builders import offer, spec

NOW: Final = 1000.0
ROLES: Final[dict[str, Any]] = {"role": "gpu", "role_of": {"prod": "gpu-prod", "ops": "gpu-ops"}}


def turn_of(*queues: str, swept_s: float = 0.0, **settings: Any) -> Turn:
    """Make a step in which a job of each queue waits; offers were asked for so many seconds ago."""
    state = State(started_at=0.0, mesos=MesosPart(swept_at=NOW - swept_s, suppressed=False))
    for i, queue in enumerate(queues):
        job = Job(JobId(f"j{i}"), spec(queue=queue), 0.0, i)
        state.work.jobs[job.id] = job
        state.work.queue.append((i, job.id))
    return Turn(state, Settings.of("e", "m", **settings), NOW)


def idle_since(turn: Turn, at: float | None) -> None:
    turn.state.mesos.idle_since = at


def asked_of(turn: Turn) -> tuple[str, ...] | None:
    return turn.state.mesos.roles.asked


def hold(turn: Turn, name: str, age_s: float, role: str = "") -> OfferId:
    """Hold an offer that came so many seconds ago."""
    held = replace(offer(name, f"agent-{name}"), received_at=NOW - age_s, role=role)
    turn.state.cluster.hold_offer(held)
    return held.id


@pytest.mark.parametrize(
    ("swept_s", "suppressed", "asks"),
    [(19.5, False, False), (20.0, False, True), (0.0, True, True)],
)
def test_offers_are_asked_for_while_a_job_waits(swept_s: float, suppressed: bool, asks: bool) -> None:
    turn = turn_of("dev", swept_s=swept_s)
    turn.state.mesos.suppressed = suppressed
    idle_since(turn, 900.0)
    balance(turn, ())
    assert turn.effects == ([fx.Revive()] if asks else [])
    assert (turn.state.mesos.suppressed, turn.state.mesos.idle_since) == (False, None)
    assert turn.state.mesos.swept_at == (NOW if asks else NOW - swept_s)


@pytest.mark.parametrize(
    ("idle_s", "swept_s", "suppressed", "effect", "after"),
    [
        (None, 0.0, False, None, (False, NOW)),
        (0.5, 0.0, False, None, (False, NOW - 0.5)),
        (1.0, 0.0, False, fx.Suppress(), (True, NOW - 1)),
        (9.0, 19.5, True, None, (True, NOW - 9)),
        (9.0, 20.0, True, fx.Revive(), (False, NOW)),
    ],
)
def test_offers_are_given_back_when_nothing_waits(
    idle_s: float | None,
    swept_s: float,
    suppressed: bool,
    effect: fx.Effect | None,
    after: tuple[bool, float],
) -> None:
    turn = turn_of(swept_s=swept_s)
    turn.state.mesos.suppressed = suppressed
    turn.state.mesos.idle_since = None if idle_s is None else NOW - idle_s
    held = hold(turn, "one", 0.0), hold(turn, "two", 500.0)
    balance(turn, ())
    lingers = idle_s is None or idle_s < 1
    assert turn.effects == [
        *([] if lingers else [fx.Decline(held, 3600.0)]),
        *([effect] if effect is not None else []),
    ]
    assert (turn.state.mesos.suppressed, turn.state.mesos.idle_since) == after
    assert turn.state.mesos.swept_at == (NOW if isinstance(effect, fx.Suppress) else NOW - swept_s)
    assert list(turn.state.cluster.offers) == (list(held) if lingers else [])


def test_offers_are_held_when_this_match_has_placed_a_job() -> None:
    turn = turn_of()
    idle_since(turn, 0.0)
    held = hold(turn, "one", 0.0)
    balance(turn, {"*"})
    assert (turn.effects, list(turn.state.cluster.offers), turn.state.mesos.idle_since) == ([], [held], None)


@pytest.mark.parametrize(
    ("ages_s", "old"),
    [
        ((30.0,), ()),
        ((30.5,), (0,)),
        ((40.0, 35.0, 30.0), (0, 1)),
        ((-5.0, 40.0, 1.0), (1,)),  # a clock that was set back
        ((0.0, 40.0), ()),  # those after a fresh one are fresh
    ],
)
def test_offers_that_were_held_for_long_are_given_back(
    ages_s: tuple[float, ...], old: tuple[int, ...]
) -> None:
    turn = turn_of("dev")
    ids = [hold(turn, f"o{i}", age_s) for i, age_s in enumerate(ages_s)]
    balance(turn, ())
    given = tuple(ids[i] for i in old)
    assert turn.effects == ([fx.Decline(given, 5.0)] if given else [])
    assert set(turn.state.cluster.offers) == {*ids} - {*given}


def test_many_offers_are_given_back_a_few_at_a_time() -> None:
    turn, count = turn_of("dev"), 2 * MANY_OFFERS
    for i in range(count):
        hold(turn, f"o{i}", 31.0)
    given = list[int]()
    for second in range(33):
        balance(Turn(turn.state, turn.settings, NOW + second), ())
        given.append(count - len(turn.state.cluster.offers))
    steps = [after - before for before, after in pairwise([0, *given])]
    assert max(steps[:15]) <= count / 20, "the next jobs find the others"
    assert given[-1] == count


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({}, False),  # without GPUs, as far as is known
        ({"monitor_launches": 1}, True),
        ({"inventory": Inventory()}, True),
        ({"monitor_launches": 1, "monitor": TaskId("m")}, False),
        ({"inventory": Inventory(), "lost_at": 900.0}, False),
    ],
)
def test_offers_are_wanted_for_the_monitor_that_a_node_lacks(fields: dict[str, Any], wants: bool) -> None:
    turn = turn_of()
    turn.put_node(Node(AgentId("a1"), "a1"))
    turn.put_node(replace(turn.state.cluster.nodes[AgentId("a1")], **fields))
    assert wants_offers(turn) is wants


def test_offers_are_wanted_for_a_card_whose_shares_nothing_holds() -> None:
    turn = turn_of()
    turn.state.gpus.uncovered[GpuId("g1")] = 0.0
    turn.state.gpus.sharers[GpuId("g1")] = {}
    assert wants_offers(turn)


@pytest.mark.parametrize(("ahead_s", "wants"), [(10.0, True), (10.5, False)])
def test_offers_are_wanted_before_nodes_are_chosen_for_a_booking(ahead_s: float, wants: bool) -> None:
    turn = turn_of()
    turn.state.calendar.provisional = Provisional(next_at=NOW + ahead_s)
    assert wants_offers(turn) is wants


# --- several roles


def test_roles_are_those_of_what_waits_and_of_what_was_placed() -> None:
    turn = turn_of("prod/web", **ROLES)
    others = hold(turn, "default", 0.0), hold(turn, "named", 0.0, "gpu")
    mine = hold(turn, "mine", 0.0, "gpu-prod")
    balance(turn, ())
    assert turn.effects == [fx.Suppress(("gpu", "gpu-ops")), fx.Decline(others, 3600.0)]
    assert asked_of(turn) == ("gpu-prod",)
    assert turn.state.mesos.roles.until == {"gpu-prod": NOW + 1}
    assert list(turn.state.cluster.offers) == [mine]
    turn.effects.clear()
    kept = hold(turn, "default", 0.0), hold(turn, "named", 0.0, "gpu")
    balance(turn, {"gpu"})
    assert turn.effects == [fx.Revive(("gpu",))]
    assert asked_of(turn) == ("gpu", "gpu-prod")
    assert list(turn.state.cluster.offers) == [mine, *kept]


def test_role_of_jobs_that_were_placed_is_asked_for_alone_though_none_waits() -> None:
    turn = turn_of(**ROLES)
    balance(turn, {"gpu-prod"})
    assert turn.effects == [fx.Suppress(("gpu", "gpu-ops"))]


@pytest.mark.parametrize(
    ("until_s", "asked"),
    [
        (0.0, ("gpu-prod",)),
        (0.5, ("gpu", "gpu-prod")),
        (1.0, ("gpu", "gpu-prod")),
        (1.5, ("gpu-prod",)),  # of a clock that was set back
    ],
)
def test_role_is_asked_for_a_moment_after_its_last_job(until_s: float, asked: tuple[str, ...]) -> None:
    turn = turn_of("prod", **ROLES)
    turn.state.mesos.roles.until["gpu"] = NOW + until_s
    turn.state.mesos.roles.asked = asked
    balance(turn, ())
    assert (turn.effects, turn.state.mesos.roles.asked) == ([], asked)


def test_all_roles_are_asked_for_where_only_a_monitor_is_missing() -> None:
    turn = turn_of(**ROLES)
    turn.state.mesos.suppressed = True
    turn.put_node(Node(AgentId("a1"), "a1", monitor_launches=1))
    turn.effects.clear()
    balance(turn, ())
    assert turn.effects == [fx.Revive(("gpu", "gpu-prod", "gpu-ops"))]
    assert asked_of(turn) == ("gpu", "gpu-prod", "gpu-ops")


def test_roles_are_asked_for_again_after_a_while() -> None:
    turn = turn_of("prod", "dev", "ops", "dev", swept_s=20.0, **ROLES)
    turn.state.mesos.roles.asked = ("gpu-prod",)
    balance(turn, ())
    assert turn.effects == [fx.Revive(("gpu", "gpu-prod", "gpu-ops"))]


@pytest.mark.parametrize("soon", [False, True])
def test_role_of_a_booking_is_asked_for_when_its_nodes_are_chosen_soon(soon: bool) -> None:
    turn = turn_of("prod", **ROLES)
    booking = Booking(
        "b1",
        BookingSpec("b1", queue="ops", nodes=1, gpus=1),
        "ann",
        0.0,
        "2026-01-01",
        begins=1060,
        ends=1600,
    )
    turn.state.calendar.bookings["b1"] = booking
    turn.state.calendar.provisional = Provisional(next_at=NOW + (5 if soon else 600))
    turn.state.mesos.roles.asked = ("gpu-prod",)
    balance(turn, ())
    assert turn.effects == ([fx.Revive(("gpu-ops",))] if soon else [])


# --- offers that arrive


def test_offer_renews_what_is_known_of_its_agent() -> None:
    turn = turn_of()
    came = replace(
        offer("o1"), attributes={"rack": "r1"}, region="eu", zone="eu-1", received_at=5.0,
    )  # fmt: skip
    known = Node(
        came.agent_id,
        "old",
        "http://old",
        {"rack": "r0"},
        monitor=TaskId("m"),
        monitor_launches=3,
        lost_at=7.0,
    )
    turn.put_node(known)
    on_offers(turn, [came])
    node = Node(
        came.agent_id, came.hostname, came.agent_url, came.attributes,
        monitor=TaskId("m"), monitor_launches=3, region="eu", zone="eu-1",
    )  # fmt: skip
    assert turn.state.cluster.nodes[came.agent_id] == node
    assert turn.state.cluster.offers == {came.id: replace(came, received_at=NOW)}
    turn.effects.clear()
    on_offers(turn, [replace(came, id=OfferId("o2"))])
    assert turn.effects == [], "nothing new is saved"


def test_offer_of_a_new_agent_makes_its_node() -> None:
    turn = turn_of()
    came: Offer = offer("o1", "a7")
    on_offers(turn, [came])
    assert turn.state.cluster.nodes == {came.agent_id: Node(came.agent_id, came.hostname, came.agent_url)}


def test_offer_is_held_without_what_another_framework_has_reserved_for_cards() -> None:
    turn = turn_of()
    turn.state.mesos.framework_id = "fw-1"
    plain = Scalar("gpus", 1.0)
    ours, others = (reserved(plain, "gpu", None, framework) for framework in ("fw-1", "fw-2"))
    came = replace(offer("o1"), resources=(plain, ours, others))
    on_offers(turn, [came])
    assert turn.state.cluster.offers[came.id].resources == (plain, ours)
