"""Worth of free GPU space by the fractions in demand, and scarcity of GPU models. Pure.

To pack fractions into GPUs is a cutting-stock problem. Its linear program (Gilmore and Gomory, 1961) has a dual: a
price for each fraction such that no way to fill a GPU is worth more than one GPU. The worth of free space is then the
best total price of fractions that still fit, and a launch should reduce that worth as little as possible.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.shares.units import WHOLE

_ENOUGH: Final = 1e-7
_ROUNDS: Final = 10_000  # limit of columns generated; some dozens are needed
_SCARCEST: Final = 4.0  # upper limit, for models of which hardly anything is free
Floats = npt.NDArray[np.float64]


def worth(demand: Mapping[int, float]) -> Floats:
    """Return the worth of free space in a GPU: an array of 1001 numbers, from 0 for nothing to 1 for a whole GPU.

    Args:
        demand: Number of requests by fraction in thousandths; whole GPUs are ignored.
    """
    fractions = {milli: count for milli, count in sorted(demand.items()) if 0 < milli < WHOLE and count > 0}
    if not fractions:
        return np.append(np.zeros(WHOLE), 1.0)
    sizes = np.array(list(fractions))
    counts = np.array(list(fractions.values()), dtype=np.float64)
    patterns = np.diag((WHOLE // sizes).astype(np.float64))  # each column: numbers of each size in one GPU
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
    """Solve the knapsack for each space; return the best values, and the numbers of each size that fill a whole GPU."""
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
    """Return the scarcity of each model, from 0 if no request names it to above 1 if more is requested than is free.

    It is the part of the model's free GPUs that requests naming models would take if the total demand were as large as
    all free GPUs. A request that accepts several models counts for each in proportion to its free GPUs. Requests
    without models do not count, as these should stay off scarce models.

    Args:
        demand: Requested GPUs by accepted models; the key () stands for any.
        free: Free GPUs by model, in the unit of `demand` or another.
    """
    requested, total_free = sum(demand.values()), sum(free.values())
    scarce = dict.fromkeys(free, 0.0)
    for models, amount in demand.items():
        fit = [model for model in models if free.get(model, 0) > 0]
        total = sum(free[model] for model in fit)
        for model in fit:
            scarce[model] += amount / requested * total_free / total
    return {model: min(share, _SCARCEST) for model, share in scarce.items()}
