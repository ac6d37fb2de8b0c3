"""Levels of a fabric in the engine: refusals, reasons to wait, contradictions that come later, apps and small jobs."""

from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import defrag_problem, explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Topology
from mesos_gpu.model.jobs.job import JobState, Placement
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tenancy import Pool, QueueSpec
from mesos_gpu.policy.room.defrag import plan
from tests.doubles.builders import gpu, spec
from tests.property.placement.test_gang_search import Racks

ONE_RACK: Final = Topology("rack", True)
FEW_RACKS: Final = Topology("rack", False)


def fabric(
    *racks: str, cards: int = 2, levels: tuple[str, ...] = ("block", "rack"), **settings: Any
) -> Racks:
    """Return a cluster with a node in each of some racks, "b1/r1"; "": without attributes."""
    world = Racks(Settings.of("e", "m", report_stale_s=1e9, levels=levels, **settings))
    world.places = {}
    world.register()
    for rack in racks:
        arrive(world, rack, cards)
    world.offer_again()
    return world


def arrive(world: Racks, rack: str, cards: int = 2) -> None:
    """Have one more node come."""
    block, _, name = rack.partition("/")
    number = len(world.places)
    attributes = {"block": block, "rack": name} if rack else {}
    world.places[f"a{number}"] = Node(AgentId(f"a{number}"), "", attributes=attributes)
    world.node(f"a{number}", *(gpu(f"a{number}-{k}") for k in range(cards)), cpus=64)


def submit(world: Racks, name: str, tasks: int = 1, gpus: int = 1, **more: Any) -> list[str]:
    """Submit a job, and return the agents of its tasks by rank; empty if it waits."""
    world.submit(name, tasks=tasks, gpus=gpus, cpus=0.1, mem_mib=32, **more)
    world.offer_again()
    if world.job(name).state is JobState.PENDING:
        return []
    tasks_of = sorted(world.state.work.round_of(world.job(name)), key=lambda task: task.rank)
    return [str(task.agent_id) for task in tasks_of]


def why(world: Racks, name: str) -> Why:
    return explain_job(View(world.state, world.settings, world.now), JobId(name))


@pytest.mark.parametrize("wish", [ONE_RACK, FEW_RACKS])
def test_gang_is_in_one_rack_where_one_has_room(wish: Topology) -> None:
    world = fabric("b1/r1", "b1/r2", "b2/r3", "b2/r3")
    assert set(submit(world, "gang", 4, topology=wish)) == {"a2", "a3"}


def test_gang_with_a_preference_takes_the_fewest_racks_of_one_block() -> None:
    world = fabric("b1/r1", "b2/r2", "b2/r3", "b2/r3")
    assert submit(world, "gang", 6, topology=FEW_RACKS) == ["a1", "a1", "a2", "a2", "a3", "a3"]


def test_segments_of_a_gang_are_consecutive_ranks_of_one_rack() -> None:
    world = fabric("b1/r1", "b2/r2", "b1/r1", "b2/r2", "b1/r3")
    agents = submit(world, "gang", 8, topology=ONE_RACK, segment=4)
    assert [set(agents[:4]), set(agents[4:])] == [{"a0", "a2"}, {"a1", "a3"}]
    assert submit(world, "other", 4, topology=ONE_RACK, segment=2) == []
    assert "1 of 2 segments fit; rack r" in why(world, "other").summary


def test_gang_without_a_level_has_ranks_rack_by_rack() -> None:
    world = fabric("b1/r1", "b2/r2", "b1/r1", "b2/r2")
    assert submit(world, "gang", 8) == ["a0", "a0", "a2", "a2", "a1", "a1", "a3", "a3"]
    world = fabric("b1/r1", "b2/r2", "b1/r1", "b2/r2", levels=())
    assert submit(world, "gang", 8) == ["a0", "a0", "a1", "a1", "a2", "a2", "a3", "a3"]


@pytest.mark.parametrize(
    ("levels", "level", "is_required", "words"),
    [
        ((), "rack", True, "no level rack: it has no levels (--topology); attributes of agents: block, rack"),
        (("block",), "rack", False, "the scheduler has no level rack: its levels are block (--topology); attributes"),
        (("block", "row"), "row", True, "no agent has the attribute row; attributes of agents: block, rack"),
        (("block", "row"), "row", False, ""),
        ((), "host", True, ""),
    ],
)  # fmt: skip
def test_level_that_no_agent_has_is_refused_with_the_attributes_of_agents(
    levels: tuple[str, ...], level: str, is_required: bool, words: str
) -> None:
    world = fabric("b1/r1", levels=levels)
    if not words:
        assert submit(world, "gang", 2, topology=Topology(level, is_required))
        return
    with pytest.raises(NotAccepted) as refused:
        submit(world, "gang", 2, topology=Topology(level, is_required))
    assert refused.value.faults[0][0] == "/topology"
    assert words in str(refused.value)


