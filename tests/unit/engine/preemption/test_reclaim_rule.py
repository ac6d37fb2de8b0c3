"""The rule of reclaim, job by job: victims of each job, their costs, their protection, and the words for them."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from mesos_gpu.engine.preemption.candidates import yields_to
from mesos_gpu.engine.preemption.elsewhere import MOVED_AGAIN_S, movable
from mesos_gpu.engine.preemption.preempting import stoppable
from mesos_gpu.engine.preemption.reasons import is_reclaimed, reason_of, reason_of_move
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.tenancy.seats import Admissions, Ground
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.model.tenancy import MinRuntime, QueueOrder
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.room.knapsack import Victim
from tests.unit.engine.tenancy.lending import Tenants, queue

SEAT = GuaranteedAdmission("prod", "default", (0,), 1000, 1.0)


def rule_of(world: Tenants, **given: GuaranteedAdmission) -> Reclaim:
    """The rule now. `given`: seats of jobs that wait."""
    state, settings = world.state, world.settings
    seating = Admissions(
        Ground(state, state.quota.tree, world.now), {JobId(name): seat for name, seat in given.items()}
    )
    backlog = Backlog(state, settings, world.now, lambda _: Resources(), reading=True)
    return Reclaim(Turn(state, settings, world.now), seating, backlog, stoppable(state))


def busy(gpus: int = 4, dev: Any = None, prod: Any = None, **fields: Any) -> Tenants:
    """A job of dev that has borrowed all GPUs for a hundred seconds, and one of prod that waits."""
    world = Tenants()
    world.register()
    world.agents(1, gpus)
    world.document(dev=dev or queue(), prod=prod or queue(4), dev2=queue())
    world.runs("d", "dev", gpus, **fields)
    world.now += 100
    world.state.set_job(replace(world.job("d"), started_at=world.now - 100))
    return world


def waits(world: Tenants, name: str = "p", **fields: Any) -> Job:
    """A job that waits; no match has looked at it."""
    priority = fields.pop("priority", 0)
    other = world.job("d")
    asked = {"queue": "prod", "gpus": 4, "priority": priority, **fields}
    job = Job(JobId(name), replace(other.spec, **asked), world.now, world.state.work.next_sequence)
    world.state.set_job(job)
    return world.job(name)


def victims(world: Tenants, job: Job, **given: GuaranteedAdmission) -> dict[str, Victim]:
    rule = rule_of(world, **given)
    victims = rule.victims_of(job)
    asked = rule_of(world, **given).asked_for(job)
    assert dict(asked) == victims, "asked one by one, they are the same"
    assert len(asked) == len(victims)
    assert all((job_id in asked) is (job_id in victims) for job_id in world.state.work.jobs)
    return {str(job_id): victim for job_id, victim in victims.items()}


def test_victim_costs_what_it_loses_and_the_restart() -> None:
    world = busy()
    cost = 4000 * (100 + round(world.settings.queue.restart_s))
    assert victims(world, waits(world), p=SEAT) == {"d": Victim(JobId("d"), 0, cost)}


def test_victim_of_another_pool_or_kind_is_asked_of_apart() -> None:
    world = busy()
    rule = rule_of(world, p=SEAT)
    job = waits(world)
    assert rule.kind(job) == rule.kind(replace(job, id=JobId("p")))
    other = waits(world, "q")
    assert rule.kind(other) != rule.kind(job), "it has no seat"
    assert rule.kind(replace(other, id=JobId("r"))) == rule.kind(other)
    with pytest.raises(KeyError):
        rule.asked_for(job)[JobId("gone")]


SEATED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = {
    "a borrower": ({}, {}, {}, True),
    "a borrower of a higher priority": ({}, {}, {"priority": 9}, True),
    "of a queue that stops no job": ({"reclaim": Whose.NEVER}, {}, {}, False),
    "of a queue that stops lower ones, an equal": ({"reclaim": Whose.LOWER}, {}, {"priority": 5}, False),
    "of a queue that stops lower ones, a lower": ({"reclaim": Whose.LOWER}, {}, {"priority": 4}, True),
    "of a fenced queue": ({"fence": True}, {}, {}, False),
    "across the fence of another": ({}, {"fence": True}, {}, False),
    "protected still": ({}, {"min_runtime_s": MinRuntime(100.5)}, {}, False),
    "protected no more": ({}, {"min_runtime_s": MinRuntime(100.0)}, {}, True),
    "protected from borrowers alone": ({}, {"min_runtime_s": MinRuntime(0.0, 500.0)}, {}, True),
}


@pytest.mark.parametrize(("prod", "dev", "fields", "may"), SEATED.values(), ids=SEATED)
def test_job_with_a_seat_takes_from_borrowers(
    prod: dict[str, Any], dev: dict[str, Any], fields: dict[str, Any], may: bool
) -> None:
    world = busy(4, queue(**dev), queue(4, **prod), **fields)
    assert set(victims(world, waits(world, priority=5), p=SEAT)) == ({"d"} if may else set())
    no_gpus = waits(world, "n", gpus=0)
    assert victims(world, no_gpus, n=SEAT) == {}


@pytest.mark.parametrize(("least_s", "may"), [(None, False), (100.5, False), (100.0, True)])
def test_job_without_a_seat_takes_from_those_who_have_more(least_s: float | None, may: bool) -> None:
    """Two of four GPUs are due to each queue."""
    world = Tenants()
    world.register()
    world.agents(1, 4)
    least = None if least_s is None else MinRuntime(0.0, least_s)
    world.document(dev=queue(min_runtime_s=least), prod=queue())
    for name in ("d", "d1", "d2", "d3"):
        world.runs(name, "dev")
        world.state.set_job(replace(world.job(name), started_at=world.now))
    world.now += 100
    job, wide = waits(world, gpus=2), waits(world, "q", gpus=3)
    assert set(victims(world, job)) == ({"d", "d1", "d2", "d3"} if may else set())
    assert victims(world, wide) == {}, "it would have more than what is left to the others"
    rule = rule_of(world)
    together, chosen = rule.balance.rule_for(job), [*rule.running.every().values()]
    assert together is not None
    assert [together(chosen[:count]) for count in (1, 2, 3)] == [True, False, False]
    assert rule_of(world, p=SEAT).balance.rule_for(job) is None


def test_borrower_with_a_seat_is_stopped_for_nobody_outside() -> None:
    world = busy(4, queue(4))
    assert world.seat_of("d") == "dev"
    assert victims(world, waits(world), p=SEAT) == {}


@pytest.mark.parametrize(
    ("mine", "theirs", "seated", "may"),
    [
        (5, 4, False, True),
        (5, 5, False, False),
        (4, 5, False, False),
        (5, 4, True, True),
        (4, 5, True, False),
    ],
)
def test_job_takes_from_those_of_its_own_queue_by_priority(
    mine: int, theirs: int, seated: bool, may: bool
) -> None:
    world = busy(4, priority=theirs)
    job = waits(world, queue="dev", priority=mine)
    given = {"p": SEAT} if seated else {}
    assert set(victims(world, job, **given)) == ({"d"} if may else set())
    rule = rule_of(world, **given)
    if may:
        (victim,) = rule.victims_of(job).values()
        assert not is_reclaimed(rule, job, victim)
        assert reason_of(rule, job, victim).startswith(
            f"makes room for job p, whose priority is {mine}, not {theirs}; it loses "
        )


def test_moment_from_which_a_protected_job_may_be_stopped_is_noted() -> None:
    world = busy(4, queue(min_runtime_s=MinRuntime(150.0)))
    rule = rule_of(world, p=SEAT)
    assert rule.next_at == inf
    assert rule.victims_of(waits(world)) == {}
    assert rule.next_at == world.now + 50.0
    again = rule_of(world, p=SEAT)
    assert JobId("d") not in again.asked_for(waits(world))
    assert again.next_at == world.now + 50.0
    again.moments = set()
    again.asked_for(waits(world))
    assert again.next_at == world.now + 50.0, "as it was for another of its kind"


def test_job_that_is_spared_is_protected_until_then() -> None:
    world = busy()
    world.state.set_job(replace(world.job("d"), spared_until=world.now + 70.0))
    rule, job = rule_of(world, p=SEAT), waits(world)
    assert (rule.victims_of(job), rule.next_at) == ({}, world.now + 70.0)
    world.state.set_job(replace(world.job("d"), spared_until=world.now))
    rule = rule_of(world, p=SEAT)
    (victim,) = rule.victims_of(job).values()
    assert rule.protection_of(job, victim) == (
        world.now,
        "the time given to it when the queues changed",
    )


@pytest.mark.parametrize(
    ("seated", "least", "after"),
    [(True, (60.0, 500.0), 60.0), (False, (60.0, 90.0), 90.0), (True, (0.0, 90.0), None)],
)
def test_protection_is_the_minimum_run_time_of_where_the_queues_meet(
    seated: bool, least: tuple[float, float], after: float | None
) -> None:
    world = busy(4, queue(min_runtime_s=MinRuntime(*least)))
    job = waits(world)
    rule = rule_of(world, **({"p": SEAT} if seated else {}))
    (victim,) = rule.running.every().values()
    began = world.now - 100
    words = "its minimum run time", "the time given to it when the queues changed"
    wanted = (0.0, words[1]) if after is None else (began + after, words[0])
    assert rule.protection_of(job, victim) == wanted


def test_all_that_run_are_victims_of_somebody_until_they_are_planned() -> None:
    world = busy()
    rule = rule_of(world, p=SEAT)
    assert set(rule.running.every()) == {JobId("d")}
    rule.running.remove([*rule.running.every().values()])
    assert (set(rule.running.every()), rule.victims_of(waits(world))) == (set(), {})


@pytest.mark.parametrize(("patience", "least_s"), [(0.0, None), (1.0, 100.0), (2.0, 200.0)])
def test_wait_is_long_enough_when_it_has_cost_what_is_lost(patience: float, least_s: float | None) -> None:
    world = busy(4, None, queue(4, patience=patience))
    job = waits(world, gpus=2)
    rule = rule_of(world, p=replace(SEAT, milli=2000))
    chosen = [*rule.victims_of(job).values()]
    lost_s = 100 + world.settings.queue.restart_s
    until = 0.0 if least_s is None else world.now + patience * 4000 * lost_s / 2000
    assert rule.is_patient_until(job, chosen) == until
    assert rule.has_waited(job, chosen) is (least_s is None)
    assert rule.next_at == (inf if least_s is None else until)
    at = world.now
    world.now = max(until, at)
    later = rule_of(world, p=replace(SEAT, milli=2000))
    chosen = [*later.victims_of(job).values()]
    assert later.has_waited(job, chosen), "what is lost more since the wait began does not count"


def test_words_for_a_victim_say_by_which_rule_and_what_is_lost() -> None:
    world = busy()
    seated, borrower = waits(world), waits(world, "q")
    rule = rule_of(world, p=SEAT)
    (victim,) = rule.running.every().values()
    hours = 4 * (100 + world.settings.queue.restart_s) / 3600
    lost = f"it loses {hours:.3g} GPU-h of work"
    assert reason_of(rule, seated, victim) == (
        f"makes room for job p, to which queue prod guarantees the GPUs that it had borrowed; {lost}"
    )
    assert reason_of(rule, borrower, victim) == (
        f"makes room for job q, whose queue prod has less of its fair share than dev, and still will have; {lost}"
    )
    assert reason_of_move(rule, seated, victim, "a7") == (
        f"goes to a7, so that job p has room on one node; {lost}"
    )
    assert (rule.running.runner_of(JobId("d")).pool, is_reclaimed(rule, seated, victim)) == ("default", True)
    world.state.set_job(replace(world.job("d"), started_at=world.now - 3600 * 50))
    long = rule_of(world, p=SEAT)
    (victim,) = long.running.every().values()
    assert reason_of(long, seated, victim).endswith("; it loses 200 GPU-h of work")


def test_room_is_served_in_the_pool_of_the_seat_and_yielded_to_who_is_owed_it() -> None:
    world = busy()
    node = world.state.work.round_of(world.job("d"))[0].agent_id
    seated, borrower = waits(world), waits(world, "q")
    made = replace(waits(world, "r"), room_made_at=5.0)
    other = waits(world, "s", queue="dev")
    world.state.set_job(made)
    rule = rule_of(world, p=SEAT, x=SEAT)
    assert rule.serves(seated, node)
    assert rule.serves(borrower, node)
    far = rule_of(world, p=replace(SEAT, pool="far"))
    assert not far.serves(seated, node)
    ids = [JobId(name) for name in "pqrs"]
    assert [yields_to(world.state, rule.seating, seated)(each) for each in ids] == [False, True, False, True]
    assert [yields_to(world.state, rule.seating, borrower)(each) for each in ids] == [
        False,
        False,
        False,
        True,
    ]
    assert [yields_to(world.state, rule.seating, other)(each) for each in ids] == [False, True, False, False]


def moves(world: Tenants, rule: Reclaim, job: Job, *, seated: bool) -> dict[JobId, Victim]:
    return movable(Turn(world.state, world.settings, world.now), rule, job, seated=seated)


MOVES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = {
    "a smaller one": ({}, {}, {}, True),
    "one as large": ({"gpus": 2}, {}, {}, False),
    "one of several tasks": ({}, {"tasks": 2}, {}, False),
    "a share": ({}, {"gpu_milli": 500}, {}, False),
    "one that has not started": ({}, {}, {"started_at": None}, False),
    "one that is spared": ({}, {}, {"spared_until": 1e9}, False),
    "one of a fenced queue": ({}, {}, {}, False),
    "for a queue that moves no job": ({}, {}, {}, False),
    "for a queue that moves lower ones": ({}, {}, {}, False),
}


@pytest.mark.parametrize(("taker", "spec", "fields", "may"), MOVES.values(), ids=MOVES)
def test_running_job_may_be_moved_to_make_room_for_a_larger_job(
    request: pytest.FixtureRequest,
    taker: dict[str, Any],
    spec: dict[str, Any],
    fields: dict[str, Any],
    may: bool,
) -> None:
    name = request.node.callspec.id
    prod = {"moves no job": Whose.NEVER, "moves lower ones": Whose.LOWER}
    reclaim = next((whose for words, whose in prod.items() if name.endswith(words)), None)
    world = busy(2, queue(fence="fenced" in name), queue(4, reclaim=reclaim))
    job = world.job("d")
    world.state.set_job(replace(job, spec=replace(job.spec, **spec), **fields))
    rule, asks = rule_of(world), waits(world, **{"gpus": 4, **taker})
    assert set(moves(world, rule, asks, seated=False)) == ({JobId("d")} if may else set())
    assert moves(world, rule, asks, seated=True) == {}


def test_job_within_the_guarantee_is_moved_after_its_min_runtime_and_not_again_within_an_hour() -> None:
    least = MinRuntime(150.0)
    world = busy(4, queue(4, min_runtime_s=least))
    rule, asks = rule_of(world), waits(world, gpus=8)
    assert (moves(world, rule, asks, seated=True), rule.next_at) == ({}, world.now + 50.0)
    world.now += 50
    assert set(moves(world, rule_of(world), asks, seated=True)) == {JobId("d")}
    assert moves(world, rule_of(world), asks, seated=False) == {}
    task = world.state.work.round_of(world.job("d"))[0]
    for ago_s, may in ((MOVED_AGAIN_S - 0.5, False), (MOVED_AGAIN_S, True)):
        world.state.set_task(
            replace(
                task,
                id=TaskId("d.0"),
                preempted_for=JobId("x"),
                state=TaskState.KILLED,
                ended_at=world.now - ago_s,
            )
        )
        rule = rule_of(world)
        assert bool(moves(world, rule, asks, seated=True)) is may
        assert rule.next_at == (inf if may else world.now + 0.5)


@pytest.mark.parametrize(("mine", "theirs", "may"), [(5, 6, False), (5, 5, True), (5, 4, True)])
def test_job_of_the_same_queue_goes_elsewhere_for_no_lower_one(mine: int, theirs: int, may: bool) -> None:
    world = busy(2, priority=theirs)
    asks = waits(world, queue="dev", priority=mine)
    assert set(moves(world, rule_of(world), asks, seated=False)) == ({JobId("d")} if may else set())
    other = waits(world, "q", priority=mine)
    assert set(moves(world, rule_of(world), other, seated=False)) == {JobId("d")}, (
        "of another queue it may be lower"
    )


def test_job_that_has_had_more_service_gives_way_in_a_queue_by_service() -> None:
    world = busy(4, queue(order=QueueOrder.LAS))
    world.state.set_job(replace(world.job("d"), started_at=world.now - 4000))
    for task in world.state.work.round_of(world.job("d")):
        world.state.set_task(replace(task, started_at=world.now - 4000))
    asks = waits(world, queue="dev")
    rule = rule_of(world)
    (victim,) = rule.victims_of(asks).values()
    assert victim.priority < -1000, "who has had the most goes first"
    assert not is_reclaimed(rule, asks, victim)
    assert "which has had less GPU time in queue dev" in reason_of(rule, asks, victim)
