"""What free space of a GPU is worth, by which fractions are asked for, and how scarce each model is. Pure.

To pack fractions into GPUs is a cutting-stock problem. Its linear program (Gilmore and Gomory, 1961) has a dual: a
price for each fraction, such that no way to fill a GPU is worth more than one GPU. What is free of a GPU is then worth
the best that could still be put there, and a launch should take as little of that worth as it can.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.shares.units import WHOLE

_ENOUGH: Final = 1e-7
_ROUNDS: Final = 10_000  # columns; some dozens are needed
_SCARCEST: Final = 4.0  # a model of which hardly anything is free is not infinitely dear
Floats = npt.NDArray[np.float64]


def worth(demand: Mapping[int, float]) -> Floats:
    """The worth of free space: an array of 1001 numbers, from 0 for nothing to 1 for a whole GPU.

    Args:
        demand: How often each fraction is asked for, by its thousandths; whole GPUs are left out.
    """
    wanted = {milli: count for milli, count in sorted(demand.items()) if 0 < milli < WHOLE and count > 0}
    if not wanted:
        return np.append(np.zeros(WHOLE), 1.0)
    sizes = np.array(list(wanted))
    counts = np.array(list(wanted.values()), dtype=np.float64)
    patterns = np.diag((WHOLE // sizes).astype(np.float64))  # a column: how many of each size in one GPU
    for _ in range(_ROUNDS):
        prices = np.linalg.solve(patterns.T, np.ones(len(sizes))).astype(np.float64)
        value, pattern = _filled(sizes, prices)
        if value[WHOLE] <= 1 + _ENOUGH:
            break
        used, enters = np.linalg.solve(patterns, counts), np.linalg.solve(patterns, pattern)
        steps = np.full(len(sizes), np.inf)
        np.divide(used, enters, out=steps, where=enters > _ENOUGH)
        patterns[:, int(steps.argmin())] = pattern
    value = value.clip(0, 1)
    value[WHOLE] = 1.0
    return np.asarray(value)


def _filled(sizes: npt.NDArray[np.int64], prices: Floats) -> tuple[Floats, Floats]:
    """The best that fits into each space (a knapsack), and how the whole GPU is filled for it."""
    value, last = np.zeros(WHOLE + 1), np.full(WHOLE + 1, -1)
    for space in range(1, WHOLE + 1):
        value[space] = value[space - 1]
        fitting = int(np.searchsorted(sizes, space, "right"))
        if fitting:
            filled = value[space - sizes[:fitting]] + prices[:fitting]
            best = int(filled.argmax())
            if filled[best] > value[space]:
                value[space], last[space] = filled[best], best
    pattern, space = np.zeros(len(sizes)), WHOLE
    while space > 0:
        if last[space] < 0:
            space -= 1
        else:
            pattern[last[space]] += 1
            space -= int(sizes[last[space]])
    return value, pattern


def scarcity(demand: Mapping[tuple[str, ...], float], free: Mapping[str, float]) -> dict[str, float]:
    """The scarcity of each model: how much of it the requests that name models would take, as a share of what is free
    of it, if as much were asked for as is free of all models together. 0: nobody names it; above 1 they ask for more
    than there is.

    A request that may run on several models counts on each by how much is free of it. What may run anywhere counts
    nowhere: that is what should stay off scarce models.

    Args:
        demand: How many GPUs are asked for, by the models that will do; (): any.
        free: GPUs by model, in the unit of `demand` or another.
    """
    asked, there = sum(demand.values()), sum(free.values())
    scarce = dict.fromkeys(free, 0.0)
    for models, amount in demand.items():
        fit = [model for model in models if free.get(model, 0) > 0]
        total = sum(free[model] for model in fit)
        for model in fit:
            scarce[model] += amount / asked * there / total
    return {model: min(share, _SCARCEST) for model, share in scarce.items()}
