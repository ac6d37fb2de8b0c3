"""A blocked job is kept the best node of all that each alone could be kept for it, though few of them are looked at."""

from hypothesis import example, given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity, by_end
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.room.reservation import reserve
from tests.doubles.builders import spec

NOW = 100.0
HELD = st.lists(st.tuples(st.integers(1, 2), st.sampled_from([50.0, 110.0, ENDLESS])), max_size=3)


def node(number: int, free: int, cpus: int, held: list[tuple[int, float]]) -> NodeCapacity:
    """A node of so many free GPUs, and jobs that hold some until they end."""
    every = tuple(Gpu(GpuId(f"g{number}-{i}"), "T4", 16384, i, "", 0) for i in range(free + 8))
    cards = iter(every)
    gpus = tuple(next(cards) for _ in range(free))
    allocations = [
        Allocation(JobId(f"j{number}-{i}"), Resources(cpus=1, gpus=count), tuple(next(cards) for _ in range(count)),
                   ends_at=ends_at)
        for i, (count, ends_at) in enumerate(held)
    ]  # fmt: skip
    back = Resources(cpus=len(held), gpus=sum(count for count, _ in held))
    return NodeCapacity(
        AgentId(f"a{number}"), f"n{9 - number}", Resources(cpus=cpus, gpus=free), gpus,
        allocations=tuple(by_end(allocations)), given_back=back, installed=every,
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 2), HELD), min_size=2, max_size=6),
    st.integers(0, 2),
    st.integers(1, 2),
)
@example([(0, 1, [(1, 110.0)]), (0, 1, [(1, 110.0)])], 1, 1)  # of two that are alike the first by name
def test_blocked_job_reserves_the_best_node(
    nodes: list[tuple[int, int, list[tuple[int, float]]]], gpus: int, cpus: int
) -> None:
    there = [node(i, *each) for i, each in enumerate(nodes)]
    job = Job(JobId("big"), spec(name="big", gpus=gpus), NOW, 1)
    request = Request(Resources(cpus=cpus, gpus=gpus), GpuRequest(gpus))
    alone = [kept for each in there if (kept := reserve(job, request, [each], now=NOW)) is not None]
    best = min(alone, key=lambda kept: (kept.at, len(kept.awaited), kept.hostname), default=None)
    assert reserve(job, request, there, now=NOW) == best
