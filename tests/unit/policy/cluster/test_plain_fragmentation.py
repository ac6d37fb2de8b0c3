"""Keys, choices of GPUs and F of placement by fragmentation, against the plain definition, without tables."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.fragmentation import (
    SHARE_OF_F,
    SHARE_OF_SCARCITY,
    Fragmentation,
    Free,
    Kind,
    Mix,
    mix_of,
)
from mesos_gpu.policy.cluster.prices import scarcity, worth
from mesos_gpu.policy.cluster.shapes import Row, Shape
from mesos_gpu.policy.cluster.view import View

MODELS = ("T4", "A10")
Cards = list[Free]  # of one node


class Plain:
    """The score of a launch, as docs/placement.md has it."""

    def __init__(self, mix: Mix, rows: list[Row], shares: tuple[float, float, float]) -> None:
        self.mix, self.names = mix, [row.model for row in rows]
        self.share_of_f, share_of_worth, share_of_scarcity = shares
        self.worth = worth(mix.fractions) * WHOLE * share_of_worth
        free = dict.fromkeys(self.names, 0.0)
        for row in rows:
            free[row.model] += sum(row.gpu_free_milli)
        self.price = {name: each * share_of_scarcity for name, each in scarcity(mix.models, free).items()}
        self.most_cpu = max([1, *(row.cpu_milli for row in rows)])
        self.most_gpu = max([1, *(len(row.gpu_free_milli) for row in rows)]) * WHOLE

    def f(self, model: str, cpu: int, cards: Cards) -> float:
        idle, lost = sum(free[2] for free in cards), 0.0
        for kind, share in self.mix.kinds.items():
            memory = kind.gpu_milli if kind.memory_milli is None else kind.memory_milli
            part = min(kind.gpu_milli, memory) < WHOLE
            fit = [
                (compute >= kind.gpu_milli and of_memory >= memory) if part else left >= kind.gpu_milli
                for compute, of_memory, left in cards
            ]
            able = kind.gpus > 0 and cpu >= kind.cpu_milli and (not kind.models or model in kind.models)
            small = sum(free[2] for free, good in zip(cards, fit, strict=True) if not good)
            lost += share * (small if able and sum(fit) >= kind.gpus else idle)
        return lost

    def lost(self, model: str, cpu: int, cards: Cards) -> float:
        space = sum(float(self.worth[free[2]]) for free in cards)
        return self.share_of_f * self.f(model, cpu, cards) - space

    def keys(self, model: str, cpu: int, cards: Cards, shape: Shape) -> set[int]:
        """Score a launch: several keys where the order of sums of floats decides."""
        before, left_cpu = self.lost(model, cpu, cards), cpu - shape.cpu_milli
        growth = min(self.lost(model, left_cpu, then) for _, then in after(cards, shape)) - before
        growth -= shape.milli if self.worth[WHOLE] else 0
        suited = [self.price[name] for name in shape.models or self.price if name in self.price]
        growth += (self.price[model] - min(suited, default=0)) * shape.milli
        scores = {int(100 / (1 + np.exp((growth + wrong) / WHOLE))) for wrong in (-1e-6, 1e-6)}
        left = left_cpu / self.most_cpu + sum(free[2] for free in cards) / self.most_gpu
        best_fit = int(left * ((1 << 19) - 1))
        return {(100 - score) * (1 << 20) + best_fit + wrong for score in scores for wrong in (-1, 0, 1)}


def taken(free: Free, shape: Shape) -> Free:
    compute, memory = free[0] - shape.gpu_milli, free[1] - shape.memory_milli
    return compute, memory, min(compute, memory)


def after(cards: Cards, shape: Shape) -> Iterator[tuple[int, Cards]]:
    """List what a launch could make of the cards, each with its card; of several parts those with least free."""
    if not shape.gpus:
        yield -1, cards
        return
    if not shape.is_part:
        whole = [at for at, free in enumerate(cards) if free[2] == WHOLE][: shape.gpus]
        if len(whole) == shape.gpus:
            yield -1, [(0, 0, 0) if at in whole else free for at, free in enumerate(cards)]
        return
    fitting = [
        at for at, free in enumerate(cards) if free[0] >= shape.gpu_milli and free[1] >= shape.memory_milli
    ]
    if shape.gpus == 1:
        for at in fitting:
            yield at, [taken(free, shape) if i == at else free for i, free in enumerate(cards)]
    elif len(fitting) >= shape.gpus:
        fullest_last = sorted(fitting, key=lambda at: (-cards[at][2], -cards[at][0], -cards[at][1]))
        last = fullest_last[-shape.gpus :]
        yield -1, [taken(free, shape) if at in last else free for at, free in enumerate(cards)]


def asks(chance: Random, *, apart: bool) -> list[Shape]:
    asked = []
    for _ in range(7):
        gpus, milli = chance.choice(((0, WHOLE), (1, WHOLE), (2, WHOLE), (1, 250), (1, 400), (1, 600)))
        memory = chance.choice((None, 300, 600)) if apart and gpus == 1 and milli < WHOLE else None
        if memory is not None:
            gpus = chance.choice((1, 1, 2))
        models = chance.choice(((), (), ("T4",), ("A10", "T4"), ("gone",)))
        asked.append(Shape(chance.choice((0, 1000, 4000, 9000)), 10, gpus, milli, models, memory))
    return asked


def clusters(chance: Random, *, apart: bool) -> list[Row]:
    rows = []
    for _ in range(chance.randint(1, 4)):
        width = chance.randint(1, 3)
        free = tuple(chance.choice((0, 250, 300, 400, 600, WHOLE - 1, WHOLE, WHOLE)) for _ in range(width))
        parts = tuple(chance.choice(((each, each), (each, WHOLE), (WHOLE, each))) for each in free)
        cpu_milli, model = chance.choice((0, 4000, 9000, 16_000)), chance.choice(MODELS)
        rows.append(Row(cpu_milli, 1000, free, model, parts if apart else ()))
    return rows


def cards_of(view: View, row: int) -> Cards:
    free = view.free[row]
    if view.parts is None:
        return [(left, left, left) for left in free]
    return [(*part, left) for part, left in zip(view.parts_of(row), free, strict=True)]


DEFAULT, FGD = (SHARE_OF_F, 1.0, SHARE_OF_SCARCITY), (1.0, 0.0, 0.0)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("shares", [DEFAULT, FGD], ids=["default", "fgd"])
def test_fragmentation_keys_and_gpus_are_those_of_the_plain_definition(
    apart: bool, shares: tuple[float, float, float]
) -> None:
    compared = 0
    for seed in range(18):
        chance = Random(seed)
        rows, asked = clusters(chance, apart=apart), asks(chance, apart=apart)
        names = ("share_of_f", "share_of_worth", "share_of_scarcity")
        policy = (
            Fragmentation(mix_of(asked))
            if shares is DEFAULT
            else Fragmentation(mix_of(asked), **dict(zip(names, shares, strict=True)))
        )
        view, plain = View(rows, policy), Plain(mix_of(asked), rows, shares)
        for shape in asked:
            number = view.shape(shape)
            able = [row for row in range(len(rows)) if view.best(number, np.arange(len(rows)) == row) == row]
            for row in able:
                cpu, cards, name = int(view.cpu[row]), cards_of(view, row), plain.names[row]
                want = plain.keys(name, cpu, cards, shape)
                assert int(policy.keys(row, slice(0, number + 1))[number]) in want, (seed, shape, row)
                assert int(policy.keys(np.array([row]), number)[0]) in want, (seed, shape, row)
                compared += 1
                if shape.is_part and shape.gpus == 1:
                    left = {
                        at: plain.lost(name, cpu - shape.cpu_milli, then) for at, then in after(cards, shape)
                    }
                    best = [at for at, lost in left.items() if lost <= min(left.values()) + 1e-6]
                    device = policy.device(row, number)
                    tightest = min(best, key=lambda at: (cards[at][2], cards[at][0], cards[at][1], at))
                    assert cards[device] == cards[tightest], (seed, shape, row)
                    assert device == cards.index(cards[device])
            if able:
                view.take(chance.choice(able), number)
            want_f = sum(
                plain.f(plain.names[row], int(view.cpu[row]), cards_of(view, row)) for row in range(len(rows))
            )
            assert policy.fragmented() == pytest.approx(want_f)
    assert compared > 60


def test_mix_is_of_the_kinds_that_cover_most_requests_and_counts_gpus_by_models() -> None:
    """Memory of hosts makes no kind; 19 of 20 cover 95 %, so that the last is left out."""
    shapes = [
        Shape(9, 1, 2, 400, ("A10",), 350),
        *[Shape(1000, size, 2, models=("T4",)) for size in range(10)],
        *[Shape(2000, 1, 1, 250)] * 5,
        *[Shape(0, 1)] * 2,
        *[Shape(1000, 1, 1, WHOLE, (), 500)] * 2,
    ]
    assert mix_of(shapes) == Mix(
        {
            Kind(1000, 2, WHOLE, ("T4",), None): 10 / 19,
            Kind(2000, 1, 250, (), None): 5 / 19,
            Kind(0, 0, 0, (), None): 2 / 19,
            Kind(1000, 1, WHOLE, (), 500): 2 / 19,
        },
        {250: 5},
        {("T4",): 20_000, (): 5 * 250 + 2 * WHOLE, ("A10",): 800},
    )
    assert list(mix_of([Shape(1, 1), Shape(2, 1)]).kinds.values()) == [0.5, 0.5]
    assert mix_of([]) == Mix({}, {}, {})


def test_fragmentation_knows_as_many_states_as_nodes_have() -> None:
    """Some hundred, of which each can become several."""
    rows = [Row(9000, 10, (milli, 2 * milli + 1, WHOLE), "T4") for milli in range(1, 400)]
    asked = [Shape(1000, 1, 1, 300), Shape(0, 0, 1, 500), Shape(1000, 1, 1, 1), Shape(1, 1, 1)]
    policy = Fragmentation(mix_of(asked))
    view, plain = View(rows, policy), Plain(mix_of(asked), rows, DEFAULT)
    for shape in asked:
        keys = policy.keys(slice(None), view.shape(shape)).tolist()
        assert all(
            keys[row] in plain.keys("T4", 9000, cards_of(view, row), shape) for row in range(0, len(rows), 7)
        )
