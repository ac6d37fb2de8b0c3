"""Memory and compute of a GPU count alike: where all of both are exchanged, placement decides the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import Fragmentation, mix_of
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import View

Part = tuple[int, int]  # compute and memory
FREE = st.sampled_from([0, 100, 300, 500, 700, WHOLE])
ASKED = st.sampled_from([100, 300, 500, 700])
rows = st.lists(st.tuples(FREE, FREE), min_size=1, max_size=3)
asks = st.lists(st.tuples(st.integers(1, 2), ASKED, ASKED), min_size=2, max_size=5)


def row(parts: list[Part]) -> Row:
    return Row(16_000, 16_000, tuple(min(part) for part in parts), "T4", tuple(parts))


def shape(gpus: int, compute: int, memory: int) -> Shape:
    return Shape(1000, 1000, gpus, compute, gpu_memory_milli=memory)


def chosen(cluster: list[list[Part]], asked: list[tuple[int, int, int]]) -> list[int | None]:
    kinds = [shape(*each) for each in asked]
    view = View([row(parts) for parts in cluster], Fragmentation(mix_of(kinds)))
    return [view.best(view.shape(kind)) for kind in kinds]


@settings(max_examples=60)
@given(st.lists(rows, min_size=2, max_size=5), asks)
def test_fragmentation_is_the_same_where_memory_and_compute_are_exchanged(
    cluster: list[list[Part]], asked: list[tuple[int, int, int]]
) -> None:
    exchanged = [[(memory, compute) for compute, memory in parts] for parts in cluster]
    other = [(gpus, memory, compute) for gpus, compute, memory in asked]
    assert chosen(cluster, asked) == chosen(exchanged, other)
