"""Reclaim of guaranteed GPUs from borrowers: on real nodes, at the least loss, and from no job with a seat."""

from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.shares import queue_shares
from mesos_gpu.engine.preemption import preempting
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.tenancy import MinRuntime, Reclaim, Stop
from tests.doubles.builders import every, offer, saved_of
from tests.unit.engine.tenancy.lending import Tenants, queue, shapes


@pytest.fixture
def world() -> Tenants:
    world = Tenants()
    world.register()
    return world


def test_reclaim_takes_borrowed_gpus_for_their_guarantee(world: Tenants) -> None:
    world.agents(2, 4)
    world.document(dev=queue(shapes(1, 4)), prod=queue(shapes(1, 4)))
    for i in range(4):
        world.runs(f"dev{i}", "dev", 2)
    assert [world.seat_of(f"dev{i}") for i in range(4)] == ["dev", "dev", None, None]
    world.submit("prod", queue="prod", gpus=4)
    assert world.passes(5) == {"dev2", "dev3"}, "the two that borrow; the others have seats"
    world.obeys()
    world.starts()
    assert world.job("prod").state is JobState.RUNNING
    assert world.seat_of("prod") == "prod"
    assert {name: world.job(name).state for name in ("dev0", "dev1", "dev2", "dev3")} == {
        "dev0": JobState.RUNNING, "dev1": JobState.RUNNING, "dev2": JobState.PENDING, "dev3": JobState.PENDING,
    }  # fmt: skip
    assert not world.passes(60), "nobody is stopped for those that were"
    world.ends("prod")
    world.starts()
    assert world.job("dev2").state is world.job("dev3").state is JobState.RUNNING


def test_reclaim_stops_no_job_with_a_seat_though_gpus_are_guaranteed_twice(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue(4))
    world.runs("dev0", "dev", 4)
    world.submit("prod", queue="prod", gpus=2, priority=99)
    assert not world.passes(30)


def test_jobs_of_one_queue_do_not_end_each_other_by_turns(world: Tenants) -> None:
    """Found by chaos: one job had a seat, and the other a higher priority."""
    world.agents(1, 3)
    world.document(dev=queue(2))
    world.runs("urgent", "dev", 3, priority=5)
    assert world.seat_of("urgent") is None
    world.submit("small", queue="dev", gpus=2, preemptible=True)
    assert not world.passes(60)
    world.ends("urgent")
    world.starts()
    assert world.seat_of("small") == "dev"


def test_priority_counts_in_a_queue_and_not_beyond_it(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue())
    world.runs("dev0", "dev", 2)
    world.runs("dev1", "dev", 2)
    world.submit("alien", queue="prod", gpus=2, priority=99, preemptible=True)
    assert not world.passes(30)
    world.submit("urgent", queue="dev", gpus=2, priority=9)
    stopped = world.passes(10)
    assert len(stopped) == 1, [(t.id, t.evicted) for t in world.state.work.tasks.values()]


def test_gang_of_two_nodes_gets_the_nodes_that_it_is_guaranteed(world: Tenants) -> None:
    world.agents(3, 4)
    world.document(dev=queue(shapes(1, 4)), prod=queue(shapes(2, 4)))
    for i in range(12):
        world.runs(f"dev{i}", "dev", 1)
    world.submit("gang", queue="prod", gpus=4, tasks=2)
    assert world.passes(8) == {f"dev{i}" for i in range(4, 12)}
    world.obeys()
    assert world.job("gang").state is JobState.STARTING


def test_borrower_is_left_alone_for_its_minimum_run_time(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(min_runtime_s=MinRuntime(60.0, 600.0)), prod=queue(4))
    world.runs("dev0", "dev", 4)
    started = world.now
    world.submit("prod", queue="prod", gpus=4)
    assert not world.passes(started + 59 - world.now)
    assert world.passes(3) == {"dev0"}
    assert world.job("dev0").stopped == 0, "not before it has ended"


