"""Bundle, spread; and for comparison best fit and chance. Pure.

No key has anything of a node's name or place in it: nodes that are alike are alike. Ties are the view's to break.
"""

from typing import Final

import numpy as np

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.view import Index, Integers, View

_BITS: Final = 14
_MIN: Final = (1 << _BITS) - 1


class Simple:
    """What the simple policies share: they remember nothing, and fit fractions most tightly."""

    grain = 0

    def attach(self, view: View) -> None:
        """Attach to a view, as `Policy.attach` says."""
        self.view = view

    def learn(self, shape: int) -> None:
        """Nothing is remembered of shapes."""

    def changed(self, row: int) -> None:
        """Nothing is remembered of nodes."""

    def device(self, row: int, shape: int) -> int:
        """Choose, as `Policy.device` says, the GPU that the least would be left of."""
        view, free = self.view, self.view.free[row]
        if view.parts is not None:
            return min((free[slot], slot) for slot in np.flatnonzero(view.fits(row, shape)).tolist())[1]
        milli = view.shapes[shape].gpu_milli
        return min((left, slot) for slot, left in enumerate(free) if left >= milli)[1]


class Bundle(Simple):
    """Whole nodes are kept free: the node with the least free GPU goes first, for work without GPUs then the one with
    the least free processors."""

    grain = _BITS

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Keys as `Policy.keys` has them."""
        view = self.view
        processors = np.where(view.shape_milli[shapes] > 0, 0, np.minimum(view.cpu[rows] >> 4, _MIN))
        return np.asarray(processors + (view.total[rows] << _BITS))


class Spread(Simple):
    """Load is shared: the node with the most free GPU goes first, then the one with the most free processors."""

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Keys as `Policy.keys` has them."""
        view = self.view
        most = view.most_free.shape[1] * WHOLE
        used = _MIN - np.minimum(view.cpu[rows] >> 4, _MIN)
        return np.asarray(used + ((most - view.total[rows]) << _BITS))


class BestFit(Simple):
    """The node with the least left of processors and GPUs, each as a share of the largest node's."""

    def attach(self, view: View) -> None:
        """Attach to a view, as `Policy.attach` says."""
        super().attach(view)
        self._cpu, self._gpu = int(view.cpu.max(initial=1)), int(view.total.max(initial=1))

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Keys as `Policy.keys` has them."""
        view = self.view
        left = (view.cpu[rows] - view.shape_cpu[shapes]) / self._cpu
        left = (
            left + (view.total[rows] - view.shape_milli[shapes] * (view.shape_last[shapes] + 1)) / self._gpu
        )
        return np.asarray((left * 2**20).astype(np.int64).clip(0))


class Random(Simple):
    """A choice by chance, from a seed."""

    def __init__(self, seed: int) -> None:
        """Begin with a seed; the same seed gives the same choices."""
        self._chance = np.random.default_rng(seed)

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Keys as `Policy.keys` has them, by chance."""
        size = np.broadcast_shapes(np.shape(self.view.cpu[rows]), np.shape(self.view.shape_cpu[shapes]))
        return self._chance.integers(0, 2**30, size)
