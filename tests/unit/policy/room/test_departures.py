"""Departures of jobs before a request fits on a node, and GPUs of a launch, against a look at all choices."""

from itertools import combinations

from mesos_gpu.model.ids import JobId
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import CandidateNode, Movable, chosen, least_departures
from tests.unit.policy.worlds import World, worlds


def candidate_of(world: World, node: NodeCapacity) -> CandidateNode:
    """The node, of which all that it holds may go."""
    tasks = []
    for number, held in enumerate(node.allocations):
        asked = Request(held.resources)
        name = f"m{number}"
        tasks.append(Movable(JobId(name), name, asked, held.gpus, 1.0, share=held.share))
    return CandidateNode(node, tuple(tasks))


def fits(request: Request, candidate: CandidateNode, gone: tuple[Movable, ...]) -> bool:
    for task in gone:
        candidate = candidate.without(task)
    models: tuple[str | None, ...] = request.gpu.models or (*candidate.node.models, None)
    return any(room_for(request, candidate.node, model).slots for model in models)


def fewest(request: Request, candidate: CandidateNode) -> int | None:
    tasks = candidate.tasks
    return next(
        (
            count
            for count in range(len(tasks) + 1)
            if any(fits(request, candidate, gone) for gone in combinations(tasks, count))
        ),
        None,
    )


def test_least_departures_are_no_more_than_it_takes_and_nearly_always_as_many() -> None:
    fitting, fewer = 0, 0
    for world in worlds(80, shares=False, full=True):
        for node in world.nodes():
            candidate, request = candidate_of(world, node), world.request()
            said, want = least_departures(request, candidate), fewest(request, candidate)
            assert said is None or want is None or said <= want, world.seed
            assert (said == 0) == (want == 0), world.seed
            fitting += bool(want)
            fewer += said != want
    assert fitting > 15
    assert fewer <= 3


def test_least_departures_from_shared_gpus_say_whether_any_are_needed() -> None:
    seen = set()
    for world in worlds(60, full=True):
        for node in world.nodes():
            candidate, request = candidate_of(world, node), world.request()
            if request.gpu.share is None and not node.parts:
                continue
            want = fewest(request, candidate)
            seen.add(want)
            assert least_departures(request, candidate) == (None if want is None else min(want, 1)), (
                world.seed
            )
    assert {None, 0, 1} <= seen


def test_launch_gets_gpus_of_the_first_model_with_room_the_smallest_first() -> None:
    fitting = 0
    for world in worlds(60, shares=False):
        for node in world.nodes():
            request = world.request()
            models = request.gpu.models or node.models if request.gpu.count else (None,)
            able = [model for model in models if room_for(request, node, model).slots]
            place = chosen(request, node)
            assert (place is None) == (not able), world.seed
            if place is None:
                continue
            good = [card for group in node.usable(request.gpu, able[0]) for card in group]
            good.sort(key=lambda card: (card.memory_mib, card.minor))
            want = tuple(card.id for card in good[: request.gpu.count]) if request.gpu.count else ()
            assert (place.agent_id, place.gpus, place.share, place.opens) == (node.agent_id, want, None, ())
            fitting += bool(want)
    assert fitting > 15
