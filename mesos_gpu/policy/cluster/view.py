"""The cluster as arrays, so that one placement decision is one scan of a row of keys.

For each request shape and each node there is a key; the node with the smallest is best. A launch changes one node, so
it changes one column, for all shapes at once; a decision for a known shape is an argmin.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.shapes import Row, Shape

NEVER: Final = np.iinfo(np.int32).max  # the key of a node that cannot take the shape
_ANY: Final = -1  # all bits set: every model is accepted
SCATTER: Final = 0x9E3779B97F4A7C  # golden-ratio hash: near values land far apart (Knuth, TAOCP 3, 6.4)
Integers = npt.NDArray[np.int64]
Index = Any  # a number, or an array or slice of numbers


class Policy(Protocol):
    """Placement policy: gives keys, and chooses among the GPUs of a node.

    Attributes:
        grain: Number of low bits of a key that are ignored when nodes differ in their load of starting tasks.
    """

    grain: int

    def attach(self, view: "View") -> None:
        """Start for a view, which has no shapes yet."""

    def learn(self, shape: int) -> None:
        """Prepare for a new shape of the view."""

    def changed(self, row: int) -> None:
        """Update the policy's state after the free amounts of a node changed."""

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return keys of one node for many shapes, or of many nodes for one shape, from 0 to below NEVER.

        The keys of nodes that cannot take a shape are ignored.
        """

    def device(self, row: int, shape: int) -> int:
        """Return the index of the GPU on a node for a fraction."""


class View:
    """Arrays of the free amounts of all nodes, with keys by shape.

    Nodes are rows; shapes are numbered in order of their first appearance.

    Args:
        nodes: Rows of the view.
        policy: Placement policy that computes the keys.

    Attributes:
        cpu, mem, model: Free thousandths of CPUs, free MiB of memory and number of the GPU model of each node.
        total: Free thousandths of GPUs of each node.
        most_free: Free thousandths of each GPU of a node, sorted, the freest first.
        free: Free thousandths of each GPU of a node, in the order of the GPUs.
        parts: Free thousandths of compute and of memory of each GPU of a node; None while no shape requests them
            separately and both equal `free`. Otherwise `free` has the lower one.
        shapes: Shapes requested so far; the arrays shape_* have their amounts.
    """

    def __init__(self, nodes: Sequence[Row], policy: Policy) -> None:
        width = max([len(node.gpu_free_milli) for node in nodes] + [1])
        self.cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.mem = np.array([node.mem_mib for node in nodes], dtype=np.int64)
        self.free = [[*node.gpu_free_milli, *[0] * (width - len(node.gpu_free_milli))] for node in nodes]
        self.most_free = np.array([sorted(free, reverse=True) for free in self.free], dtype=np.int64)
        self.total = self.most_free.sum(axis=1)
        self._models: dict[str, int] = {}
        self.model = np.array([self._model(node.model) for node in nodes], dtype=np.int64)
        self.shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._restricted = False  # whether any shape asks for models
        none = np.empty(0, dtype=np.int64)
        self.shape_cpu = self.shape_mem = self.shape_last = self.shape_milli = self.shape_models = none
        self._compute_of = self._memory_of = none  # by shape
        self._is_part = np.empty(0, dtype=bool)  # by shape
        self.parts: tuple[Integers, Integers] | None = None
        self._given = {row: node.gpu_parts for row, node in enumerate(nodes) if node.gpu_parts}
        if self._given:
            self._part()
        self._keys = np.full((16, len(nodes)), NEVER, dtype=np.int32)
        self._changes = 0
        self._account = _account(self.cpu, self.mem, self.total)
        self._policy = policy
        policy.attach(self)

    def _model(self, name: str) -> int:
        """Return the number of a GPU model; a new name gets the next one."""
        return self._models.setdefault(name, len(self._models))

    def model_names(self) -> tuple[str, ...]:
        """Return the names of the GPU models, by number."""
        return tuple(self._models)

    def shape(self, shape: Shape) -> int:
        """Return the number of a shape; a new one is scored on all nodes."""
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self.shapes)
            self._add(shape, number)
        return number

    def _part(self) -> None:
        """Start to count compute and memory of GPUs separately."""
        compute = np.array(self.free, dtype=np.int64)
        self.parts = compute, compute.copy()
        for row, parts in self._given.items():
            self._set_parts(row, parts)
        self._given = {}

    def parts_of(self, row: int) -> tuple[tuple[int, int], ...]:
        """Return the free compute and memory of a node's GPUs, as in `Row`; empty if both equal `free`."""
        if self.parts is None:
            return ()
        return tuple(zip(*(array[row].tolist() for array in self.parts), strict=True))

    def _set_parts(self, row: int, parts: Sequence[tuple[int, int]]) -> None:
        """Set the free compute and memory of a node's GPUs."""
        assert self.parts is not None, "compute and memory are not counted apart"
        missing = [(0, 0)] * (self.most_free.shape[1] - len(parts))
        self.parts[0][row], self.parts[1][row] = np.array([*parts, *missing], dtype=np.int64).T

    def _add(self, shape: Shape, number: int) -> None:
        """Add a shape: extend the arrays by shape, and compute its keys on all nodes."""
        if shape.gpu_memory_milli is not None and self.parts is None:
            self._part()
        self.shapes.append(shape)
        self._compute_of = np.append(self._compute_of, shape.gpu_milli)
        self._memory_of = np.append(self._memory_of, shape.memory_milli)
        self._is_part = np.append(self._is_part, shape.is_part)
        self.shape_cpu = np.append(self.shape_cpu, shape.cpu_milli)
        self.shape_mem = np.append(self.shape_mem, shape.mem_mib)
        self.shape_last = np.append(self.shape_last, max(shape.gpus - 1, 0))
        self.shape_milli = np.append(self.shape_milli, shape.each_milli if shape.gpus else 0)
        models = sum(1 << self._model(name) for name in set(shape.models)) if shape.models else _ANY
        self.shape_models = np.append(self.shape_models, models)
        self._restricted |= models != _ANY
        if number == len(self._keys):
            self._keys = np.concatenate([self._keys, np.full_like(self._keys, NEVER)])
        self._policy.learn(number)
        rows = np.flatnonzero(self._able(number))
        if shape.gpus <= self.most_free.shape[1] and len(rows):
            self._keys[number, rows] = self._policy.keys(rows, number)

    def _able(self, shape: int) -> npt.NDArray[np.bool_]:
        """Return whether each node can take the shape."""
        last = min(self.shape_last[shape], self.most_free.shape[1] - 1)
        able = self.most_free[:, last] >= self.shape_milli[shape]
        if self.parts is not None and self._is_part[shape]:
            able = self.fits(slice(None), shape).sum(axis=1) > self.shape_last[shape]
        able &= self.cpu >= self.shape_cpu[shape]
        able &= self.mem >= self.shape_mem[shape]
        able &= ((1 << self.model) & self.shape_models[shape]) != 0
        return np.asarray(able)

    def fits(self, rows: Index, shape: int) -> npt.NDArray[np.bool_]:
        """Return whether each GPU of the rows has room for the shape's part, with separate compute and memory."""
        assert self.parts is not None, "compute and memory are not counted apart"
        want, (compute, memory) = self.shapes[shape], self.parts
        return np.asarray((compute[rows] >= want.gpu_milli) & (memory[rows] >= want.memory_milli))

    def key(self, row: int, shape: int) -> int:
        """Return the key of one node for a shape; NEVER if it cannot take it."""
        return int(self._keys[shape, row])

    def keys(self, shape: int) -> list[int]:
        """Return the key of each node for a shape; NEVER for a node that cannot take it."""
        keys: list[int] = self._keys[shape].tolist()
        return keys

    def best(
        self,
        shape: int,
        allowed: npt.NDArray[np.bool_] | None = None,
        draw: int | None = None,
        load: npt.NDArray[np.int64] | None = None,
    ) -> int | None:
        """Return the best node for a shape among the allowed ones; None if no node can take it.

        Args:
            shape: Number of the shape.
            allowed: Mask of the allowed nodes; None if all are allowed.
            draw: Number that grows with each placement, to break ties; None for this view's count of changes.
            load: Load of starting tasks by node; among nodes whose keys are equal without the low `Policy.grain` bits,
                the least load is preferred. None if no node is starting tasks.
        """
        keys = self._keys[shape] if allowed is None else np.where(allowed, self._keys[shape], NEVER)
        row = int(keys.argmin())
        least = keys[row]
        if least == NEVER:
            return None
        if load is not None:
            similar = (keys >> self._policy.grain == least >> self._policy.grain) & (keys != NEVER)
            keys = np.where(similar & (load == load[similar].min()), keys, NEVER)
            row = int(keys.argmin())
            least = keys[row]
        tied = np.flatnonzero(keys[row:] == least)
        return row + (
            int(tied[self._lot(row + tied, self._changes if draw is None else draw)]) if len(tied) > 1 else 0
        )

    def _lot(self, rows: Integers, draw: int) -> int:
        """Choose one of equally good nodes, by the number of placements, from their order by free amounts.

        So the choice is the same in every run, no name or position decides, and no kind of node is favoured: always
        preferring the one with more CPUs, or less memory, costs half a percent of the GPUs on the trace of
        docs/placement.md.
        """
        drawn = (draw * SCATTER >> 40) % len(rows)
        return int(self._account[rows].argpartition(drawn)[drawn])

    def take(self, row: int, shape: int) -> tuple[int, ...]:
        """Subtract a task from a node; return the indexes of the GPUs that the policy chooses for it."""
        want = self.shapes[shape]
        slots: tuple[int, ...] = ()
        if self._is_part[shape]:
            slots = (self._policy.device(row, shape),) if want.gpus == 1 else self._tightest(row, shape)
        elif want.gpus:
            slots = tuple([slot for slot, milli in enumerate(self.free[row]) if milli == WHOLE][: want.gpus])
        self._change(row, want, slots, -1)
        return slots

    def _tightest(self, row: int, shape: int) -> tuple[int, ...]:
        """Choose several GPUs for parts of them, those with the least free first."""
        slots = np.flatnonzero(self.fits(row, shape)).tolist()
        return tuple(sorted(slots, key=lambda slot: self.free[row][slot])[: self.shapes[shape].gpus])

    def device(self, row: int, shape: int) -> int:
        """Return the index of the GPU that the policy chooses for a part, on a node with room."""
        return self._policy.device(row, shape)

    def give(self, row: int, shape: int, slots: Sequence[int]) -> None:
        """Return the amounts of a task that has ended to its node."""
        self._change(row, self.shapes[shape], slots, 1)

    def set_row(self, row: int, state: Row) -> None:
        """Replace the free amounts of a node, which must keep its model and not exceed the largest number of GPUs."""
        free = [*state.gpu_free_milli, *[0] * (self.most_free.shape[1] - len(state.gpu_free_milli))]
        self.cpu[row], self.mem[row], self.free[row] = state.cpu_milli, state.mem_mib, free
        self.most_free[row] = sorted(free, reverse=True)
        self.total[row] = sum(free)
        if self.parts is not None:
            self._set_parts(row, state.gpu_parts or [(milli, milli) for milli in free])
        elif state.gpu_parts:
            self._given[row] = state.gpu_parts
            self._part()
        self._rescore(row)

    def _change(self, row: int, want: Shape, slots: Sequence[int], sign: int) -> None:
        """Add a task's amounts to a node (`sign` 1) or subtract them (-1), on the GPUs `slots`."""
        self.cpu[row] += sign * want.cpu_milli
        self.mem[row] += sign * want.mem_mib
        if slots:
            free = self.free[row]
            for slot in slots:
                if self.parts is None:
                    free[slot] += sign * want.gpu_milli
                else:
                    free[slot] = self._change_part(row, slot, want, sign)
            self.most_free[row] = sorted(free, reverse=True)
            self.total[row] = sum(free)
        self._rescore(row)

    def _change_part(self, row: int, slot: int, want: Shape, sign: int) -> int:
        """Add or subtract a shape's part of one GPU; return the lower of its free compute and memory."""
        assert self.parts is not None, "compute and memory are not counted apart"
        compute, memory = self.parts
        compute[row, slot] += sign * want.gpu_milli
        memory[row, slot] += sign * want.memory_milli
        return int(min(compute[row, slot], memory[row, slot]))

    def _rescore(self, row: int) -> None:
        """Recompute a node's keys for all shapes after a change."""
        self._changes += 1
        self._account[row] = _account(self.cpu[row], self.mem[row], self.total[row])
        self._policy.changed(row)
        count = len(self.shapes)
        width = self.most_free.shape[1]
        able = self.most_free[row].take(self.shape_last, mode="clip") >= self.shape_milli
        if self.parts is not None:
            able = np.where(self._is_part, self._rooms(row) > self.shape_last, able)
        able &= self.shape_cpu <= self.cpu[row]
        able &= self.shape_mem <= self.mem[row]
        if self._restricted:
            able &= (self.shape_models & (1 << self.model[row])) != 0
        if count and self.shape_last.max() >= width:  # more GPUs than any node has
            able &= self.shape_last < width
        self._keys[:count, row] = np.where(able, self._policy.keys(row, slice(0, count)), NEVER)

    def _rooms(self, row: int) -> Integers:
        """Return the number of GPUs of a node that have room for a part, by shape."""
        assert self.parts is not None, "compute and memory are not counted apart"
        compute, memory = self.parts[0][row, :, None], self.parts[1][row, :, None]
        return np.asarray(((compute >= self._compute_of) & (memory >= self._memory_of)).sum(axis=0))


def _account(cpu: Index, mem: Index, total: Index) -> Any:
    """Return all free amounts of a node as one number, equal for equal nodes."""
    return (cpu << 28) + (mem << 6) + total
