"""Least growth of expected fragmentation. Pure.

After FGD (Weng et al., "Beware of Fragmentation", USENIX ATC'23): the fragmentation of a node, F, is the idle GPU that
a request drawn from the recent mix could not use there: all of it where the request cannot run at all (or needs no
GPU), else what is idle on GPUs that are too small for it. A launch goes where F grows least. Beside F, what the launch
takes of the worth of free space counts (`prices`): FGD alone puts a fraction next to another that it leaves a useless
rest with. And a request that may run on several models pays for one that others must have: FGD alone fills such cards
with what could run anywhere.

What GPUs a node has free, of which model, is its *state*; few are met. For each state and each GPU request, what is
lost in every state that could follow is tabled once, by how many of the mix the node's processors are enough for. A
score is then a look into that table.
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

COVERED: Final = 0.95  # of the requests: rarer ones are left out of the mix
STEPS: Final = 100  # of the score: what differs by less is a tie, which the best fit wins
SHARE_OF_F: Final = 0.3  # of F in the score, where the worth of space counts wholly
SHARE_OF_SCARCITY: Final = 0.5  # of a GPU, for one of a model whose free GPUs are all asked for by name
_TIES: Final = 1 << 20
_NONE_FREE: Final = (0, 0, 0)
#: What is free of a GPU: of compute and of memory, in thousandths, and what it counts as: the less of the two, or
#: WHOLE if it can be taken wholly.
Free = tuple[int, int, int]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kind:
    """What F depends on in a request."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    memory_milli: int | None = None  # of each GPU's memory; None: as much as `gpu_milli`


class Mix(NamedTuple):
    """What is asked for: the most frequent kinds and their shares, which add up to 1; every fraction's count; the GPUs,
    in thousandths, by the models that will do."""

    kinds: Mapping[Kind, float]
    fractions: Mapping[int, float]
    models: Mapping[tuple[str, ...], float]


def mix_of(shapes: Iterable[Shape]) -> Mix:
    """Count the kinds of requests that together are 95 % of them."""
    every = Counter(shapes)
    counts = Counter[Kind]()
    for shape, count in every.items():
        compute, memory = (shape.gpu_milli, shape.gpu_memory_milli) if shape.gpus else (0, None)
        counts[Kind(shape.cpu_milli, shape.gpus, compute, shape.models, memory)] += count
    kinds: dict[Kind, int] = {}
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], repr(item[0]))):
        if sum(kinds.values()) >= COVERED * counts.total():
            break
        kinds[kind] = count
    fractions, models = Counter[int](), Counter[tuple[str, ...]]()
    for shape, count in every.items():
        if shape.gpus:
            models[shape.models] += count * shape.milli
        if shape.gpus == 1 and shape.each_milli < WHOLE:
            fractions[shape.each_milli] += count
    total = sum(kinds.values())
    return Mix({kind: count / total for kind, count in kinds.items()}, fractions, models)


