"""Bundle, spread; and for comparison best fit and chance. Pure.

Ties are broken by what is free on a node and what is asked for, never by a node's name or place: nodes that are
alike are alike.
"""

from typing import Final

import numpy as np

from mesos_gpu.policy.cluster.view import Index, Integers, View

_SCATTER: Final = 0x9E3779B1  # 2^32 / golden ratio: near values land far apart (Knuth, TAOCP 3, 6.4)
TIES: Final = 16384


class Simple:
    """What the simple policies share: they fit fractions most tightly, and remember of shapes how to scatter ties."""

    def attach(self, view: View) -> None:
        """As `Policy.attach`."""
        self.view = view
        self._mixed = np.empty(0, dtype=np.int64)

    def learn(self, shape: int) -> None:
        """As `Policy.learn`."""
        want = self.view.shapes[shape]
        mixed = want.cpu_milli * 131 + want.mem_mib * 17 + want.milli * 1009
        self._mixed = np.append(self._mixed, mixed)

    def changed(self, row: int) -> None:
        """Nothing is remembered of nodes."""

    def scattered(self, rows: Index, shapes: Index) -> Integers:
        """From 0 below TIES: a tie-break that favours no kind of node. To prefer more or less processors or memory
        among the nodes that are as full costs half a percent of the GPUs on the trace of docs/simulation.md."""
        view = self.view
        found = self._mixed[shapes] + (view.cpu[rows] * 31 + view.mem[rows] * 7)
        found *= _SCATTER
        found >>= 13
        found &= TIES - 1
        return np.asarray(found)

    def device(self, row: int, shape: int) -> int:
        """As `Policy.device`: the GPU that the least would be left of."""
        milli, free = self.view.shapes[shape].gpu_milli, self.view.free[row]
        return min((left, slot) for slot, left in enumerate(free) if left >= milli)[1]


class Bundle(Simple):
    """Whole nodes are kept free: the node with the least free GPU goes first."""

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """As `Policy.keys`."""
        return np.asarray(self.scattered(rows, shapes) + self.view.total[rows] * TIES)


class Spread(Simple):
    """Load is shared: the node with the most free GPU goes first."""

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """As `Policy.keys`."""
        most = self.view.most_free.shape[1] * 1000
        return np.asarray(self.scattered(rows, shapes) + (most - self.view.total[rows]) * TIES)


class BestFit(Simple):
    """The node with the least left of processors and GPUs, each as a share of the largest node's."""

    def attach(self, view: View) -> None:
        """As `Policy.attach`."""
        super().attach(view)
        self._cpu, self._gpu = max(int(view.cpu.max()), 1), max(int(view.total.max()), 1)

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """As `Policy.keys`."""
        view = self.view
        left = (view.cpu[rows] - view.shape_cpu[shapes]) / self._cpu
        left = (
            left + (view.total[rows] - view.shape_milli[shapes] * (view.shape_last[shapes] + 1)) / self._gpu
        )
        return np.asarray((left * 2**20).astype(np.int64).clip(0))


class Random(Simple):
    """By chance, from a seed."""

    def __init__(self, seed: int) -> None:
        """The same seed gives the same choices."""
        self._chance = np.random.default_rng(seed)

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """As `Policy.keys`."""
        size = np.broadcast_shapes(np.shape(self.view.cpu[rows]), np.shape(self._mixed[shapes]))
        return self._chance.integers(0, 2**30, size)