def test_level_is_taken_on_trust_before_agents_come() -> None:
    world = fabric()
    assert submit(world, "gang", 4, topology=ONE_RACK) == []
    for rack in ("b1/r1", "b1/r1"):
        arrive(world, rack)
    world.offer_again()
    assert world.job("gang").state is JobState.STARTING


def test_gang_too_large_for_a_rack_names_the_largest_and_what_is_lacking_there() -> None:
    world = fabric("b1/r1", "b1/r2", "b1/r2")
    assert submit(world, "small") == ["a0"]
    assert submit(world, "large", 5, topology=ONE_RACK) == []
    said = why(world, "large")
    assert not said.can_ever_run
    assert said.summary == (
        "asks for 5 tasks of 1 GPU each in one rack, and the largest rack, r2, has room for 4, even when nothing else "
        "runs there"
    )
    assert submit(world, "segments", 6, topology=ONE_RACK, segment=3) == []
    assert why(world, "segments").summary == (
        "asks for 3 tasks of 1 GPU each in one rack, 2 times, and the largest rack, r2, has room for 4, even when "
        "nothing else runs there"
    )


def test_gang_waits_for_the_group_with_the_most_room() -> None:
    world = fabric("b1/r1", "b1/r2", "b1/r2")
    world.submit("one", gpus=2, cpus=0.1, mem_mib=32, constraints=())
    world.offer_again()
    gang = submit(world, "gang", 4, topology=ONE_RACK)
    assert set(gang) == {"a1", "a2"}, "the small job was placed in the other rack"
    assert submit(world, "next", 3, topology=ONE_RACK) == []
    said = why(world, "next")
    assert said.can_ever_run
    assert "; 0 of 3 tasks fit; rack r2 has the most room: it lacks room for 3 of 3 tasks" in said.summary
    world.ends("gang")
    assert world.job("next").state is JobState.STARTING


def test_agent_that_contradicts_the_others_is_outside_of_the_levels() -> None:
    world = fabric("b1/r1", "b1/r1")
    arrive(world, "b2/r1")
    world.offer_again()
    words = "rack r1 is in block b1 on a0.example, and in block b2 on a2.example"
    view = View(world.state, world.settings, world.now)
    assert view.fabric.outside == {AgentId("a2"): words}
    assert submit(world, "gang", 6, topology=ONE_RACK) == []
    reasons = {node.hostname: node.reasons for node in why(world, "gang").nodes}
    assert reasons["a2.example"][0] == f"violates topology required:rack: {words}"
    assert set(submit(world, "fits", 4, topology=ONE_RACK)) == {"a0", "a1"}
    assert set(submit(world, "anywhere", 2, topology=FEW_RACKS)) == {"a2"}


def test_job_whose_level_is_not_declared_any_more_waits() -> None:
    world = fabric("b1/r1", "b1/r1")
    submit(world, "first", 4)
    submit(world, "gang", 4, topology=ONE_RACK)
    world.settings = world.settings.changed(levels=())
    world.state.cluster.agents.made_fabric = None
    world.ends("first")
    assert world.job("gang").state is JobState.PENDING
    assert "violates topology required:rack: the scheduler has no level rack" in why(world, "gang").summary


def test_jobs_of_an_app_run_in_the_rack_of_the_first() -> None:
    world = fabric("b1/r1", "b1/r2", "b2/r3", "b1/r2", cards=1)
    assert submit(world, "web0", app="web", topology=ONE_RACK) == ["a0"]
    assert submit(world, "web1", app="web", topology=ONE_RACK) == []
    reasons = [node.reasons[0] for node in why(world, "web1").nodes]
    assert reasons[1:] == ["violates topology required:rack: web0 runs in another rack"] * 3
    assert submit(world, "other", app="db", topology=ONE_RACK)


def test_jobs_of_an_app_prefer_its_racks_and_then_its_blocks() -> None:
    world = fabric("b1/r1", "b2/r3", "b1/r2", "b1/r2", cards=1)
    where = [submit(world, f"web{i}", app="web", topology=FEW_RACKS) for i in range(4)]
    assert (where[0], sorted(where[1] + where[2]), where[3]) == (["a0"], ["a2", "a3"], ["a1"])


def test_small_jobs_use_up_a_rack_before_the_next() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2", "b2/r2", "b1/r3", "b1/r3")
    racks = [world.places[agent].attributes["rack"] for i in range(12) for agent in submit(world, f"j{i}")]
    assert racks == ["r1"] * 4 + ["r3"] * 4 + ["r2"] * 4, "the block that is in use comes first"


def test_small_gang_leaves_the_rack_that_is_free() -> None:
    world = fabric("b1/r1", "b1/r1", "b1/r2", "b1/r2")
    (first,) = submit(world, "one", 1, gpus=2)
    rest = {
        agent for agent in world.places if world.places[agent].attributes == world.places[first].attributes
    }
    assert set(submit(world, "gang", 2)) == rest - {first}


