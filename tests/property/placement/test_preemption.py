"""The plan to end jobs: it makes room, none of it can be left out, and on one node nothing is cheaper."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.room.preemption import plan
from tests.doubles.builders import gpu, request
from tests.property.examples import examples


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[NodeCapacity], dict[JobId, Victim]]:
    victims: dict[JobId, Victim] = {}
    grounds, serial = [], 0
    for node in range(draw(st.integers(1, 3))):
        shares = []
        for _ in range(draw(st.integers(0, 4))):
            job_id = JobId(f"j{draw(st.integers(0, 5))}")
            victims.setdefault(job_id, Victim(job_id, draw(st.integers(0, 2)), draw(st.integers(0, 5))))
            cards = tuple(
                gpu(f"g{serial + i}", draw(st.sampled_from(("A100", "T4"))))
                for i in range(draw(st.integers(0, 3)))
            )
            serial += len(cards)
            held = Resources(cpus=draw(st.integers(1, 3)), mem_mib=64, gpus=len(cards))
            shares.append(Allocation(job_id, held, cards))
        free = tuple(gpu(f"g{serial + i}") for i in range(draw(st.integers(0, 2))))
        serial += len(free)
        amounts = Resources(cpus=draw(st.integers(0, 3)), mem_mib=64, gpus=len(free))
        grounds.append(NodeCapacity(AgentId(f"a{node}"), f"h{node}", amounts, free).holding(shares))
    return grounds, victims


def asks() -> st.SearchStrategy[Request]:
    models = st.sampled_from(((), ("A100",), ("T4", "A100")))
    return st.builds(
        request, st.integers(1, 4).map(float), st.just(32.0), st.integers(0, 4), st.shared(models, key="m")
    )


def fits(ask: Request, tasks: int, grounds: list[NodeCapacity], ended: set[JobId]) -> bool:
    models = ask.gpu.models or (None,)
    left = [node.without([held for held in node.allocations if held.job_id in ended]) for node in grounds]
    return any(sum(room_for(ask, node, model).slots for node in left) >= tasks for model in models)


def cost(chosen: tuple[Victim, ...]) -> tuple[int, int, int]:
    return (
        max((v.priority for v in chosen), default=-(1 << 30)),
        sum(v.cost for v in chosen),
        len(chosen),
    )


@examples(165, 300)
@given(clusters(), asks(), st.integers(1, 4))
def test_a_plan_makes_room_and_none_of_it_can_be_left_out(
    cluster: tuple[list[NodeCapacity], dict[JobId, Victim]], ask: Request, tasks: int
) -> None:
    grounds, victims = cluster
    chosen = plan(ask, tasks, grounds, victims)
    if chosen is None:
        assert not fits(ask, tasks, grounds, set(victims))
        return
    ended = {victim.job_id for victim in chosen}
    assert fits(ask, tasks, grounds, ended)
    for spared in ended:
        assert not fits(ask, tasks, grounds, ended - {spared})


@examples(150, 300)
@given(clusters(), asks())
def test_plan_for_one_task_is_the_cheapest(
    cluster: tuple[list[NodeCapacity], dict[JobId, Victim]], ask: Request
) -> None:
    grounds, victims = cluster
    chosen = plan(ask, 1, grounds, victims)
    every = [
        some
        for count in range(len(victims) + 1)
        for some in combinations(victims.values(), count)
        if fits(ask, 1, grounds, {victim.job_id for victim in some})
    ]
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert cost(chosen) == min(map(cost, every))
