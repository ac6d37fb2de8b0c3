"""Placement policies: bundle and spread, and for comparison best fit and random. Pure.

No key depends on a node's name or position: equal nodes have equal keys, and the view breaks the ties.
"""

from typing import Final

import numpy as np

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.view import Index, Integers, View

_BITS: Final = 14
_MIN: Final = (1 << _BITS) - 1


class Simple:
    """Base of the simple policies, which keep no state and put a fraction on the GPU that it fits most tightly."""

    grain = 0

    def attach(self, view: View) -> None:
        """Start for a view, as `Policy.attach` does."""
        self.view = view

    def learn(self, shape: int) -> None:
        """Ignore the new shape: no state is kept."""

    def changed(self, row: int) -> None:
        """Ignore the change of a node: no state is kept."""

    def device(self, row: int, shape: int) -> int:
        """Choose the GPU for `Policy.device`: the one with the least left."""
        view, free = self.view, self.view.free[row]
        if view.parts is not None:
            return min((free[slot], slot) for slot in np.flatnonzero(view.fits(row, shape)).tolist())[1]
        milli = view.shapes[shape].gpu_milli
        return min((left, slot) for slot, left in enumerate(free) if left >= milli)[1]


class Bundle(Simple):
    """Policy that keeps whole nodes free: least free GPUs first, then, for work without GPUs, least free CPUs."""

    grain = _BITS

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return the keys for `Policy.keys`."""
        view = self.view
        processors = np.where(view.shape_milli[shapes] > 0, 0, np.minimum(view.cpu[rows] >> 4, _MIN))
        return np.asarray(processors + (view.total[rows] << _BITS))


class Spread(Simple):
    """Policy that shares the load: most free GPUs first, then most free CPUs."""

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return the keys for `Policy.keys`."""
        view = self.view
        most = view.most_free.shape[1] * WHOLE
        used = _MIN - np.minimum(view.cpu[rows] >> 4, _MIN)
        return np.asarray(used + ((most - view.total[rows]) << _BITS))


class BestFit(Simple):
    """Policy that prefers the least CPUs and GPUs left after the launch, each as a part of the largest node's."""

    def attach(self, view: View) -> None:
        """Start for a view, as `Policy.attach` does."""
        super().attach(view)
        self._cpu, self._gpu = int(view.cpu.max(initial=1)), int(view.total.max(initial=1))

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return the keys for `Policy.keys`."""
        view = self.view
        left = (view.cpu[rows] - view.shape_cpu[shapes]) / self._cpu
        left = (
            left + (view.total[rows] - view.shape_milli[shapes] * (view.shape_last[shapes] + 1)) / self._gpu
        )
        return np.asarray((left * 2**20).astype(np.int64).clip(0))


class Random(Simple):
    """Policy that chooses at random.

    Args:
        seed: Seed of the random numbers; equal seeds give equal choices.
    """

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return random keys for `Policy.keys`."""
        size = np.broadcast_shapes(np.shape(self.view.cpu[rows]), np.shape(self.view.shape_cpu[shapes]))
        return self._chance.integers(0, 2**30, size)
