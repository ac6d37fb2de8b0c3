"""Weights of servers beside the same sums in fractions."""

from collections.abc import Mapping
from fractions import Fraction
from random import Random

import pytest

from mesos_gpu.policy.apps.split import HIGHEST, server_weights


def error(totals: Mapping[str, int], weights: Mapping[str, int]) -> Fraction:
    given, asked = sum(totals.values()), sum(weights.values())
    return max(abs(Fraction(totals[app], given) - Fraction(weights[app], asked)) for app in weights)


def rounded(exact: Mapping[str, Fraction], least: int) -> dict[str, int]:
    totals = {app: max(least, int(total)) for app, total in exact.items()}
    left = int(sum(exact.values())) - sum(totals.values())
    for app in sorted(exact, key=lambda app: (totals[app] - exact[app], app))[: max(left, 0)]:
        totals[app] += 1
    return totals


def totals_of(weights: Mapping[str, int], counts: Mapping[str, int]) -> Mapping[str, int]:
    if len(weights) < 2:
        return {app: HIGHEST * counts[app] for app in weights}
    one = {app: Fraction(weight, counts[app]) for app, weight in weights.items()}
    most = max(one.values())
    alike = [
        {app: max(1, round(top * part / most)) * counts[app] for app, part in one.items()}
        for top in range(HIGHEST, 0, -1)
    ]
    best = min(alike, key=lambda totals: error(totals, weights))
    if error(best, weights) <= Fraction(1, 200):
        return best
    exact = {app: weight * HIGHEST / most for app, weight in weights.items()}
    some = rounded(exact, 1)
    return some if error(some, weights) <= Fraction(1, 100) else rounded(exact, 0)


@pytest.mark.parametrize("seed", range(40))
def test_weights_of_servers_are_those_of_fractions(seed: int) -> None:
    random = Random(seed)
    most_weight, most_count = random.choice(((9, 9), (100, 300), (9, 2000), (1000, 3)))
    apps = "abcd"[: random.randint(1, 4)]
    weights = {app: random.randint(0, most_weight) for app in apps}
    counts = {app: random.randint(0, most_count) for app in apps if random.random() < 0.9}
    asked = {app: weight for app, weight in weights.items() if weight and counts.get(app)}
    totals = totals_of(asked, counts)
    wanted = {}
    for app in apps:
        count = counts.get(app, 0)
        least, more = divmod(totals.get(app, 0), count) if count else (0, 0)
        wanted[app] = [least + 1] * more + [least] * (count - more)
    assert server_weights(weights, counts) == wanted