def borrowed(world: Tenants, **dev: Any) -> None:
    """Queue dev runs on all 8 GPUs of two nodes, of which it is guaranteed 4 and prod the others."""
    world.agents(2, 4)
    world.document(dev=queue(shapes(1, 4), **dev), prod=queue(shapes(1, 4)))
    for i in range(4):
        world.runs(f"dev{i}", "dev", 2)


def test_room_for_several_is_made_in_one_match_each_on_a_node_of_its_own(world: Tenants) -> None:
    world.agents(4, 2)
    world.document(dev=queue(), prod=queue(shapes(3, 2)))
    for i in range(4):
        world.runs(f"dev{i}", "dev", 2)
    for i in range(3):
        world.submit(f"prod{i}", queue="prod", gpus=2)
    assert len(world.passes(4)) == 3
    world.obeys()
    assert all(world.job(f"prod{i}").state is JobState.STARTING for i in range(3))


def owed_five_nodes(gpus: int) -> Tenants:
    """Queue dev runs a job on all of each of five nodes, which prod is guaranteed, and ten jobs of prod have come."""
    world = Tenants()
    world.register()
    world.agents(5, 4)
    world.document(dev=queue(notice_s=20.0), prod=queue(shapes(5, 4)))
    for i in range(5):
        world.runs(f"dev{i}", "dev", 4, cpus=16, mem_mib=4096)
    for i in range(10):
        world.submit(f"prod{i}", queue="prod", gpus=gpus)
    world.now += world.settings.queue.preempt_after_s + 1
    world.feed()
    return world


def told(world: Tenants) -> dict[str, str]:
    """For whom jobs are told to end, and on which node."""
    tasks = (task for task in world.state.work.tasks.values() if task.preempted_for is not None)
    return {str(task.preempted_for): str(task.agent_id) for task in tasks}