def test_jobs_that_are_spread_go_apart_before_racks_are_left_free() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2", placement=Placement.SPREAD)
    agents = [submit(world, f"j{i}", app="web") for i in range(3)]
    assert len({agent for (agent,) in agents}) == 3


def test_gang_starts_again_in_one_rack_after_a_member_failed() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2", "b2/r2")
    assert set(submit(world, "gang", 4, topology=ONE_RACK, max_attempts=3)) == {"a2", "a3"}
    assert set(submit(world, "other", 4, topology=ONE_RACK)) == {"a0", "a1"}
    assert submit(world, "late", 4, topology=ONE_RACK) == []
    world.starts()
    tasks = world.state.work.round_of(world.job("gang"))
    world.status(tasks[0].id, "TASK_FAILED", agent=tasks[0].agent_id)
    for _ in range(10):
        world.passes(1.0)
        world.obeys()
    assert world.job("gang").launches == 2
    assert {str(task.agent_id) for task in world.state.work.round_of(world.job("gang"))} == {"a2", "a3"}


def test_reservation_of_a_gang_is_in_one_rack() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2")
    world.submit("long", tasks=1, gpus=1, cpus=0.1, mem_mib=32, timeout_s=100.0)
    world.offer_again()
    world.starts()
    assert submit(world, "gang", 4, topology=ONE_RACK) == []
    assert submit(world, "late", gpus=2, timeout_s=1000.0) == ["a2"], "rack r1 is kept for the gang"
    world.feed(ev.Tick())
    world.ends("long")
    assert world.job("gang").state is JobState.STARTING


def test_plan_of_moves_makes_room_in_one_rack() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2")
    for number in range(3):
        assert submit(world, f"small{number}", preemptible=True) != ["a2"]
        world.starts()
    for wish, moves in ((ONE_RACK, 2), (FEW_RACKS, 0)):
        asked = spec(tasks=3, gpus=1, cpus=0.1, mem_mib=32, topology=wish)
        made = plan(defrag_problem(View(world.state, world.settings, world.now), asked))
        assert len(made.moves) == moves, made
        assert len(made.targets) == 3
        assert ("a2.example" in {target.hostname for target in made.targets}) == (wish is FEW_RACKS)
    asked = spec(tasks=4, gpus=1, cpus=0.1, mem_mib=32, topology=ONE_RACK, segment=2)
    made = plan(defrag_problem(View(world.state, world.settings, world.now), asked))
    assert made.reason == "no plan: moves are not planned for jobs with segments"


def test_gang_of_shares_is_in_one_rack() -> None:
    world = Racks(Settings.of("e", "m", report_stale_s=1e9, levels=("block", "rack")))
    world.places = {}
    world.register()
    sharing = Sharing(80000, ((Ability.SHIM, ""),))
    for number, rack in enumerate(("r1", "r2", "r1", "r2", "r2")):
        attributes = {"block": "b1", "rack": rack}
        world.places[f"a{number}"] = Node(AgentId(f"a{number}"), "", attributes=attributes)
        world.node(f"a{number}", replace(gpu(f"a{number}-0"), sharing=sharing), cpus=64)
    world.offer_again()
    where = submit(world, "gang", 6, gpu_milli=500, topology=ONE_RACK)
    assert sorted(where) == ["a1", "a1", "a3", "a3", "a4", "a4"]
    assert submit(world, "next", 5, gpu_milli=500, topology=ONE_RACK) == []
    assert "and the largest rack" not in why(world, "next").summary
    assert sorted(submit(world, "fits", 4, gpu_milli=500, topology=ONE_RACK)) == ["a0", "a0", "a2", "a2"]


def test_gang_with_a_level_stays_in_the_pools_of_its_queue() -> None:
    world = fabric("b1/r1", "b1/r1", "b2/r2", "b2/r2", "b2/r3")
    pools = (Pool("left", attributes={"block": "b1"}), Pool("right", attributes={"block": "b2"}))
    world.document_of({"a": QueueSpec(pools=("right",))}, pools=pools)
    assert set(submit(world, "gang", 4, topology=ONE_RACK, queue="a")) == {"a2", "a3"}
    assert submit(world, "next", 4, topology=ONE_RACK, queue="a") == []
    assert "rack r3 has the most room: it lacks room for 2 of 4 tasks" in why(world, "next").summary


def test_gang_without_gpus_waits_for_the_rack_with_the_most_room() -> None:
    world = fabric("b1/r1", "b1/r2")
    world.submit("gang", tasks=3, gpus=0, cpus=60.0, mem_mib=32, topology=ONE_RACK)
    assert world.job("gang").state is JobState.PENDING
    assert (
        "; 1 of 3 tasks fit; rack r1 has the most room: it lacks room for 2 of 3 tasks"
        in why(world, "gang").summary
    )
