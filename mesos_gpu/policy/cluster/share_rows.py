"""What the arrays of placement index of a node's GPUs for requests that ask for shares. Pure.

It says where to look: a share that is granted always has room by these rows, and not the other way round.
"""

from collections.abc import Iterable, Sequence

from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.capacity import NodeCapacity
from mesos_gpu.policy.cluster.shapes import Shape
from mesos_gpu.policy.sharing.parts import GpuPart

_MOST_OF_A_PART = (
    WHOLE - 1
)  # what a GPU counts as that is open, though no share be on it: nobody gets it wholly


def milli_of(request: ShareRequest, capacity_mib: int) -> int:
    """The memory that a share asks for, in thousandths, rounded down.

    Args:
        request: Of each GPU.
        capacity_mib: Of the largest GPU: of others it asks for more.
    """
    if request.memory_mib is None:
        return max(request.memory_milli, 1)
    return min(max(request.memory_mib * WHOLE // max(capacity_mib, 1), 1), _MOST_OF_A_PART)


def shape_for(request: ShareRequest, capacity_mib: int, shape: Shape) -> Shape:
    """The shape of a request for shares. `shape`: but for its GPUs' parts."""
    memory = milli_of(request, capacity_mib)
    return Shape(
        shape.cpu_milli,
        shape.mem_mib,
        shape.gpus,
        request.compute_milli,
        shape.models,
        gpu_memory_milli=memory,
    )


def largest_mib(nodes: Iterable[NodeCapacity]) -> int:
    """The memory for shares of the GPU that has most; 1: none can be shared."""
    sizes = (gpu.sharing.memory_mib for node in nodes for gpu in node.installed if gpu.sharing)
    return max(sizes, default=1)


def parts_of(node: NodeCapacity, gpus: Sequence[Gpu]) -> tuple[list[int], list[tuple[int, int]], list[bool]]:
    """Look at free GPUs of a node: what each counts as, what shares may have of it, and whether it is open."""
    parts = {part.gpu_id: part for part in node.parts}
    to_open = len(gpus) if not node.cover.gpus else max(node.free.gpus, 0)
    counts: list[int] = []
    free: list[tuple[int, int]] = []
    for gpu in gpus:
        part = parts.get(gpu.id)
        room = _room(gpu, part, node.compute_milli)
        if part is None and not to_open:
            room = 0, 0
        free.append(room)
        counts.append(WHOLE if part is None and min(room) else min(*room, _MOST_OF_A_PART))
    return counts, free, [gpu.id in parts for gpu in gpus]


def _room(gpu: Gpu, part: GpuPart | None, compute_milli: int) -> tuple[int, int]:
    """Thousandths of compute and of memory, rounded up."""
    sharing = gpu.sharing
    if sharing is None:
        return 0, 0
    if sharing.mig:  # what is free of an instance only its table says
        idle = len(sharing.instances) > len(part.taken if part else ()) or sharing.profiles
        return (WHOLE, WHOLE) if idle else (0, 0)
    if part is None:
        return compute_milli, WHOLE
    memory = -(-part.memory_mib * WHOLE // max(sharing.memory_mib, 1))
    return max(part.milli, 0), max(memory, 0)
