"""What the arrays of placement index of a node's GPUs for requests that ask for shares. Pure.

It says where to look: a share that is granted always has room by these rows, and not the other way round.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.sharing.methods import neighbours
from mesos_gpu.policy.sharing.parts import GpuPart

Mask = npt.NDArray[np.bool_]
_MAX_WISHES = 64  # requests for shares of which it is known which nodes could grant them
_MAX_KINDS = 64  # of rows that are none's any more
_MAX_OF_A_PART = (
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
    return min(max(request.memory_mib * WHOLE // max(capacity_mib, 1), 1), _MAX_OF_A_PART)


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


class ShareRows:
    """What the GPUs of each row have for shares: which are open, how the shares on them are enforced, and what their
    hosts can do. A row is a node with one model of its GPUs."""

    def __init__(self, rows: Sequence[tuple[NodeCapacity, str]], width: int) -> None:
        """Look at what hosts can do; what is free is told by `state`. `width`: of the row with most GPUs."""
        self.largest_mib = largest_mib(node for node, _ in rows)  # what shapes are measured by
        self._open = np.zeros((len(rows), width), dtype=bool)
        self._ways: dict[tuple[Method | None, str], int] = {
            (None, ""): 0
        }  # of enforcing, with the owner; numbered
        self._way = np.zeros((len(rows), width), dtype=np.int64)  # of the shares on each GPU
        self._kinds: dict[tuple[int, tuple[Sharing | None, ...]], int] = {}  # of rows; numbered
        self._examples: list[tuple[NodeCapacity, str]] = []  # of each kind
        self._installed = [node.installed for node, _ in rows]
        self._kind = np.array([self._kind_of(node, model) for node, model in rows], dtype=np.int64)
        self._granting: dict[
            Request, list[bool]
        ] = {}  # by what one task asks for: kinds of rows that could grant it

    def _kind_of(self, node: NodeCapacity, model: str) -> int:
        """Rows are alike whose hosts can do the same."""
        kind = node.compute_milli, tuple([gpu.sharing for gpu in node.installed if gpu.model == model])
        if kind not in self._kinds:
            self._kinds[kind] = len(self._examples)
            self._examples.append((node, model))
        return self._kinds[kind]

    def is_beyond(self, node: NodeCapacity) -> bool:
        """Whether all is to be looked at anew: a GPU of it has more for shares than any that is known, or hosts have
        changed so often, as with each MIG instance that they make, that most kinds are of none any more."""
        return largest_mib([node]) > self.largest_mib or len(self._examples) > _MAX_KINDS + 2 * len(
            self._kind
        )

    def state(self, row: int, node: NodeCapacity, model: str) -> Row:
        """Look at what is free of a row's GPUs, now."""
        if node.installed is not self._installed[row]:
            self._installed[row], self._kind[row] = node.installed, self._kind_of(node, model)
        counts, free, parts = parts_of(node, [gpu for gpu in node.gpus if gpu.model == model])
        self._open[row], self._way[row] = False, 0
        for slot, part in enumerate(parts):
            if part is not None:
                self._open[row, slot], self._way[row, slot] = True, self._way_of(part)
        missing = self._open.shape[1] - len(counts)
        every = (*free, *[(0, 0)] * missing)
        return Row(
            node.free.cpu_milli, math.floor(node.free.mem_mib), (*counts, *[0] * missing), model, every
        )

    def _way_of(self, part: GpuPart) -> int:
        owner = part.domain if part.method is not None and part.method.has_domain else ""
        return self._ways.setdefault((part.method, owner), len(self._ways))

    def granting(self, request: Request) -> Mask:
        """Rows whose GPUs could be shared as is asked for, if nothing ran there."""
        wanted = Request(NOTHING, GpuRequest(request.gpu.count, share=request.gpu.share), user=request.user)
        if wanted not in self._granting and len(self._granting) >= _MAX_WISHES:
            self._granting.clear()
        known = self._granting.setdefault(wanted, [])
        for node, model in self._examples[len(known) :]:
            known.append(node.could_share(wanted.of_model(model)))
        return np.array(known, dtype=bool)[self._kind]

    def narrowed(
        self, request: Request, room: Mask, masks: Sequence[Mask | None], *, fills: bool
    ) -> list[Mask | None]:
        """Masks of rows, each without those whose GPUs a task cannot have for what others share of them.

        Args:
            request: What it needs.
            room: GPUs, by row, that have room for a share.
            masks: None: all rows.
            fills: Whether rows come first on which none need be opened.
        """
        assert request.gpu.share is not None, "it asks for whole GPUs"
        beside = neighbours(request.gpu.share, request.user, request.gpu.count)
        joined = np.zeros(len(self._ways), dtype=bool)
        joined[[0, *(self._ways[way] for way in beside if way in self._ways)]] = True
        gpus = room & joined[self._way]
        every = [gpus, gpus & self._open] if fills else [gpus]
        able = [np.asarray(some.sum(axis=1) >= request.gpu.count) for some in reversed(every)]
        return [each if mask is None else mask & each for each in able for mask in masks]


def parts_of(
    node: NodeCapacity, gpus: Sequence[Gpu]
) -> tuple[list[int], list[tuple[int, int]], list[GpuPart | None]]:
    """Look at free GPUs of a node: what each counts as, what shares may have of it, and what is free if it is open."""
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
        counts.append(WHOLE if part is None and min(room) else min(*room, _MAX_OF_A_PART))
    return counts, free, [parts.get(gpu.id) for gpu in gpus]


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
