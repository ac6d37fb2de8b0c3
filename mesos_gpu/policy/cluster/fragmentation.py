"""Placement policy that increases expected fragmentation least. Pure.

After FGD (Weng et al., "Beware of Fragmentation", USENIX ATC'23): the fragmentation F of a node is the idle GPU
capacity that a request drawn from the recent mix could not use there: all of it if the request cannot run there (or
needs no GPU), else the capacity of GPUs that are too small for it. A launch goes where F grows least. Two terms are
added to F. The first is the worth of the free space that the launch takes (`prices`), because FGD alone combines
fractions that leave a useless rest. The second is a price for models that other requests need, because FGD alone fills
such cards with work that could run anywhere.

The *state* of a node is the free part of each GPU, with the model; few different states occur. For each state and each
GPU request, the loss in every possible next state is computed once and tabulated by the number of kinds in the mix for
which the node's CPUs suffice. A score is then a look-up in that table.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.prices import scarcity, worth
from mesos_gpu.policy.cluster.shapes import Shape
from mesos_gpu.policy.cluster.view import Index, Integers, View

COVERED: Final = 0.95  # part of the requests that the mix covers; rarer kinds are left out
STEPS: Final = 100  # steps of the score; within one step the best fit wins
SHARE_OF_F: Final = 0.3  # factor of F in the score; that of the worth of space is 1
#: Price, in GPUs, of a GPU of a model with scarcity 1 (all free ones requested by name).
SHARE_OF_SCARCITY: Final = 0.5
_TIES: Final = 1 << 20
_NONE_FREE: Final = (0, 0, 0)
#: Free thousandths of a GPU: compute, memory, and the size it counts as: the lower one, or WHOLE if it is wholly free.
Free = tuple[int, int, int]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties of a request on which fragmentation depends."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    memory_milli: int | None = None  # thousandths of each GPU's memory; None if equal to `gpu_milli`


class Mix(NamedTuple):
    """Statistics of recent requests.

    Attributes:
        kinds: Most frequent kinds with their relative frequencies, which add up to 1.
        fractions: Number of requests by fraction of one GPU, in thousandths.
        models: Requested thousandths of GPUs by accepted models.
    """

    kinds: Mapping[Kind, float]
    fractions: Mapping[int, float]
    models: Mapping[tuple[str, ...], float]


def mix_of(shapes: Iterable[Shape]) -> Mix:
    """Compute the mix of requests; the most frequent kinds that together make up 95 % are kept."""
    by_shape = Counter(shapes)
    counts = Counter[Kind]()
    for shape, count in by_shape.items():
        compute, memory = (shape.gpu_milli, shape.gpu_memory_milli) if shape.gpus else (0, None)
        counts[Kind(shape.cpu_milli, shape.gpus, compute, shape.models, memory)] += count
    kinds: dict[Kind, int] = {}
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], repr(item[0]))):
        if sum(kinds.values()) >= COVERED * counts.total():
            break
        kinds[kind] = count
    fractions, models = Counter[int](), Counter[tuple[str, ...]]()
    for shape, count in by_shape.items():
        if shape.gpus:
            models[shape.models] += count * shape.milli
        if shape.gpus == 1 and shape.each_milli < WHOLE:
            fractions[shape.each_milli] += count
    total = sum(kinds.values())
    return Mix({kind: count / total for kind, count in kinds.items()}, fractions, models)


class Fragmentation:
    """Placement policy that increases expected fragmentation least; implements `Policy`.

    Args:
        mix: Statistics of recent requests.
        share_of_f: Factor of fragmentation in the score; 1, with the other factors 0, is FGD itself.
        share_of_worth: Factor of the worth of free space.
        share_of_scarcity: Price, in GPUs, of a GPU of a model with scarcity 1.
    """

    def __init__(
        self,
        mix: Mix,
        *,
        share_of_f: float = SHARE_OF_F,
        share_of_worth: float = 1.0,
        share_of_scarcity: float = SHARE_OF_SCARCITY,
    ) -> None:
        kinds = sorted(mix.kinds, key=lambda kind: (kind.cpu_milli, repr(kind)))
        self._kinds = kinds
        self._share = np.array([mix.kinds[kind] for kind in kinds])
        self._cpu = np.array([kind.cpu_milli for kind in kinds], dtype=np.int64)
        self._gpus = np.array([kind.gpus for kind in kinds], dtype=np.int64)
        self._milli = np.array([kind.gpu_milli for kind in kinds], dtype=np.int64)
        memory = [kind.gpu_milli if kind.memory_milli is None else kind.memory_milli for kind in kinds]
        self._memory = np.array(memory, dtype=np.int64)
        self._in_part = np.minimum(self._milli, self._memory) < WHOLE
        self._share_of_f, self._share_of_scarcity = share_of_f, share_of_scarcity
        self._asked_by_models = mix.models
        self._worth = worth(mix.fractions) * WHOLE * share_of_worth

    grain = 0

    def attach(self, view: View) -> None:
        """Start for a view, as `Policy.attach` does."""
        self.view = view
        self._most_cpu = int(view.cpu.max(initial=1))
        self._most_gpu = view.most_free.shape[1] * WHOLE
        width = len(self._kinds) + 1
        self._states: dict[Hashable, int] = {}
        # By state: the model, and the free part of each GPU, the freest first.
        self._free_of: list[tuple[int, list[int] | list[Free]]] = []
        self._now = np.zeros((256, width))  # by state: loss before a launch
        self._requests: dict[_Request, int] = {}
        self._request_of = np.empty(0, dtype=np.int64)  # by shape
        self._milli_of = np.empty(0)  # by shape: thousandths of all its GPUs
        self._own = np.empty(0)  # by shape: what the launch itself takes, so that a perfect fit costs 0
        # By state and request: first row in `_table` of the possible next states, and their number.
        self._first = np.zeros((256, 0), dtype=np.int64)
        self._count = np.zeros((256, 0), dtype=np.int64)
        self._table, self._rows = np.zeros((1024, width)), 0
        self._suits: dict[int, Floats] = {}
        names = view.model_names()
        free = np.bincount(view.model, weights=view.total, minlength=len(names))
        self._scarce = scarcity(self._asked_by_models, dict(zip(names, free.tolist(), strict=True)))
        self._price = np.array([self._scarce[name] for name in names])[view.model] * self._share_of_scarcity
        self._any_scarce = bool(self._price.any())
        self._least_price = np.empty(0)  # by shape: price of the least scarce accepted model
        self.state = np.array([self._state_of(row) for row in range(len(view.cpu))], dtype=np.int64)

    def learn(self, shape: int) -> None:
        """Add a new shape, as `Policy.learn` does."""
        want = self.view.shapes[shape]
        key = (want.gpus, want.gpu_milli, want.memory_milli) if want.gpus else (0, 0, 0)
        index = self._requests.get(key)
        if index is None:
            index = self._requests[key] = len(self._requests)
            grown = np.zeros((len(self._first), 1), dtype=np.int64)
            self._first, self._count = np.hstack([self._first, grown]), np.hstack([self._count, grown])
            for state in range(len(self._free_of)):
                self._follow(state, {key: index})
        self._request_of = np.append(self._request_of, index)
        self._own = np.append(self._own, want.milli if self._worth[WHOLE] else 0)
        prices = [self._scarce[model] for model in want.models or self._scarce if model in self._scarce]
        self._least_price = np.append(self._least_price, min(prices, default=0.0) * self._share_of_scarcity)
        self._milli_of = np.append(self._milli_of, want.milli)

    def changed(self, row: int) -> None:
        """Update a node's state, as `Policy.changed` does."""
        self.state[row] = self._state_of(row)

    def _state_of(self, row: int) -> int:
        """Return the number of a node's state; a new state is entered into the tables."""
        model, most_free = int(self.view.model[row]), self.view.most_free[row].tolist()
        free = None if self.view.parts is None else self._free_apart(row)
        key = (model, *most_free) if free is None else (model, *free)
        number = self._states.get(key)
        if number is None:
            number = self._states[key] = len(self._free_of)
            free_parts = most_free if free is None else free
            self._free_of.append((model, free_parts))
            if number == len(self._now):
                self._now = np.concatenate([self._now, np.zeros_like(self._now)])
                self._first = np.concatenate([self._first, np.zeros_like(self._first)])
                self._count = np.concatenate([self._count, np.zeros_like(self._count)])
            self._now[number] = self._lost(model, [free_parts])[0]
            self._follow(number, self._requests)
        return number

    def _free_apart(self, row: int) -> list[Free]:
        """Return the free parts of a node's GPUs, the freest first, where compute and memory are counted separately."""
        assert self.view.parts is not None, "compute and memory are not counted apart"
        compute, memory = (array[row].tolist() for array in self.view.parts)
        return sorted(zip(compute, memory, self.view.free[row], strict=True), key=_most_first)

    def _follow(self, state: int, requests: Mapping["_Request", int]) -> None:
        """Tabulate the loss in each state that the requests could lead to from this one."""
        model, free = self._free_of[state]
        states: list[Any] = []
        for request, index in requests.items():
            after = (
                _after(free, *request) if self.view.parts is None else _after_apart(_apart(free), *request)
            )
            self._first[state, index], self._count[state, index] = self._rows + len(states), len(after)
            states += after
        end = self._rows + len(states)
        # Keep one row more than is used: a request without next states also has a first row.
        while end >= len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        if states:
            self._table[self._rows : end] = self._lost(model, states)
        self._rows = end

    def _lost(self, model: int, states: Sequence[Any]) -> Floats:
        """Return the loss in each state, by the number of kinds (the first ones) for which the CPUs suffice."""
        array = np.array(states, dtype=np.int64)
        lost = self.fragmentation(model, array) * self._share_of_f
        # Contiguous, as rounding of the sums depends on the memory layout.
        free = array if array.ndim == 2 else np.ascontiguousarray(array[:, :, 2])
        lost -= self._worth[free].sum(axis=1)[:, None]
        return lost

    def fragmentation(self, model: int, every: Integers) -> Floats:
        """Return F of each state, in thousandths of a GPU, by the number of kinds for which the CPUs suffice.

        Args:
            model: Number of the GPUs' model.
            every: Array of states by GPUs with the free thousandths, or with a `Free` each where compute and memory are
                counted separately.
        """
        free = every if every.ndim == 2 else every[:, :, 2]
        idle = free.sum(axis=1)
        small = free[:, :, None] < self._milli
        if every.ndim == 3:
            compute, memory = every[:, :, 0, None], every[:, :, 1, None]
            small = np.where(self._in_part, (compute < self._milli) | (memory < self._memory), small)
        fits = (~small).sum(axis=1) >= self._gpus
        on_small = (free[:, :, None] * small).sum(axis=1)
        gain = self._share * self._suit(model) * fits * (on_small - idle[:, None])
        f = np.zeros((len(free), len(self._kinds) + 1))
        np.cumsum(gain, axis=1, out=f[:, 1:])
        f += idle[:, None]
        return np.asarray(f, dtype=np.float64)

    def fragmented(self) -> float:
        """Return F of all nodes together, in thousandths of a GPU."""
        view = self.view
        enough = np.searchsorted(self._cpu, view.cpu, "right")
        by_node = (
            self.fragmentation(int(view.model[row]), np.array([self._free_of[self.state[row]][1]]))[
                0, enough[row]
            ]
            for row in range(len(view.cpu))
        )
        return float(sum(by_node))

    def _suit(self, model: int) -> Floats:
        """Return 1 for each kind that needs a GPU and accepts the model, else 0."""
        if model not in self._suits:
            name = self.view.model_names()[model]
            may = [kind.gpus > 0 and (not kind.models or name in kind.models) for kind in self._kinds]
            self._suits[model] = np.array(may, dtype=np.float64)
        return self._suits[model]

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Return the keys for `Policy.keys`.

        The key has 100 steps of a sigmoid of the loss, as in FGD, then what is free on the node of CPUs and GPUs, each
        as a part of the largest node's.
        """
        view = self.view
        state, request, cpu = self.state[rows], self._request_of[shapes], view.cpu[rows]
        before = self._now[state, self._cpu.searchsorted(cpu, "right")]
        enough = self._cpu.searchsorted(cpu - view.shape_cpu[shapes], "right")
        first, count = self._first[state, request], self._count[state, request]
        least = self._table[first, enough]
        for choice in range(1, int(count.max(initial=0))):
            other = self._table[first + np.minimum(choice, np.maximum(count - 1, 0)), enough]
            least = np.minimum(least, other)
        growth = least - before - self._own[shapes]
        if self._any_scarce:
            growth += (self._price[rows] - self._least_price[shapes]) * self._milli_of[shapes]
        score = (STEPS / (1.0 + np.exp(growth / WHOLE))).astype(np.int64)
        left = (cpu - view.shape_cpu[shapes]) / self._most_cpu + view.total[rows] / self._most_gpu
        return np.asarray((STEPS - score) * _TIES + (left * (_TIES / 2 - 1)).astype(np.int64))

    def device(self, row: int, shape: int) -> int:
        """Choose the GPU for `Policy.device`: the one with the least loss, and of several the tightest."""
        view, free = self.view, self.view.free[row]
        want, state, request = view.shapes[shape], self.state[row], self._request_of[shape]
        enough = int(np.searchsorted(self._cpu, view.cpu[row] - want.cpu_milli, "right"))
        first, count = int(self._first[state, request]), int(self._count[state, request])
        best = int(self._table[first : first + count, enough].argmin())
        if view.parts is None:
            return free.index(sorted({left for left in free if left >= want.gpu_milli})[best])
        compute, memory = (array[row].tolist() for array in view.parts)
        parts = list(zip(compute, memory, free, strict=True))
        return parts.index(_kinds_of(parts, want.gpu_milli, want.memory_milli)[best])


_Request = tuple[int, int, int]  # number of GPUs, and thousandths of compute and of memory of each


def _after(free: Sequence[Any], gpus: int, milli: int, _: int) -> list[list[int]]:
    """Return the states that a request can lead to, one for each different GPU that it could use.

    `free` is sorted, the freest GPU first.
    """
    sizes: list[int] = list(free)
    if gpus == 0:
        return [sizes]
    if milli == WHOLE:
        return [[*[0] * gpus, *sizes[gpus:]]] if sizes.count(WHOLE) >= gpus else []
    values = sorted({left for left in sizes if left >= milli})
    places = [(sizes.index(value), value - milli) for value in values]
    return [[*sizes[:at], left, *sizes[at + 1 :]] for at, left in places]


def _apart(free: Sequence[Any]) -> list[Free]:
    """Return free parts in the form with separate compute and memory."""
    return [(left, left, left) if isinstance(left, int) else left for left in free]


def _after_apart(free: list[Free], gpus: int, milli: int, memory: int) -> list[list[Free]]:
    """Return the next states as `_after` does, with separate compute and memory; several parts use the tightest
    GPUs."""
    if gpus == 0:
        return [free]
    if min(milli, memory) == WHOLE:
        whole = sum(left[2] == WHOLE for left in free) >= gpus
        return [[*[_NONE_FREE] * gpus, *free[gpus:]]] if whole else []
    if gpus > 1:
        return _after_several(free, gpus, milli, memory)
    places = [(free.index(left), _less(left, milli, memory)) for left in _kinds_of(free, milli, memory)]
    return [[*free[:at], left, *free[at + 1 :]] for at, left in places]


def _after_several(free: list[Free], gpus: int, milli: int, memory: int) -> list[list[Free]]:
    """Return the state after parts of several GPUs were taken from the tightest ones; empty if too few fit."""
    fitting = [at for at, left in enumerate(free) if left[0] >= milli and left[1] >= memory]
    tightest = set(fitting[-gpus:])
    less = [_less(left, milli, memory) if at in tightest else left for at, left in enumerate(free)]
    return [less] if len(fitting) >= gpus else []


def _most_first(free: Free) -> tuple[int, int, int]:
    return -free[2], -free[0], -free[1]


def _kinds_of(free: Iterable[Free], milli: int, memory: int) -> list[Free]:
    """Return the different free parts in which a request has room, the tightest first."""
    able = {left for left in free if left[0] >= milli and left[1] >= memory}
    return sorted(able, key=_most_first, reverse=True)


def _less(left: Free, milli: int, memory: int) -> Free:
    """Return the free parts of a GPU after a part was taken."""
    compute, of_memory = left[0] - milli, left[1] - memory
    return compute, of_memory, min(compute, of_memory)
