"""Gangs in small fabrics, compared with all placements that there are."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import pytest

from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import HOST, Constraint, Operator, Topology
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.rules import level_field, level_rules
from mesos_gpu.policy.gangs.search import Most, Rule, search
from tests.doubles.builders import gpu, spec
from tests.property.placement.test_gang_search import Racks
from tests.unit.engine.tenancy.lending import queue

LEVELS: Final = ("pod", "block", "rack")
Counts = tuple[int, ...]


def fabric_of(chance: random.Random, count: int) -> list[dict[str, str]]:
    """Draw nodes in racks in blocks in pods."""
    blocks, pods = chance.randint(1, 3), chance.randint(1, 2)
    racks = [chance.randrange(blocks) for _ in range(chance.randint(1, 5))]
    made = []
    for i in range(count):
        rack = chance.randrange(len(racks))
        block = racks[rack]
        made.append({"pod": f"p{block % pods}", "block": f"b{block}", "rack": f"r{rack}", "host": f"h{i}"})
    return made


def placements(rooms: Sequence[int], tasks: int, allows: Any) -> Iterator[Counts]:
    """Yield all placements of so many tasks that limits allow."""
    for counts in product(*(range(min(room, tasks) + 1) for room in rooms)):
        if sum(counts) == tasks and allows(counts):
            yield counts


def tasks_at(places: Sequence[dict[str, str]], counts: Counts, level: str) -> Counter[str]:
    """Return the number of tasks in each group of a level that has any."""
    tasks: Counter[str] = Counter()
    for place, count in zip(places, counts, strict=True):
        if count:
            tasks[place[level]] += count
    return tasks


def groups_used(places: Sequence[dict[str, str]], counts: Counts, levels: Sequence[str]) -> Counts:
    """Return the number of groups with tasks at each of some levels."""
    return tuple(len(tasks_at(places, counts, level)) for level in levels)


def is_whole(places: Sequence[dict[str, str]], counts: Counts, level: str, segment: int) -> bool:
    """Return whether all segments are within groups of a level."""
    return all(tasks % segment == 0 for tasks in tasks_at(places, counts, level).values())


@pytest.mark.parametrize("count", [400, pytest.param(100_000, marks=pytest.mark.long)])
def test_levels_of_a_search_take_the_fewest_groups_of_all_placements(count: int) -> None:
    feasible = divided = limited = 0
    for seed in range(count):
        chance = random.Random(seed)
        places = fabric_of(chance, chance.randint(2, 6))
        rooms = [chance.randint(0, 3) for _ in places]
        segment = chance.choice((1, 1, 2, 3))
        tasks = segment * chance.randint(1, max(1, 7 // segment))
        level, is_required = chance.choice((*LEVELS, HOST)), chance.random() < 0.5
        most = chance.choice((0, 0, 1, 2))  # of each host or rack
        field = chance.choice(("host", "rack"))
        asked = spec(
            tasks=tasks, topology=Topology(level, is_required), segment=segment if segment > 1 else None
        )

        def allows(counts: Counts, places: Any = places, most: int = most, field: str = field) -> bool:
            return not most or max(tasks_at(places, counts, field).values()) <= most

        every = list(placements(rooms, tasks, allows))
        whole = [each for each in every if is_whole(places, each, level, segment)]
        if segment > 1:
            wanted = whole if is_required else whole or every
        else:
            wanted = [e for e in every if len(tasks_at(places, e, level)) == 1] if is_required else every
        rules: list[Rule] = [*level_rules(asked, (*LEVELS, HOST)), *([Most(field, most)] if most else [])]
        sites = [
            Site(room, {**place, **{level_field(each): place[each] for each in place}}, chance.randint(0, 3))
            for room, place in zip(rooms, places, strict=True)
        ]
        outcome = search(tasks, sites, rules)
        assert (outcome.counts is not None) == bool(wanted), seed
        assert outcome.is_proven, seed
        if outcome.counts is None:
            continue
        assert outcome.counts in wanted, seed
        at = (*LEVELS, HOST).index(level)
        outward = [(*LEVELS, HOST)[i] for i in range(at, -1, -1)]
        if (
            most and field == "rack" and level == HOST
        ):  # a limit of several groups: fewest groups of the level alone
            outward = [level]
        fewest = min(groups_used(places, each, outward) for each in wanted)
        assert groups_used(places, outcome.counts, outward) == fewest, seed
        used = tasks_at(places, outcome.counts, level)
        quotas = used if segment > 1 and outcome.counts in whole else None
        for inner in (*LEVELS, HOST)[at + 1 :]:
            # Of the groups that were chosen further outside, no fewer would do.
            alike = [
                each
                for each in wanted
                if set(tasks_at(places, each, level)) <= set(used)
                and (quotas is None or tasks_at(places, each, level) == quotas)
            ]
            mine, least = (
                min(groups_used(places, e, [inner])[0] for e in of) for of in ([outcome.counts], alike)
            )
            assert mine == least, (seed, inner)
            used_inner = set(tasks_at(places, outcome.counts, inner))
            wanted = [each for each in alike if set(tasks_at(places, each, inner)) <= used_inner]
        if fewest[0] == 1 and level == "rack":  # then the fewest nodes of all racks
            alone = [each for each in every if groups_used(places, each, outward) == fewest]
            nodes = min(groups_used(places, each, [HOST]) for each in alone)
            assert groups_used(places, outcome.counts, [HOST]) == nodes, seed
        feasible += 1
        divided += segment > 1 and outcome.counts not in whole
        limited += bool(most)
    assert feasible > count // 3
    assert divided > count // 100
    assert limited > count // 10


def world_of(chance: random.Random, count: int, **more: Any) -> tuple[Racks, list[dict[str, str]], list[int]]:
    """Return a cluster in a fabric, with the places and the numbers of cards of its nodes."""
    world = Racks(Settings.of("e", "m", report_stale_s=1e9, levels=LEVELS, aging_step_s=float("inf"), **more))
    places, sizes = fabric_of(chance, count), []
    attributes = [{key: value for key, value in place.items() if key != HOST} for place in places]
    world.places = {
        f"a{i}": Node(AgentId(f"a{i}"), f"a{i}.example", attributes=each) for i, each in enumerate(attributes)
    }
    world.register()
    for name in world.places:
        sizes.append(chance.randint(1, 4))
        world.node(name, *(gpu(f"{name}-{k}") for k in range(sizes[-1])), cpus=64)
    world.offer_again()
    return world, places, sizes


def asked_of(chance: random.Random) -> dict[str, Any]:
    """Draw what a gang asks for of the fabric."""
    segment = chance.choice((None, None, 2, 3))
    level, is_required = chance.choice((*LEVELS, HOST)), chance.random() < 0.7
    tasks = (segment or 1) * chance.randint(1, 3) if segment else chance.randint(2, 6)
    unique = (Constraint("hostname", Operator.UNIQUE),) if chance.random() < 0.2 else ()
    return {
        "tasks": max(2, tasks), "topology": Topology(level, is_required), "segment": segment, "gpus": 1,
        "cpus": 0.1, "mem_mib": 32, "constraints": unique,
    }  # fmt: skip


def is_met(places: Sequence[dict[str, str]], counts: Counts, asked: dict[str, Any]) -> bool:
    """Return whether a placement is one that a gang may have."""
    if asked["constraints"] and max(counts) > 1:
        return False
    level, segment = asked["topology"].level, asked["segment"]
    if not asked["topology"].is_required:
        return True
    if segment:
        return is_whole(places, counts, level, segment)
    return len(tasks_at(places, counts, level)) == 1


def places_by_rank(world: Racks, places: Sequence[dict[str, str]], level: str) -> list[str]:
    """Return the group of each task of the gang at a level, by rank."""
    numbers = {name: number for number, name in enumerate(world.places)}
    tasks = sorted(world.state.work.round_of(world.job("gang")), key=lambda task: task.rank)
    return [places[numbers[task.agent_id]][level] for task in tasks]


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.long)])
def test_gang_starts_in_its_levels_with_neighbouring_ranks_together(count: int) -> None:
    feasible = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, places, sizes = world_of(chance, chance.randint(2, 5))
        asked = asked_of(chance)
        every = [
            each for each in placements(sizes, asked["tasks"], lambda _: True) if is_met(places, each, asked)
        ]
        world.submit("gang", **asked)
        started = world.job("gang").state is not JobState.PENDING
        assert started == bool(every), seed
        feasible += started
        if not started:
            why = explain_job(View(world.state, world.settings, world.now), JobId("gang"))
            assert "it fits now" not in why.summary, (seed, why.summary)
            if asked["topology"].is_required and sum(sizes) >= asked["tasks"]:
                assert asked["topology"].level in why.summary, (seed, why.summary)
            continue
        for level in LEVELS:
            at = places_by_rank(world, places, level)
            runs = [group for i, group in enumerate(at) if i == 0 or at[i - 1] != group]
            assert len(runs) == len(set(runs)), (seed, level, at)
        level, segment = asked["topology"].level, asked["segment"]
        if asked["topology"].is_required and segment:
            at = places_by_rank(world, places, level)
            assert all(len(set(at[i : i + segment])) == 1 for i in range(0, len(at), segment)), (seed, at)
    assert feasible > count // 4


@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("has_tree", [False, True])
def test_gang_with_a_level_gets_room_of_others_exactly_where_it_would_fit(count: int, has_tree: bool) -> None:
    feasible = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, places, sizes = world_of(chance, chance.randint(2, 4))
        asked = asked_of(chance)
        if has_tree:
            world.document(prod=queue(max(sum(sizes), asked["tasks"])), dev=queue(0))
        for number in range(sum(sizes)):
            world.runs(f"other{number}", "dev" if has_tree else "default", cpus=0.1, mem_mib=32)
        wanted = any(
            is_met(places, each, asked) for each in placements(sizes, asked["tasks"], lambda _: True)
        )
        world.submit("gang", **asked, **({"queue": "prod"} if has_tree else {"priority": 500}))
        for _ in range(40):
            world.passes(1.0)
            world.obeys()
        started = world.job("gang").state is not JobState.PENDING
        assert started == wanted, seed
        feasible += started
        ended = sum(
            job.stopped > 0 or job.state is JobState.PENDING for job in world.state.work.jobs.values()
        )
        assert started or ended <= 1, "no job is stopped without use"
    assert feasible > count // 4


@pytest.mark.parametrize("count", [30, pytest.param(3000, marks=pytest.mark.long)])
def test_small_jobs_leave_groups_free_as_long_as_others_have_room(count: int) -> None:
    kept = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, places, sizes = world_of(chance, chance.randint(3, 6))
        used = Counter[str]()
        for number in range(sum(sizes)):
            free = {place["rack"] for place in places} - set(used)
            tasks = world.state.work.tasks.values()
            room = {
                place["rack"] for place, size, name in zip(places, sizes, world.places, strict=True)
                if size > sum(task.agent_id == name for task in tasks if task.job_id is not None)
            }  # fmt: skip
            world.submit(f"small{number}", gpus=1, cpus=0.1, mem_mib=32)
            (task,) = world.state.work.round_of(world.job(f"small{number}"))
            rack = places[list(world.places).index(task.agent_id)]["rack"]
            assert rack not in free or not room - free, (seed, number, rack)
            kept += rack not in free
            used[rack] += 1
            world.offer_again()
    assert kept > count