@pytest.mark.parametrize(("gpus", "ended"), [(4, 5), (3, 5), (2, 5), (1, 3)])
def test_reclaim_counts_the_rest_of_a_victim_as_room_for_others(gpus: int, ended: int) -> None:
    """Ten jobs of one GPU had ten jobs of four ended."""
    world = owed_five_nodes(gpus)
    assert len(told(world)) == ended
    world.passes(24)
    world.obeys()
    world.starts()
    running = [i for i in range(10) if world.job(f"prod{i}").state is JobState.RUNNING]
    assert len(running) == min(10, ended * (4 // gpus))


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
@pytest.mark.parametrize("bound", ["_MAX_PLANS", "_MAX_LOOKED_AT"])
def test_reclaim_makes_a_bounded_number_of_plans_a_match(
    monkeypatch: pytest.MonkeyPatch, gpus: int, bound: str
) -> None:
    whole = owed_five_nodes(gpus)
    assert not whole.state.match.unmatched
    monkeypatch.setattr(preempting, bound, 1)
    world = owed_five_nodes(gpus)
    counts = list[int]()
    while world.state.match.unmatched:
        counts.append(len(told(world)))
        world.feed()
    assert counts == list(range(1, len(told(whole)) + 1))
    assert told(world) == told(whole)


def test_room_that_is_being_made_for_another_is_not_made_again(world: Tenants) -> None:
    """Room kept for the first counted twice, and the second had two jobs stopped for one GPU."""
    world.agents(1, 4)
    world.document(dev=queue(notice_s=60.0), prod=queue(2))
    for i in range(4):
        world.runs(f"dev{i}", "dev")
    for i in range(2):
        world.submit(f"prod{i}", queue="prod", gpus=1)
        world.passes(5)
    told = [
        str(task.preempted_for) for task in world.state.work.tasks.values() if task.preempted_for is not None
    ]
    assert sorted(told) == ["prod0", "prod1"]


def test_reclaim_spares_a_job_that_was_stopped_before(world: Tenants) -> None:
    world.agents(1, 2)
    world.document(dev=queue(), prod=queue(1))
    world.runs("unlucky", "dev")
    world.passes(20)
    world.runs("lucky", "dev")
    world.submit("first", queue="prod", gpus=1)
    assert world.passes(6) == {"lucky"}, "it has run less"
    world.obeys()
    world.starts()
    assert world.job("lucky").stopped == 1
    world.ends("first")
    world.starts()
    assert world.job("lucky").state is JobState.RUNNING
    world.submit("second", queue="prod", gpus=1)
    assert world.passes(6) == {"unlucky"}, "it lost less than four times of what lucky would"


def test_reclaim_notices_are_withdrawn_when_no_room_is_needed(world: Tenants) -> None:
    borrowed(world, notice_s=60.0)
    world.submit("prod", queue="prod", gpus=4)
    assert not world.passes(6), "they have notice first"
    assert {t.job_id for t in world.state.work.tasks.values() if t.notice and t.notice.stands} == {
        "dev2",
        "dev3",
    }
    world.feed(ev.KillRequested(JobId("prod")))
    assert not world.passes(70)
    assert not [t for t in world.state.work.tasks.values() if t.notice and t.notice.stands]
    assert world.job("dev2").message == "it goes on: job prod, which it was to make room for, has ended"
    assert world.job("dev2").stopped == 0


def test_reclaim_notice_is_withdrawn_though_it_has_just_run_out(world: Tenants) -> None:
    borrowed(world, notice_s=60.0)
    world.submit("prod", queue="prod", gpus=4)
    world.passes(6)
    world.now += 120
    world.feed(ev.KillRequested(JobId("prod")))
    world.feed(ev.Tick())
    assert not [task.id for task in world.state.work.tasks.values() if task.evicted]
    assert not [task.id for task in world.state.work.tasks.values() if task.notice and task.notice.stands]


def test_reclaim_keeps_freed_gpus_for_their_taker(world: Tenants) -> None:
    borrowed(world, notice_s=30.0)
    world.submit("prod", queue="prod", gpus=4)
    world.passes(6)
    world.submit("other", queue="dev", gpus=2, preemptible=True, priority=99)
    world.ends("dev2")
    assert world.job("other").state is JobState.PENDING, "the first half of what prod waits for"
    world.passes(30)
    world.obeys()
    assert world.job("prod").state is JobState.STARTING


@pytest.mark.parametrize("phase", ["planned", "told", "ended"])
def test_reclaim_plan_has_the_same_outcome_over_a_restart(world: Tenants, phase: str) -> None:
    borrowed(world, notice_s=20.0 if phase == "planned" else 0.0)
    world.submit("prod", queue="prod", gpus=4)
    world.passes(4)
    if phase == "ended":
        world.obeys()
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    world.offer_again()
    world.passes(30)
    world.obeys()
    world.offer_again()
    assert world.job("prod").state is JobState.STARTING
    assert world.seat_of("prod") == "prod"
    assert [world.seat_of(f"dev{i}") for i in range(4)] == ["dev", "dev", None, None]
    assert {name for name in ("dev0", "dev1") if world.job(name).stopped} == set()


def test_reclaim_stops_a_dear_victim_only_when_the_wait_has_cost_as_much(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(), prod=queue(4, patience=2.0))
    world.runs("dev0", "dev", 4)
    world.passes(100)
    ran_s = world.now - (world.job("dev0").started_at or 0.0)
    world.submit("prod", queue="prod", gpus=4)
    waits_s = 2 * (ran_s + world.settings.queue.restart_s)
    assert not world.passes(waits_s - 2)
    assert world.state.match.next_moment == pytest.approx(world.job("prod").submitted_at + waits_s, abs=0.1)
    assert world.passes(4) == {"dev0"}


def test_reclaim_crosses_no_fence(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(
        a=queue(4, fence=True), a__x=queue(2), a__y=queue(2), b=queue(4), c=queue(4, fence=True), d=queue()
    )
    world.runs("ax", "a/x", 4)
    world.submit("b", queue="b", gpus=2)
    world.submit("c", queue="c", gpus=2)
    assert not world.passes(20)
    for name in ("b", "c"):
        world.feed(ev.KillRequested(JobId(name)))
    world.submit("ay", queue="a/y", gpus=2)
    assert world.passes(6) == {"ax"}, "within the fence"


@pytest.mark.parametrize(
    ("reclaim", "priority", "stopped"),
    [
        (Reclaim.NEVER, 0, set()),
        (Reclaim.LOWER, 5, set()),
        (Reclaim.LOWER, 4, {"dev0"}),
        (Reclaim.ANY, 9, {"dev0"}),
    ],
)
def test_reclaim_setting_of_the_taking_queue_names_the_victims(
    world: Tenants, reclaim: Reclaim, priority: int, stopped: set[str]
) -> None:
    world.agents(1, 4)
    world.document(dev=queue(), prod=queue(4, reclaim=reclaim))
    world.runs("dev0", "dev", 4, priority=priority)
    world.submit("prod", queue="prod", gpus=4, priority=5)
    assert world.passes(10) == stopped


def test_borrowers_take_from_those_who_have_more_and_no_further(world: Tenants) -> None:
    world.agents(1, 8)
    least = MinRuntime(0.0, 10.0)
    world.document(rich=queue(min_runtime_s=least), poor=queue(min_runtime_s=least))
    for i in range(8):
        world.runs(f"rich{i}", "rich")
    for i in range(8):
        world.submit(f"poor{i}", queue="poor", gpus=1, preemptible=True)
    stopped: set[str] = set()
    for _ in range(12):
        stopped |= world.passes(6)
        world.obeys()
        world.starts()
    assert len(stopped) == 3, "at 5 to 3, one more would not stay below"
    assert not any(job.startswith("poor") for job in stopped)


def test_borrowers_are_compared_where_their_queues_meet(world: Tenants) -> None:
    """a holds 6 of 8, and b 2: what a/y lacks it takes from its sibling a/x, what b/w lacks from a."""
    world.agents(1, 8)
    least = MinRuntime(0.0, 10.0)
    tree = {"a": queue(min_runtime_s=least), "b": queue(min_runtime_s=least)}
    world.document(**tree, a__x=queue(), a__y=queue(), b__z=queue(), b__w=queue())
    for i in range(6):
        world.runs(f"x{i}", "a/x")
    for i in range(2):
        world.runs(f"z{i}", "b/z")

    def stopped_for(queue: str, count: int) -> set[str]:
        for i in range(count):
            world.submit(f"{queue[-1]}{i}", queue=queue, gpus=1, preemptible=True)
        names: set[str] = set()
        for _ in range(3):
            names |= world.passes(14)
            world.obeys()
            world.starts()
        return names

    taken = stopped_for("a/y", 4)
    assert len(taken) == 2, "at 4 to 2 of 3 each, one more would not stay below"
    assert all(name.startswith("x") for name in taken), "b has less than a"
    taken = stopped_for("b/w", 3)
    assert all(name.startswith(("x", "y")) for name in taken), (
        "of its sibling it would take as much as it has"
    )
    shares = queue_shares(world.state, world.settings, world.now)
    assert {share.path: share.held for share in shares if share.path in ("a", "b")} == {"a": 5000, "b": 3000}
    assert not world.passes(40), "and that is all"


def test_borrowers_do_not_stop_borrowers_by_default(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(rich=queue(), poor=queue())
    world.runs("rich", "rich", 4)
    world.submit("poor", queue="poor", gpus=1, preemptible=True)
    assert not world.passes(60)


def test_smaller_guarantee_makes_borrowers_of_the_newest_and_stops_nobody(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue())
    for i in range(4):
        world.runs(f"dev{i}", "dev")
        world.passes(1)
    world.document(0.0, dev=queue(2), prod=queue(2))
    assert not world.passes(60)
    assert [world.seat_of(f"dev{i}") for i in range(4)] == ["dev", "dev", None, None]
    world.submit("prod", queue="prod", gpus=2)
    assert world.passes(6) == {"dev2", "dev3"}


def test_reclaim_is_immediate_if_the_document_gives_no_time(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4), prod=queue())
    for i in range(4):
        world.runs(f"dev{i}", "dev")
    world.submit("prod", queue="prod", gpus=2, preemptible=True)
    assert not world.passes(30)
    effects = world.document(0.0, dev=queue(2), prod=queue(2))
    killed = {str(world.state.work.tasks[kill.task_id].job_id) for kill in every(effects, fx.Kill)}
    assert killed == {"dev2", "dev3"}, "in the step that takes the document"


def test_seat_that_gets_free_goes_to_the_oldest_borrower(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(2))
    for i in range(4):
        world.runs(f"dev{i}", "dev")
    world.ends("dev0")
    assert [world.seat_of(f"dev{i}") for i in range(4)] == [None, "dev", "dev", None]


def test_job_that_a_limit_keeps_waiting_has_no_seat(world: Tenants) -> None:
    world.agents(1, 4)
    world.document(dev=queue(4, limit_gpus={"default": 4000}), prod=queue())
    world.runs("dev0", "dev", 3)
    world.submit("big", queue="dev", gpus=2, preemptible=True, priority=9)
    world.passes(2)
    world.submit("small", queue="dev", gpus=1, preemptible=True)
    world.offer_again()
    assert world.seat_of("small") == "dev"


def test_reclaim_stops_no_job_for_a_seat_that_would_still_be_too_small(world: Tenants) -> None:
    """Found by chaos: a job that starts only with a seat had one of its own queue stopped, for too small a seat."""
    world.agents(1, 2)
    world.document(dev=queue(1), other=queue(1))
    world.runs("small", "dev", 1)
    assert world.seat_of("small") == "dev"
    world.document(dev=queue(2), other=queue())
    world.submit("large", queue="dev", gpus=2, priority=9)
    world.document(dev=queue(1), other=queue(1))
    assert not world.passes(30)
    world.runs("beside", "other", 1, preemptible=False)
    world.submit("fits", queue="dev", gpus=1, priority=9)
    assert world.passes(10) == {"small"}
    world.obeys()
    world.starts()
    assert (world.job("fits").state, world.seat_of("fits")) == (JobState.RUNNING, "dev")


def test_reclaim_room_is_dropped_for_a_job_that_a_new_document_holds(world: Tenants) -> None:
    """Found by chaos: the room was kept for ever, and jobs that could have started waited for ever."""
    world.agents(1, 2)
    world.document(dev=queue(2), other=queue())
    world.runs("lent", "other", 2)
    world.submit("owner", queue="dev", gpus=2)  # starts only within a guarantee
    assert world.passes(10) == {"lent"}
    assert world.job("owner").room_on
    world.document(dev=queue(1), other=queue())
    world.obeys()
    assert (world.job("owner").room_made_at, world.job("owner").room_on) == (None, ())
    world.starts()
    assert world.job("lent").state is JobState.RUNNING


def test_reclaim_notices_are_withdrawn_for_a_job_that_may_not_start_any_more(world: Tenants) -> None:
    world.agents(1, 2)
    world.document(dev=queue(2), other=queue(notice_s=60.0))
    world.runs("lent", "other", 2)
    world.submit("owner", queue="dev", gpus=2)
    assert not world.passes(10)
    assert world.state.work.round_of(world.job("lent"))[0].preempted_for == "owner"
    world.document(dev=queue(2, stop=Stop.HOLD), other=queue(notice_s=60.0))
    assert not world.passes(80)
    (task,) = world.state.work.round_of(world.job("lent"))
    assert task.notice is not None
    assert not task.notice.stands
    assert world.job("owner").room_made_at is None


def test_reclaim_stops_no_job_for_one_that_lacks_ports(world: Tenants) -> None:
    """Found by chaos: plans counted GPUs, and the ports of the node were all taken."""
    world.agents(1, 2)
    world.document(dev=queue(2), lent=queue())
    port = PortWish(None, 0, 31000)
    world.runs("web", "dev", 0, ports=(port,))
    world.runs("lent", "lent", 2)
    world.offers(offer("rest", "a0", cpus=16))
    world.submit("served", queue="dev", gpus=2, ports=(port,))
    assert not world.passes(30)
    world.submit("plain", queue="dev", gpus=2)
    assert world.passes(30) == {"lent"}
