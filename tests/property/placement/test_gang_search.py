"""Gangs on small clusters, compared with all placements that Marathon's rules reach task by task."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.policy.cluster.constraints import Placed, violated
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.rules import rules_of
from mesos_gpu.policy.gangs.search import search
from mesos_gpu.policy.nodes.fields import value_of
from tests.doubles.builders import gpu
from tests.unit.engine.tenancy.lending import Tenants, queue

FIELDS: Final = ("hostname", "rack", "zone")
Counts = tuple[int, ...]


def constraints_of(chance: random.Random) -> tuple[Constraint, ...]:
    """Draw some constraints that compare the tasks of a job."""
    operators = (Operator.UNIQUE, Operator.CLUSTER, Operator.GROUP_BY, Operator.MAX_PER)
    made = []
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        operator = chance.choice(operators)
        value = "" if operator in (Operator.UNIQUE, Operator.CLUSTER) else str(chance.randint(1, 4))
        made.append(Constraint(chance.choice(FIELDS), operator, value))
    return tuple(made)


def nodes_of(chance: random.Random, count: int) -> list[Node]:
    """Draw nodes in racks and zones, which are nested half of the time."""
    racks, zones, are_nested = chance.randint(1, 4), chance.randint(1, 3), chance.random() < 0.5
    made = []
    for i in range(count):
        rack = chance.randrange(racks)
        zone = rack % zones if are_nested else chance.randrange(zones)
        places = {"rack": f"r{rack}", "zone": f"z{zone}"}
        made.append(Node(AgentId(f"a{i}"), f"a{i}.example", attributes=places))
    return made


def reachable(
    nodes: Sequence[Node],
    rooms: Sequence[int],
    tasks: int,
    constraints: Sequence[Constraint],
    placed: Sequence[Placed],
    instances: int,
) -> set[Counts]:
    """Return all placements of a gang's tasks to which the rules lead one task after the other."""
    level = {(0,) * len(nodes)}
    for _ in range(tasks):
        following = set()
        for counts in level:
            now = [*placed, *(Placed("", nodes[i]) for i, count in enumerate(counts) for _ in range(count))]
            for i, node in enumerate(nodes):
                if counts[i] < rooms[i] and not any(violated(c, node, now, instances) for c in constraints):
                    following.add((*counts[:i], counts[i] + 1, *counts[i + 1 :]))
        level = following
    return level


