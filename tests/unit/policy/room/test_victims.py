"""Victims whose end makes room for tasks, against all choices, in random clusters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import NO_PRIORITY, Bound, Victim, worth
from mesos_gpu.policy.room.preemption import Rule, least_of, nodes_of_plan, plan, plan_of_one
from mesos_gpu.policy.sharing.parts import unshared
from tests.doubles.builders import gpu, request
from tests.unit.policy.worlds import World, worlds

Victims = Mapping[JobId, Victim]
Plan = tuple[Victim, ...] | None
WISH = PortWish("web", 80, 0)


def victims_of(world: World, nodes: Sequence[NodeCapacity]) -> Victims:
    """Most of the jobs."""
    names = sorted({held.job_id for node in nodes for held in node.allocations if held.job_id is not None})
    chance = world.chance
    return {
        name: Victim(name, chance.randint(0, 1), chance.choice((0, 1, 1, 2, 5)))
        for name in names
        if chance.random() < 0.9
    }


def room(ask: Request, nodes: Sequence[NodeCapacity], ended: set[JobId], model: str | None) -> int:
    left = [node.without([held for held in node.allocations if held.job_id in ended]) for node in nodes]
    return sum(room_for(ask, node, model).slots for node in left)


def choices(victims: Victims) -> Iterator[tuple[Victim, ...]]:
    line = sorted(victims.values(), key=lambda victim: victim.job_id)
    return (some for count in range(len(line) + 1) for some in combinations(line, count))


def cheapest(
    ask: Request, tasks: int, nodes: Sequence[NodeCapacity], victims: Victims, model: str | None
) -> Plan:
    able = (
        some
        for some in choices(victims)
        if room(ask, nodes, {victim.job_id for victim in some}, model) >= tasks
    )
    return min(able, key=worth, default=None)


def plainly_planned(
    ask: Request, nodes: Sequence[NodeCapacity], victims: Victims, allowed: Rule | None
) -> Plan:
    """The cheapest choice on each node, for each model, of those that the rule allows."""
    plans = []
    for node in nodes:
        models: Sequence[str | None] = ask.gpu.models or (None,)
        if not ask.gpu.models and ask.gpu.count and ask.gpu.share is None:
            shared = node.parts or any(held.share for held in node.allocations)
            models = (None,) if shared else sorted({card.model for card in node.installed})
        for model in models:
            chosen = cheapest(ask, 1, [node], victims, model)
            if chosen is not None and (allowed is None or not chosen or allowed(chosen)):
                plans.append(chosen)
    return min(plans, key=worth, default=None)


def short(chosen: Sequence[Victim]) -> bool:
    """A rule by which no two of the same priority end together."""
    return len({victim.priority for victim in chosen}) == len(chosen)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("allowed", [None, short])
def test_victims_for_one_task_are_the_cheapest_that_the_rule_allows(
    shares: bool, allowed: Rule | None
) -> None:
    plans = 0
    for world in worlds(120, shares=shares, ports=True, full=True):
        nodes = world.nodes(3)
        victims, ask = victims_of(world, nodes), replace(world.request(), min_driver=None)
        ask = replace(ask, ports=(WISH, replace(WISH, host_port=None)) * world.chance.randint(0, 2))
        want = plainly_planned(ask, nodes, victims, allowed)
        assert plan(ask, 1, nodes, victims, allowed) == want, world.seed
        bounds = [least_of(ask.gpu.count, len(node.gpus), node, victims) for node in nodes]
        line = [(bound, node) for bound, node in zip(bounds, nodes, strict=True) if bound is not None]
        line.sort(key=lambda each: (each[0].priority, each[0].cost))
        assert plan_of_one(ask, line.copy, victims, allowed) == want, world.seed
        plans += bool(want)
    assert plans > 20


@pytest.mark.parametrize("shares", [False, True])
def test_victims_for_several_tasks_make_room_and_are_nearly_always_the_cheapest(shares: bool) -> None:
    plans, dearer = 0, 0
    for world in worlds(120, shares=shares, ports=True, full=True):
        nodes, tasks = world.nodes(4), world.chance.randint(2, 4)
        victims, ask = victims_of(world, nodes), replace(world.request(), tasks=tasks, min_driver=None)
        chosen = plan(ask, tasks, nodes, victims)
        every = [cheapest(ask, tasks, nodes, victims, model) for model in ask.gpu.models or (None,)]
        best = min((some for some in every if some is not None), key=worth, default=None)
        assert (chosen is None) == (best is None), world.seed
        if chosen is not None and best is not None:
            plans += bool(best)
            dearer += worth(chosen) != worth(best)
            ended = {victim.job_id for victim in chosen}
            assert nodes_of_plan(ask, tasks, nodes, chosen) == plain_grounds(ask, tasks, nodes, ended)
            if not ask.gpu.models:
                assert plan(ask, tasks, nodes, victims, lambda some: False) == (None if chosen else ())
                assert plan(ask, tasks, nodes, victims, lambda some: True) == chosen
    assert plans > 15
    assert dearer <= 3, "the first task's victims are chosen without regard to the others"


def plain_grounds(
    ask: Request, tasks: int, nodes: Sequence[NodeCapacity], ended: set[JobId]
) -> tuple[AgentId, ...]:
    there, missing = [], tasks
    for node in sorted(nodes, key=lambda node: not any(held.job_id in ended for held in node.allocations)):
        slots = room(ask, [node], ended, None)
        if slots and missing > 0:
            there.append(node.agent_id)
            missing -= slots
    return tuple(there)


A, B = Victim(JobId("a"), 3, 10), Victim(JobId("b"), 1, 6)
CARDS = tuple(gpu(f"g{i}") for i in range(6))


def ground(*held: Allocation) -> NodeCapacity:
    return NodeCapacity(AgentId("n"), "n").holding(held)


def holds(name: str | None, *cards: int, share: Share | None = None) -> Allocation:
    job_id = None if name is None else JobId(name)
    return Allocation(job_id, Resources(gpus=len(cards)), tuple(CARDS[i] for i in cards), share=share)


def test_least_cost_of_room_is_that_of_parts_of_the_cheapest() -> None:
    victims = {victim.job_id: victim for victim in (A, B)}
    node = ground(
        holds("a", 0, 1), holds("b", 2), holds("b", 3), holds("other", 4), holds(None, 5), holds("a")
    )
    assert least_of(2, 2, node, victims) == least_of(1, 2, node, victims) == Bound(NO_PRIORITY, 0)
    assert least_of(1, 0, node, victims) == Bound(1, 6), "no less than the cheapest"
    assert least_of(3, 1, node, victims) == Bound(1, 6)
    assert least_of(3, 0, node, victims) == Bound(1, 6 + 5 - 1)
    assert least_of(4, 0, node, victims) == Bound(1, 16 - 1)
    assert least_of(5, 0, node, victims) is None
    assert least_of(3, 0, ground(holds("b", 0)), victims) is None
    share = Share(1, 1, 1, Method.TURNS)
    assert least_of(9, 0, ground(holds("a", 0, share=share)), victims) == Bound(NO_PRIORITY, 0)


def test_ports_that_victims_hold_make_room_for_tasks_that_take_one_each() -> None:
    """A port is free for the first of two tasks, and the second takes that of the cheaper victim."""
    ask = replace(request(1, 1), tasks=2)
    held = [
        Allocation(victim.job_id, Resources(cpus=1), ports=(PortRange(port, port),))
        for victim, port in ((A, 2), (B, 3))
    ]
    node = NodeCapacity(AgentId("n"), "n", Resources(cpus=9, mem_mib=9), ports=(PortRange(1, 1),))
    victims = {victim.job_id: victim for victim in (A, B)}
    assert plan(ask, 2, [node.holding(held)], victims) == (B,)
    assert plan(ask, 4, [node.holding(held)], victims) is None
    assert plan(ask, 2, [replace(node, ports=None).holding(held)], victims) == ()


def test_victims_on_a_card_with_many_shares_are_the_cheapest_that_cannot_be_left_out() -> None:
    card = replace(gpu("g0"), sharing=Sharing(1000, ((Ability.SHIM, ""),)))
    share = Share(100, 100, 100, Method.SHIM_WINDOWS)
    names = [JobId(f"j{i}") for i in range(10)]
    held = [Allocation(name, Resources(), (card,), share=share) for name in names]
    part = unshared(card).less(*[share] * 10)
    node = NodeCapacity(AgentId("n"), "n", Resources(cpus=9, mem_mib=99), (card,), (part,)).holding(held)
    victims = {name: Victim(name, 0, 50 - i) for i, name in enumerate(names)}
    ask = request(1, 1, 1, share=ShareRequest(300, 300))
    ask = replace(ask, resources=ask.resources.with_gpus(0))
    assert plan(ask, 1, [node], victims) == tuple(victims[name] for name in names[-3:])
