"""Index of the nodes' GPUs for requests for shares. Pure.

The index only says where to look: every share that can be granted has room by these rows, but not every row with room
can grant it.
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
_MAX_WISHES = 64  # cached requests, each with the kinds of rows that could grant it
_MAX_KINDS = 64  # allowed number of kinds that no row has any more
_MAX_OF_A_PART = WHOLE - 1  # upper limit for an open GPU, even an unused one: it cannot be taken as a whole


def milli_of(request: ShareRequest, capacity_mib: int) -> int:
    """Return the memory that a share requests, in thousandths of a GPU's memory, rounded down.

    Args:
        request: Share of each GPU.
        capacity_mib: Memory of the largest GPU, in MiB; of smaller ones the request takes a larger part.
    """
    if request.memory_mib is None:
        return max(request.memory_milli, 1)
    return min(max(request.memory_mib * WHOLE // max(capacity_mib, 1), 1), _MAX_OF_A_PART)


def shape_for(request: ShareRequest, capacity_mib: int, shape: Shape) -> Shape:
    """Return the shape of a request for shares, from `shape` with the request's parts of GPUs."""
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
    """Return the largest memory for shares of any GPU, in MiB; 1 if no GPU can be shared."""
    sizes = (gpu.sharing.memory_mib for node in nodes for gpu in node.installed if gpu.sharing)
    return max(sizes, default=1)


class ShareRows:
    """GPUs of each row for shares: which are open, how shares on them are enforced, and what their hosts support.

    Args:
        rows: Node and GPU model of each row.
        width: Largest number of GPUs in a row.
    """

    def __init__(self, rows: Sequence[tuple[NodeCapacity, str]], width: int) -> None:
        self.largest_mib = largest_mib(node for node, _ in rows)  # unit in which shapes measure memory
        self._open = np.zeros((len(rows), width), dtype=bool)
        #: Numbers of the ways to enforce shares: method and owner.
        self._ways: dict[tuple[Method | None, str], int] = {(None, ""): 0}
        self._way = np.zeros((len(rows), width), dtype=np.int64)  # way of the shares on each GPU
        self._kinds: dict[tuple[int, tuple[Sharing | None, ...]], int] = {}  # numbers of the kinds of rows
        self._examples: list[tuple[NodeCapacity, str]] = []  # a node and model of each kind
        self._installed = [node.installed for node, _ in rows]
        self._kind = np.array([self._kind_of(node, model) for node, model in rows], dtype=np.int64)
        #: Whether each kind of row could grant a request if nothing ran there.
        self._granting: dict[Request, list[bool]] = {}

    def _kind_of(self, node: NodeCapacity, model: str) -> int:
        """Return the number of the row's kind; rows are of one kind if their hosts support the same."""
        kind = node.compute_milli, tuple([gpu.sharing for gpu in node.installed if gpu.model == model])
        if kind not in self._kinds:
            self._kinds[kind] = len(self._examples)
            self._examples.append((node, model))
        return self._kinds[kind]

    def is_beyond(self, node: NodeCapacity) -> bool:
        """Return whether the index must be rebuilt for a node.

        That is so if one of its GPUs has more memory for shares than any known one, or if hosts have changed so often
        (as with each MIG instance that they create) that most kinds are unused.
        """
        return largest_mib([node]) > self.largest_mib or len(self._examples) > _MAX_KINDS + 2 * len(
            self._kind
        )

    def state(self, row: int, node: NodeCapacity, model: str) -> Row:
        """Record which of a row's GPUs are open now, and return the row's free amounts."""
        if node.installed is not self._installed[row]:
            self._installed[row], self._kind[row] = node.installed, self._kind_of(node, model)
        counts, free, parts = parts_of(node, [gpu for gpu in node.gpus if gpu.model == model])
        self._open[row], self._way[row] = False, 0
        for slot, part in enumerate(parts):
            if part is not None:
                self._open[row, slot], self._way[row, slot] = True, self._way_of(part)
        missing = self._open.shape[1] - len(counts)
        padded = (*free, *[(0, 0)] * missing)
        return Row(
            node.free.cpu_milli, math.floor(node.free.mem_mib), (*counts, *[0] * missing), model, padded
        )

    def _way_of(self, part: GpuPart) -> int:
        """Return the number of the way in which the shares of a GPU are enforced."""
        owner = part.domain if part.method is not None and part.method.has_domain else ""
        return self._ways.setdefault((part.method, owner), len(self._ways))

    def granting(self, request: Request) -> Mask:
        """Return the mask of rows whose GPUs could give the requested shares if nothing ran there."""
        task = Request(NOTHING, GpuRequest(request.gpu.count, share=request.gpu.share), user=request.user)
        if task not in self._granting and len(self._granting) >= _MAX_WISHES:
            self._granting.clear()
        verdicts = self._granting.setdefault(task, [])
        for node, model in self._examples[len(verdicts) :]:
            verdicts.append(node.could_share(task.of_model(model)))
        return np.array(verdicts, dtype=bool)[self._kind]

    def narrowed(
        self, request: Request, room: Mask, masks: Sequence[Mask | None], *, fills: bool
    ) -> list[Mask | None]:
        """Restrict masks to rows in which a task can get its shares beside those that are there.

        Args:
            request: Requirements of the task.
            room: Mask of the GPUs, by row, that have room for a share.
            masks: Masks to restrict; None stands for all rows.
            fills: Whether rows in which no GPU must be opened come first.
        """
        assert request.gpu.share is not None, "the request is for whole GPUs"
        beside = neighbours(request.gpu.share, request.user, request.gpu.count)
        joined = np.zeros(len(self._ways), dtype=bool)
        joined[[0, *(self._ways[way] for way in beside if way in self._ways)]] = True
        gpus = room & joined[self._way]
        variants = [gpus, gpus & self._open] if fills else [gpus]
        able = [
            np.asarray(mask_of_gpus.sum(axis=1) >= request.gpu.count) for mask_of_gpus in reversed(variants)
        ]
        return [rows if mask is None else mask & rows for rows in able for mask in masks]


def parts_of(
    node: NodeCapacity, gpus: Sequence[Gpu]
) -> tuple[list[int], list[tuple[int, int]], list[GpuPart | None]]:
    """Look up free GPUs of a node.

    Returns:
        For each GPU the thousandths that it counts as, its free compute and memory, and its free part if it is open to
            shares.
    """
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
    """Return the free thousandths of compute and memory of a GPU, rounded up."""
    sharing = gpu.sharing
    if sharing is None:
        return 0, 0
    if sharing.mig:  # whether an instance is suitable is tested later, by `fit`
        idle = len(sharing.instances) > len(part.taken if part else ()) or sharing.profiles
        return (WHOLE, WHOLE) if idle else (0, 0)
    if part is None:
        return compute_milli, WHOLE
    memory = -(-part.memory_mib * WHOLE // max(sharing.memory_mib, 1))
    return max(part.milli, 0), max(memory, 0)
