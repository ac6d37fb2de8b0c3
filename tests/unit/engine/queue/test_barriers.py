"""Limits, rules and what is kept of limits: why a job waits though there is room, in words."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import pytest

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.queue.barriers import AdmissionLimits
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.queue.reasons import Facts
from mesos_gpu.engine.room.kept import Kept
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import Hours, JobClass, Limits, Pool, QueueSpec, Stop
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.capacity.node import ENDLESS, Reservation, Spare
from mesos_gpu.policy.room.preemption import Shortage
from tests.doubles.builders import World, gpu, spec
from tests.unit.engine.tenancy.worlds import most, owed, tree_world

NOW: Final = 1000.0
LAB: Final = {
    "lab": QueueSpec(limit_gpus=most(4)),
    "lab/x": QueueSpec(limit_gpus=most(3)),
    "free": QueueSpec(),
}
POOLED: Final = {
    "any": QueueSpec(limit_gpus={"fast": 2000, "slow": 3000}, pools=("fast", "slow")),
    "order": QueueSpec(limit_gpus={"fast": 2000}, pools=("fast", "slow"), overflow_after_s=60.0),
}


class Amounts:
    """Amounts of pools, as of `Standing`."""

    def __init__(self, milli: int) -> None:
        self._milli = milli

    def amount(self, pool: str) -> int:
        return self._milli if pool == "default" else 0

    def due(self, path: str, pool: str) -> int:
        return 0

    def ranks(self, leaf: str) -> dict[str, int]:
        return {}


def barriers(
    world: World,
    *beside: Reservation,
    standing: Amounts | None = None,
    held: Mapping[str, int] = MappingProxyType({}),
) -> tuple[AdmissionLimits, Held]:
    """Make the barriers of a match.

    Args:
        world: World of the engine.
        beside: Reservations of jobs that stand before all others.
        standing: Capacity of pools; None if it is unknown.
        held: Thousandths of GPUs that queues hold of the default pool.
    """
    charges = charges_of(world.state, world.settings)
    known = Held(world.state, charges, NOW)
    for name, milli in held.items():
        known.sums.amounts[name, "default"] = milli
    kept = Kept()
    kept.add(beside)
    return AdmissionLimits(
        Facts(world.state, known, NOW, AttainedServiceOrder(world.state, NOW), standing, kept)
    ), known


def pooled() -> World:
    pools = Pool("fast", models=("H100",)), Pool("slow", models=("T4",))
    made = tree_world(POOLED, pools=pools, classes=(JobClass("elsewhere", pools=("default",)),))
    for name, model in (("f", "H100"), ("s", "T4")):
        made.state.put(Node(AgentId(name), name, inventory=Inventory((gpu(f"{name}0", model),))))
    return made


def job_of(queue: str = "lab/x", name: str = "j", **fields: Any) -> Job:
    return Job(
        JobId(name), spec(**{"queue": queue, "gpus": 1, "priority": 0, "preemptible": True, **fields}), NOW, 5
    )


def kept_for(name: str, *spares: Spare, at: float = ENDLESS) -> Reservation:
    return Reservation(JobId(name), "lab/x", NOTHING, at, spares=spares)


@pytest.mark.parametrize(
    ("held", "gpus", "words"),
    [
        ({"lab/x": 2000, "lab": 2000}, 1, None),
        ({"lab/x": 2000, "lab": 3000}, 1, None),
        ({"lab/x": 2000, "lab": 2000}, 2, "queue lab/x may hold 3 GPUs, and holds 2"),
        ({"lab/x": 0, "lab": 4000}, 1, "queue lab may hold 4 GPUs, and holds 4"),
        ({"lab/x": 3000, "lab": 4000}, 1, "queue lab/x may hold 3 GPUs, and holds 3"),
        ({"lab/x": 9000, "lab": 9000}, 0, None),
    ],
)
def test_limit_that_leaves_no_room_is_named(held: dict[str, int], gpus: int, words: str | None) -> None:
    known, _ = barriers(tree_world(LAB), held=held)
    wait = None if words is None else Wait(Stage.QUEUE_LIMIT, words)
    assert known.wait_of(job_of(gpus=gpus)) == wait
    assert known.wait_of(job_of("free", gpus=9)) is None


def test_limit_of_the_command_line_is_named_without_a_document() -> None:
    world = World(Settings.of("e", "m", queue_limits={"lab": 1}))
    known, held = barriers(world, held={"lab": 1000})
    assert known.wait_of(job_of("lab")) == Wait(Stage.QUEUE_LIMIT, "queue lab may hold 1 GPU, and holds 1")
    assert known.wait_of(job_of("other")) is None
    assert known.rule_against(job_of("lab")) is None
    held.sums.add(JobId("gone"), Charge("lab", "", "default", -1000, 0))
    assert known.wait_of(job_of("lab")) is None, "what is held has changed"


HALF: Final = Spare("lab", "default", 500)
KEPT: Final = "queue lab may hold 4 GPUs, and holds 0; the rest is kept for a job before it"


@pytest.mark.parametrize(
    ("spare", "at", "timeout_s", "words"),
    [
        (HALF, ENDLESS, None, KEPT),
        (HALF, NOW + 100, None, KEPT),
        (HALF, NOW + 100, 95.0, None),  # it ends in time, its grace of five seconds included
        (HALF, NOW + 100, 95.5, KEPT),
        (replace(HALF, milli=1000), ENDLESS, None, None),
        (replace(HALF, pool="other"), ENDLESS, None, None),
        (replace(HALF, queue="free"), ENDLESS, None, None),
        (replace(HALF, queue="lab/x"), ENDLESS, None, KEPT.replace("lab may hold 4", "lab/x may hold 3")),
    ],
)  # fmt: skip
def test_rest_of_a_limit_that_is_kept_is_named(
    spare: Spare, at: float, timeout_s: float | None, words: str | None
) -> None:
    beside = kept_for("other", replace(HALF, milli=9000)), kept_for("first", spare, at=at)
    wait = None if words is None else Wait(Stage.QUEUE_LIMIT, words)
    known, _ = barriers(tree_world(LAB), *beside)
    assert known.wait_of(job_of(timeout_s=timeout_s)) == wait
    assert barriers(tree_world(LAB))[0].wait_of(job_of(timeout_s=timeout_s)) is None
    assert barriers(tree_world(LAB), *beside)[0].wait_of(job_of(name="first")) is None, "its own"


@pytest.mark.parametrize(("behind", "waits"), [(True, False), (False, True)])
def test_reservation_of_a_job_behind_does_not_keep_a_limit_from_it(behind: bool, waits: bool) -> None:
    world = tree_world(LAB)
    for name in ("first", "other"):
        world.state.work.jobs[JobId(name)] = job_of(name=name)
    own, other = kept_for("first", replace(HALF, milli=3000)), kept_for("other", HALF)
    known, _ = barriers(world, *((own, other) if behind else (other, own)))
    assert known.wait_of(job_of(name="third")) is not None
    assert (known.wait_of(job_of(name="first")) is not None) is waits, "also after one of its kind"
    assert known.wait_of(job_of(name="third")) is not None


@pytest.mark.parametrize(
    ("mine", "priority", "sequence", "room", "waits"),
    [
        (True, 0, 6, True, False),  # it comes later
        (True, 0, 4, True, True),
        (True, 1, 6, True, True),
        (True, -1, 4, True, False),
        (True, 0, 6, False, True),
        (False, 0, 6, True, True),
    ],
)
def test_room_of_a_job_yields_to_one_that_comes_before_it(
    mine: bool, priority: int, sequence: int, room: bool, waits: bool
) -> None:
    world = tree_world(LAB)
    where: dict[str, Any] = {"room_made_at": 5.0, "room_on": (AgentId("a"),)}
    other = replace(job_of(name="first", priority=priority), sequence=sequence, **(where if room else {}))
    world.state.work.jobs[other.id] = other
    known, _ = barriers(world, kept_for("first", HALF))
    job = replace(job_of(), **(where if mine else {}))
    assert (known.wait_of(job) is not None) is waits


@pytest.mark.parametrize(
    ("gpus", "held", "words"),
    [
        (2, 3000, None),
        (3, 3000, "5 GPUs are free, and of these queues keep 3 for themselves by their lend_limit_gpus"),
        (1, 9000, "0 GPUs are free, and of these queues keep 3 for themselves by their lend_limit_gpus"),
    ],
)
def test_lend_limit_that_leaves_no_room_is_named(gpus: int, held: int, words: str | None) -> None:
    world = tree_world(
        {"own": QueueSpec(guarantee_gpus=owed(4), lend_limit_gpus=most(1)), "ops": QueueSpec()}
    )
    known, sums = barriers(world, standing=Amounts(8000))
    sums.sums.amounts["", "default"] = held
    wait = None if words is None else Wait(Stage.GUARANTEE, words)
    job = job_of("ops", gpus=gpus)
    assert known.wait_of(job) == wait
    assert barriers(world)[0].wait_of(job) is None, "the amount of the pool is unknown"
    lack = gpus * 1000 + 3000 - (8000 - held)
    shortages = {} if words is None else {"default": [Shortage(lack, {})]}
    assert known.shortages(job) == shortages
    world.state.quota.seats_given = {job.id: GuaranteedAdmission("ops", "default", (0,), 1000, NOW)}
    assert known.wait_of(job) == wait, "also of a job within a guarantee"
    assert known.shortages(job) == shortages


# --- pools


def test_each_pool_without_room_is_named() -> None:
    world = pooled()
    known, held = barriers(world)
    job = job_of("any", gpus=2)
    assert known.wait_of(job) is None
    assert known.open_pools(job) == frozenset(("fast", "slow"))
    held.sums.amounts["any", "fast"] = 1000
    assert known.open_pools(job) == frozenset(("slow",))
    held.sums.amounts["any", "slow"] = 2000
    held.sums.revision += 1
    fast, slow = (
        "queue any may hold 2 GPUs of pool fast, and holds 1",
        "queue any may hold 3 GPUs of pool slow, and holds 2",
    )
    assert known.wait_of(job) == Wait(Stage.POOL, f"{fast}; {slow}")
    assert known.open_pools(job) == frozenset()
    assert known.may_be_seated(job) is False
    first = job_of("order", gpus=3)
    assert known.wait_of(first) == Wait(
        Stage.QUEUE_LIMIT, "queue order may hold 2 GPUs of pool fast, and holds 0"
    )
    assert known.wait_of(replace(first, submitted_at=NOW - 60)) is None, "the next pool is open"
    assert known.pools_of_booked(first) == {"slow"}, "whatever has to be waited for"


@pytest.mark.parametrize("gpus", [0, 1])
def test_class_without_a_pool_of_the_queue_is_named(gpus: int) -> None:
    known, _ = barriers(pooled())
    job = job_of("any", gpus=gpus, job_class="elsewhere")
    wait = known.wait_of(job)
    assert wait is not None
    assert wait == known.rule_against(job)
    assert (wait.stage, wait.lack) == (Stage.POOL, None)
    assert wait.words.startswith(
        "class elsewhere is for pools default, and queue any uses pools fast, slow: "
    )
    assert known.shortages(job) == {}


def test_job_that_asks_for_a_booking_lacks_nothing_that_others_give_back() -> None:
    known, _ = barriers(tree_world(LAB), held={"lab/x": 3000, "lab": 3000})
    assert known.shortages(job_of()).keys() == {"default"}
    asks = job_of(booking="exam")
    assert known.wait_of(asks) == known.rule_against(asks) == Wait(Stage.BOOKING, "booking exam has ended")
    assert known.shortages(asks) == {}


@pytest.mark.parametrize(
    ("held", "pool", "may"),
    [
        ({}, None, True),
        ({}, "fast", True),
        ({}, "default", False),
        ({"fast": 1000}, "fast", False),
        ({"fast": 1000}, "slow", True),
        ({"fast": 1000}, None, True),
    ],
)
def test_job_may_be_seated_in_a_pool_with_room_in_its_limits(
    held: dict[str, int], pool: str | None, may: bool
) -> None:
    known, sums = barriers(pooled())
    for name, milli in held.items():
        sums.sums.amounts["any", name] = milli
    assert known.may_be_seated(job_of("any", gpus=2), pool) is may


def test_job_on_hold_may_not_be_seated() -> None:
    known, _ = barriers(tree_world({"held": QueueSpec(stop=Stop.HOLD), "free": QueueSpec()}))
    assert not known.may_be_seated(job_of("held"))
    assert known.may_be_seated(job_of("free"))
    wait = known.wait_of(job_of("held"))
    assert wait is not None
    assert wait == known.rule_against(job_of("held"))


@pytest.mark.parametrize(
    ("queue", "gpus", "words", "pools"),
    [
        ("any", 2, "", ["fast", "slow"]),
        ("any", 3, "", ["slow"]),
        ("any", 4, "queue any may hold 2 GPUs of pool fast, and it asks for 4", []),
        ("order", 9, "", []),
    ],
)
def test_job_above_a_limit_at_any_time_gets_the_reason(
    queue: str, gpus: int, words: str, pools: list[str]
) -> None:
    known, _ = barriers(pooled())
    assert known.beyond(job_of(queue, gpus=gpus)) == words
    assert sorted(known.may_hold(job_of(queue, gpus=gpus))) == pools


def test_limit_that_other_hours_change_is_no_limit_for_ever() -> None:
    night = QueueSpec(limit_gpus=most(1), hours=(Hours("22:00", "06:00", limit_gpus=most(8)),))
    known, _ = barriers(tree_world({"night": night, "day": QueueSpec(limit_gpus=most(1))}))
    assert known.beyond(job_of("night", gpus=2)) == ""
    assert known.beyond(job_of("day", gpus=2)) == "queue day may hold 1 GPU, and it asks for 2"


@pytest.mark.parametrize(
    ("gpus", "ended", "fits"),
    [
        (1, (), True),
        (1, ("r1",), True),
        (2, ("r1",), False),
        (2, ("r1", "r2"), True),
        (3, ("r1", "r2"), False),
    ],
)
def test_limits_have_room_when_others_have_ended(gpus: int, ended: tuple[str, ...], fits: bool) -> None:
    world = tree_world(LAB)
    charges = charges_of(world.state, world.settings)
    for name in ("r1", "r2"):
        charges.put(TaskId(name), (JobId(name), Charge("lab/x", "", "default", 1000, 1000)))
    charges.put(TaskId("r3"), (JobId("r3"), Charge("lab/x", "", "default", 1000, 1000)))
    known, _ = barriers(world)
    assert known.has_room_without(job_of(gpus=gpus), tuple(map(JobId, ended))) is fits
    assert known.bounds(job_of(gpus=0)) == ()
    assert [bound.path for bound in known.bounds(job_of())] == ["lab/x", "lab"]


def test_limit_of_jobs_at_once_is_a_rule_that_no_room_helps() -> None:
    world = tree_world({"few": QueueSpec(limits=Limits(max_running=1)), "free": QueueSpec()})
    known, held = barriers(world)
    assert known.rule_against(job_of("few", user="ann")) is None
    held.sums.add(JobId("r"), Charge("few", "ann", "default", 0, 0))
    wait = known.rule_against(job_of("few", user="ann"))
    assert wait is not None
    assert wait.stage is Stage.QUEUE_LIMIT
    assert known.rule_against(job_of("free", user="ann")) is None