@pytest.mark.parametrize("count", [400, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_gang_search_finds_a_placement_exactly_where_rules_lead_to_one(count: int) -> None:
    feasible = larger = 0
    for seed in range(count):
        chance = random.Random(seed)
        nodes = nodes_of(chance, chance.randint(1, 5))
        rooms, tasks = [chance.randint(0, 4) for _ in nodes], chance.randint(2, 6)
        constraints = constraints_of(chance)
        placed = [Placed("", chance.choice(nodes)) for _ in range(chance.choice((0, 0, 0, 1, 2)))]
        instances = tasks + len(placed) + chance.choice((0, 0, 0, 1, 2))
        able = [
            i
            for i, node in enumerate(nodes)
            if not any(violated(c, node, placed, instances) for c in constraints)
        ]
        sites = [
            Site(rooms[i], {name: str(value_of(name, nodes[i])) for name in FIELDS}, chance.randint(0, 3))
            for i in able
        ]
        wanted = reachable(nodes, rooms, tasks, constraints, placed, instances)
        feasible += bool(wanted)
        rules = list(rules_of(constraints, placed, instances))
        for apart in (False, True):
            outcome = search(tasks, sites, rules, apart=apart)
            assert (outcome.counts is not None) == bool(wanted), seed
            assert outcome.is_proven, seed
            if outcome.counts is not None:
                placing = dict(zip(able, outcome.counts, strict=True))
                assert tuple([placing.get(i, 0) for i in range(len(nodes))]) in wanted, seed
                fewest = min(sum(map(bool, counts)) for counts in wanted)
                larger += not apart and sum(map(bool, outcome.counts)) > fewest
    assert feasible > count // 4
    assert larger == 0


class Racks(Tenants):
    """A cluster whose agents have the attributes of drawn nodes, and free cards that are offered again."""

    places: dict[str, Node]

    def offers(self, *offers: Offer) -> list[fx.Effect]:
        """Let offers arrive with the attributes of their agents."""
        return super().offers(
            *(replace(each, attributes=self.places[each.agent_id].attributes) for each in offers)
        )


def cluster_of(chance: random.Random) -> tuple[Racks, list[int]]:
    """Return a cluster with some cards in use, and the free cards of each node."""
    world = Racks(Settings.of("e", "m", report_stale_s=1e9))
    nodes = nodes_of(chance, chance.randint(2, 5))
    world.places = {node.id: node for node in nodes}
    world.register()
    free = []
    for number, node in enumerate(nodes):
        size = chance.randint(1, 4)
        world.node(node.id, *(gpu(f"{node.id}-{k}") for k in range(size)), cpus=64)
        used = chance.choice((0, 0, chance.randint(0, size)))
        if used:
            here = (Constraint("hostname", Operator.IS, node.hostname),)
            world.submit(f"before{number}", gpus=used, cpus=0.1, mem_mib=32, constraints=here)
        world.offer_again()
        free.append(size - used)
    return world, free


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.long)])
def test_gang_starts_in_the_next_match_exactly_where_it_fits(count: int) -> None:
    feasible = 0
    for seed in range(count):
        chance = random.Random(seed)
        world, free = cluster_of(chance)
        tasks, gpus, constraints = chance.randint(2, 5), chance.randint(1, 2), constraints_of(chance)
        nodes = [*world.places.values()]
        wanted = reachable(nodes, [each // gpus for each in free], tasks, constraints, (), tasks)
        world.submit("gang", tasks=tasks, gpus=gpus, cpus=0.1, mem_mib=32, constraints=constraints)
        started = world.job("gang").state is not JobState.PENDING
        assert started == bool(wanted), seed
        feasible += started
        if not started:
            why = explain_job(View(world.state, world.settings, world.now), JobId("gang"))
            assert "it fits now" not in why.summary, (seed, why.summary)
    assert feasible > count // 4


@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("has_tree", [False, True])
def test_gang_gets_room_of_others_exactly_where_it_would_fit_without_them(count: int, has_tree: bool) -> None:
    feasible = 0
    for seed in range(count):
        chance = random.Random(seed)
        world = Racks(Settings.of("e", "m", report_stale_s=1e9, aging_step_s=float("inf")))
        nodes = nodes_of(chance, chance.randint(2, 4))
        world.places, sizes = {node.id: node for node in nodes}, []
        world.register()
        for node in nodes:
            sizes.append(chance.randint(1, 4))
            world.node(node.id, *(gpu(f"{node.id}-{k}") for k in range(sizes[-1])), cpus=64)
        tasks, gpus, constraints = chance.randint(2, 4), chance.randint(1, 2), constraints_of(chance)
        if has_tree:
            world.document(prod=queue(max(sum(sizes), tasks * gpus)), dev=queue(0))
        for number in range(sum(sizes)):
            world.runs(f"other{number}", "dev" if has_tree else "default", cpus=0.1, mem_mib=32)
        wanted = reachable(nodes, [size // gpus for size in sizes], tasks, constraints, (), tasks)
        where = {"queue": "prod"} if has_tree else {"priority": 500}
        world.submit("gang", tasks=tasks, gpus=gpus, cpus=0.1, mem_mib=32, constraints=constraints, **where)
        for _ in range(40):
            world.passes(1.0)
            world.obeys()
        started = world.job("gang").state is not JobState.PENDING
        assert started == bool(wanted), seed
        feasible += started
        ended = sum(
            job.stopped > 0 or job.state is JobState.PENDING for job in world.state.work.jobs.values()
        )
        assert started or ended <= 1, "no job is stopped without use"
    assert feasible > count // 4
