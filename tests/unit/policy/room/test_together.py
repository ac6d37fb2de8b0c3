"""Nodes and times of tasks that start together, against a look at each time at which something ends."""

from dataclasses import replace

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.resources import Resources, total
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.together import reserve_together
from tests.doubles.builders import spec
from tests.unit.policy.worlds import NOW, World, worlds

Rooms = list[tuple[int, NodeCapacity]]


def modest(world: World, tasks: int) -> Request:
    """A request of which most nodes have room for some."""
    asked = world.request()
    gpu = replace(asked.gpu, memory_mib=None, count=min(asked.gpu.count, 2))
    amounts = Resources(cpus=1, mem_mib=50, gpus=min(asked.resources.gpus, 2))
    return replace(asked, resources=amounts, gpu=gpu, tasks=tasks)


def rooms(request: Request, nodes: list[NodeCapacity], at: float, model: str | None) -> Rooms:
    """Count the tasks for which nodes have room when all that ends by then has ended; the largest first."""
    able = [node for node in nodes if as_new_as(node.driver, request.min_driver)]
    starts = [
        (room_for(request, node.without([a for a in node.allocations if a.ends_at <= at]), model).slots, node)
        for node in able
    ]
    return sorted(starts, key=lambda each: (-each[0], each[1].hostname, each[1].agent_id))


def soonest(request: Request, tasks: int, nodes: list[NodeCapacity]) -> tuple[float, str | None] | None:
    times = sorted({NOW, *(max(held.ends_at, NOW) for node in nodes for held in node.allocations)})
    for at in times:
        for model in request.gpu.models or (None,):
            if sum(slots for slots, _ in rooms(request, nodes, at, model)) >= tasks:
                return at, model
    return None


def test_tasks_that_start_together_are_kept_the_largest_nodes_at_the_soonest_time() -> None:
    starts = 0
    for world in worlds(80):
        nodes, tasks = world.nodes(), world.chance.randint(2, 4)
        request = modest(world, tasks)
        job = Job(JobId("gang"), spec(name="gang", tasks=tasks), NOW, 1)
        made, start = reserve_together(job, request, nodes, now=NOW), soonest(request, tasks, nodes)
        assert bool(made) == (start is not None), world.seed
        if start is None:
            continue
        starts += 1
        missing = tasks
        largest = [each for each in rooms(request, nodes, *start) if each[0]]
        for kept, (slots, node) in zip(made, largest, strict=False):
            count = min(slots, missing)
            missing -= count
            assert (kept.at, kept.agent_id, kept.hostname) == (start[0], node.agent_id, node.hostname)
            assert kept.resources == request.resources.scaled(count)
            ended = len(kept.awaited)
            assert kept.awaited == node.allocations[:ended], "the soonest to end"
            ready = node.without(kept.awaited)
            assert room_for(request, ready, start[1]).slots >= count
            if ended:
                assert room_for(request, node.without(node.allocations[: ended - 1]), start[1]).slots < count
            if request.gpu.share is None:
                assert kept.spare == ready.free - kept.resources
                assert len(kept.gpus) == kept.resources.gpus
                free = [card for group in ready.usable(request.gpu, start[1]) for card in group]
                assert kept.gpus <= {card.id for card in free}
                models = {card.model for card in free if card.id in kept.gpus}
                assert len(models) <= max(count, 1)
            else:
                whole, shares = kept.gpus, [gpu_id for gpu_id, _ in kept.shares]
                assert not whole & {part.gpu_id for part in node.parts}
                assert {part.gpu_id for part in kept.beside} == set(shares)
        assert missing == 0
        assert total(kept.resources for kept in made) == request.resources.scaled(tasks)
    assert starts > 20


def test_tasks_that_start_together_leave_alone_what_is_kept_for_earlier_ones() -> None:
    starts = 0
    for world in worlds(60):
        nodes = world.nodes()
        request = modest(world, 2)
        job = Job(JobId("gang"), spec(name="gang", tasks=2), NOW, 1)
        first = reserve_together(job, request, nodes, now=NOW)
        left = [node.keeping(first) for node in nodes]
        second = reserve_together(job, request, nodes, first, now=NOW)
        assert second == reserve_together(job, request, left, now=NOW)
        starts += bool(second)
    assert starts > 5