class Fragmentation:
    """`Policy`."""

    def __init__(
        self,
        mix: Mix,
        *,
        share_of_f: float = SHARE_OF_F,
        share_of_worth: float = 1.0,
        share_of_scarcity: float = SHARE_OF_SCARCITY,
    ) -> None:
        """`share_of_f` 1 and the others 0 is FGD itself."""
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
        """Attach to a view, as `Policy.attach` says."""
        self.view = view
        self._most_cpu = int(view.cpu.max(initial=1))
        self._most_gpu = view.most_free.shape[1] * WHOLE
        width = len(self._kinds) + 1
        self._states: dict[Hashable, int] = {}
        # By state: the model, and what each of its GPUs has free, the freest first.
        self._free_of: list[tuple[int, list[int] | list[Free]]] = []
        self._now = np.zeros((256, width))  # by state: what is lost as it is
        self._requests: dict[_Request, int] = {}
        self._request_of = np.empty(0, dtype=np.int64)  # by shape
        self._milli_of = np.empty(0)  # by shape: of all its GPUs
        self._own = np.empty(0)  # by shape: what it takes itself, so that a perfect fit costs nothing
        self._first = np.zeros(
            (256, 0), dtype=np.int64
        )  # by state and request: where what could follow is tabled
        self._count = np.zeros((256, 0), dtype=np.int64)
        self._table, self._rows = np.zeros((1024, width)), 0
        self._suits: dict[int, Floats] = {}
        names = view.model_names()
        free = np.bincount(view.model, weights=view.total, minlength=len(names))
        self._scarce = scarcity(self._asked_by_models, dict(zip(names, free.tolist(), strict=True)))
        self._price = np.array([self._scarce[name] for name in names])[view.model] * self._share_of_scarcity
        self._any_scarce = bool(self._price.any())
        self._least_price = np.empty(0)  # by shape: of the models that will do, the least scarce one's
        self.state = np.array([self._state_of(row) for row in range(len(view.cpu))], dtype=np.int64)

    def learn(self, shape: int) -> None:
        """Learn a shape, as `Policy.learn` says."""
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
        """Take a change of a row in, as `Policy.changed` says."""
        self.state[row] = self._state_of(row)

    def _state_of(self, row: int) -> int:
        model, most_free = int(self.view.model[row]), self.view.most_free[row].tolist()
        free = None if self.view.parts is None else self._free_apart(row)
        key = (model, *most_free) if free is None else (model, *free)
        number = self._states.get(key)
        if number is None:
            number = self._states[key] = len(self._free_of)
            every = most_free if free is None else free
            self._free_of.append((model, every))
            if number == len(self._now):
                self._now = np.concatenate([self._now, np.zeros_like(self._now)])
                self._first = np.concatenate([self._first, np.zeros_like(self._first)])
                self._count = np.concatenate([self._count, np.zeros_like(self._count)])
            self._now[number] = self._lost(model, [every])[0]
            self._follow(number, self._requests)
        return number

    def _free_apart(self, row: int) -> list[Free]:
        """What the GPUs of a node have free where compute and memory are counted apart, the freest first."""
        assert self.view.parts is not None, "compute and memory are not counted apart"
        compute, memory = (each[row].tolist() for each in self.view.parts)
        return sorted(zip(compute, memory, self.view.free[row], strict=True), key=_most_first)

    def _follow(self, state: int, requests: Mapping["_Request", int]) -> None:
        """Table what would be lost in each state that these requests could make of this one."""
        model, free = self._free_of[state]
        every: list[Any] = []
        for request, index in requests.items():
            after = (
                _after(free, *request) if self.view.parts is None else _after_apart(_apart(free), *request)
            )
            self._first[state, index], self._count[state, index] = self._rows + len(every), len(after)
            every += after
        end = self._rows + len(every)
        while end >= len(
            self._table
        ):  # one row more than is used: where nothing follows, too, there is a first
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        if every:
            self._table[self._rows : end] = self._lost(model, every)
        self._rows = end

    def _lost(self, model: int, states: Sequence[Any]) -> Floats:
        """What is lost in each state, by how many kinds (the first ones) the processors are enough for."""
        every = np.array(states, dtype=np.int64)
        lost = self.fragmentation(model, every) * self._share_of_f
        free = (
            every if every.ndim == 2 else np.ascontiguousarray(every[:, :, 2])
        )  # sums depend on how they lie
        lost -= self._worth[free].sum(axis=1)[:, None]
        return lost

    def fragmentation(self, model: int, every: Integers) -> Floats:
        """F of each row of free GPUs, in thousandths of a GPU, by how many kinds the processors are enough for.

        Args:
            model: Of the GPUs.
            every: States by GPUs, by what is free of each; where compute and memory are apart, by `Free` of each.
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
        """F of all nodes together, in thousandths of a GPU."""
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
        """1 for each kind that needs a GPU and may run on that model."""
        if model not in self._suits:
            name = self.view.model_names()[model]
            may = [kind.gpus > 0 and (not kind.models or name in kind.models) for kind in self._kinds]
            self._suits[model] = np.array(may, dtype=np.float64)
        return self._suits[model]

    def keys(self, rows: Index, shapes: Index) -> Integers:
        """Keys as `Policy.keys` has them: 100 steps of a sigmoid of what is lost, as in FGD, then the least left on
        the node of processors and GPUs, each as a share of the largest node's."""
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
        """Choose, as `Policy.device` says, the GPU with which the least is lost, the tightest of those."""
        view, free = self.view, self.view.free[row]
        want, state, request = view.shapes[shape], self.state[row], self._request_of[shape]
        enough = int(np.searchsorted(self._cpu, view.cpu[row] - want.cpu_milli, "right"))
        first, count = int(self._first[state, request]), int(self._count[state, request])
        best = int(self._table[first : first + count, enough].argmin())
        if view.parts is None:
            return free.index(sorted({left for left in free if left >= want.gpu_milli})[best])
        compute, memory = (each[row].tolist() for each in view.parts)
        every = list(zip(compute, memory, free, strict=True))
        return every.index(_kinds_of(every, want.gpu_milli, want.memory_milli)[best])


_Request = tuple[int, int, int]  # GPUs, and the compute and the memory of each, in thousandths


def _after(free: Sequence[Any], gpus: int, milli: int, _: int) -> list[list[int]]:
    """What a request could make of GPUs (sorted, the freest first): one for each different GPU that it could be on."""
    every: list[int] = list(free)
    if gpus == 0:
        return [every]
    if milli == WHOLE:
        return [[*[0] * gpus, *every[gpus:]]] if every.count(WHOLE) >= gpus else []
    values = sorted({left for left in every if left >= milli})
    places = [(every.index(value), value - milli) for value in values]
    return [[*every[:at], left, *every[at + 1 :]] for at, left in places]


def _apart(free: Sequence[Any]) -> list[Free]:
    """What is free of GPUs, counted apart."""
    return [(left, left, left) if isinstance(left, int) else left for left in free]


def _after_apart(free: list[Free], gpus: int, milli: int, memory: int) -> list[list[Free]]:
    """Where compute and memory are counted apart: as `_after`; of several parts only what is made of the tightest."""
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
    fitting = [at for at, left in enumerate(free) if left[0] >= milli and left[1] >= memory]
    tightest = set(fitting[-gpus:])
    less = [_less(left, milli, memory) if at in tightest else left for at, left in enumerate(free)]
    return [less] if len(fitting) >= gpus else []


def _most_first(free: Free) -> tuple[int, int, int]:
    return -free[2], -free[0], -free[1]


def _kinds_of(free: Iterable[Free], milli: int, memory: int) -> list[Free]:
    """What differs in GPUs that have room for a part, the tightest first."""
    able = {left for left in free if left[0] >= milli and left[1] >= memory}
    return sorted(able, key=_most_first, reverse=True)


def _less(left: Free, milli: int, memory: int) -> Free:
    compute, of_memory = left[0] - milli, left[1] - memory
    return compute, of_memory, min(compute, of_memory)
