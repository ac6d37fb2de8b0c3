"""Whether it fits: what is counted, what is decided and what is said agree, whatever the node and the request."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.fit import Fit, Misfit, beside_all, fit, misfits, room_for, soonest
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.hurdles import hurdles
from tests.doubles.builders import gpu, request
from tests.property.examples import examples

MODELS = ("A100", "T4")


@st.composite
def nodes(draw: st.DrawFn) -> NodeCapacity:
    """Healthy and sick GPUs of two models, some held by jobs that end, and a reservation of some."""
    healths = draw(st.lists(st.sampled_from((Health.OK, Health.OK, Health.SICK)), max_size=6))
    installed = tuple(
        replace(gpu(f"g{i}", draw(st.sampled_from(MODELS)), health=health), compute_capability="8.0")
        for i, health in enumerate(healths)
    )
    well = [card for card in installed if card.health is Health.OK]
    count = draw(st.integers(0, len(well)))
    free = Resources(
        cpus=draw(st.integers(0, 8)),
        mem_mib=draw(st.integers(0, 512)),
        gpus=count,
        disk_mib=draw(st.integers(0, 9)),
    )
    held = [
        Allocation(JobId(f"j{i}"), Resources(cpus=1, mem_mib=64, gpus=1), (card,), ends_at=float(i))
        for i, card in enumerate(well[count:])
    ]
    ports = draw(st.sampled_from((None, (), (PortRange(31000, 31000),), (PortRange(31000, 31009),))))
    node = NodeCapacity(
        AgentId("a"), "a", free, tuple(well[:count]), ports=ports, installed=installed,
        driver=draw(st.sampled_from((None, "470", "550"))), holders={card.id: "j" for card in well[count:]},
    )  # fmt: skip
    if not draw(st.booleans()):
        return node.holding(held)
    spare = Resources(cpus=draw(st.integers(0, 8)), mem_mib=512, disk_mib=9)
    ids = frozenset(card.id for card in well[: draw(st.integers(0, count))])
    first = Reservation(JobId("first"), "q", Resources(cpus=1), ENDLESS, AgentId("a"), "a", ids, spare)
    return replace(node.holding(held), kept=(first,))


requests = st.builds(
    request,
    st.sampled_from((0.5, 1.0, 3.0)),
    st.sampled_from((32.0, 128.0)),
    st.integers(0, 4),
    st.sampled_from(((), ("T4",), ("T4", "A100"))),
    st.sampled_from((None, None, "535")),
    disk_mib=st.sampled_from((0.0, 0.0, 5.0)),
    tasks=st.sampled_from((1, 3)),
    memory_mib=st.sampled_from((None, None, 81_920, 99_999)),
    compute_capability=st.sampled_from((None, "8.0", "9.0")),
)


@examples(140, 300)
@given(nodes(), requests)
def test_there_is_room_exactly_if_nothing_keeps_a_task_off(node: NodeCapacity, wanted: Request) -> None:
    reasons, answer = list(misfits(wanted, node)), fit(wanted, node)
    slots = room_for(wanted, beside_all(node)).slots
    assert (slots > 0) == (not reasons) == isinstance(answer, Fit)
    if isinstance(answer, Misfit):
        assert answer == reasons[0]
        order = [list(Stage).index(reason.stage) for reason in reasons]
        assert order == sorted(set(order))
    said = hurdles(wanted, node, now=0.0)
    assert [hurdle.stage for hurdle in said] == [reason.stage for reason in reasons]
    assert all(hurdle.words for hurdle in said)


@examples(140, 300)
@given(nodes(), requests)
def test_room_is_for_as_many_tasks_as_can_be_taken(node: NodeCapacity, wanted: Request) -> None:
    node, wanted = replace(node, ports=None), replace(wanted, tasks=1)
    slots, taken = room_for(wanted, node).slots, 0
    while isinstance(fit(wanted, replace(node, kept=())), Fit):
        groups = node.usable(wanted.gpu) if wanted.gpu.count else [[]]
        group = max(groups, key=len)
        node = node.minus(wanted.resources, [card.id for card in group[: wanted.gpu.count]])
        taken += 1
    assert taken == slots


@examples(145, 300)
@given(nodes(), requests, st.sampled_from((None, *MODELS)))
def test_the_fewest_ends_that_make_room_are_found(
    node: NodeCapacity, wanted: Request, model: str | None
) -> None:
    wanted = replace(wanted, tasks=1, gpu=replace(wanted.gpu, models=())).of_model(model)
    node = replace(node, ports=None, driver="550")
    if model is None and wanted.gpu.count:
        return
    ended = soonest(wanted, node, model, (ENDLESS, 99))
    counts = [
        n
        for n in range(len(node.allocations) + 1)
        if room_for(wanted, node.without(node.allocations[:n]), model).slots
    ]
    assert ended == min(counts, default=None)
