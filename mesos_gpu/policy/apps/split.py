"""Weights of single servers from those of apps, as HAProxy wants them. Pure."""

from collections.abc import Mapping
from typing import Final

HIGHEST: Final = 256  # of a server, in HAProxy
_CLOSE: Final = 0.005  # as near as the shares must come for the servers of an app to be all alike
_NEAR: Final = 0.01  # as near as they come in any case


def server_weights(weights: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, list[int]]:
    """The weight of each server, 0 (it gets nothing) to 256.

    Each app's servers together get what its weight is of the weights of all that have servers, to within 1 %,
    whatever the numbers. They are alike if that can be; else they differ by 1, and where an app has more than 256
    times the servers that its share is worth, some get nothing.

    Args:
        weights: By app, 0 or more.
        counts: How many servers each has.
    """
    asked = {app: weight for app, weight in weights.items() if weight and counts.get(app)}
    by_app = {app: [0] * counts.get(app, 0) for app in weights}
    for app, total in _totals(asked, counts).items():
        by_app[app] = _spread(total, counts[app])
    return by_app


def _totals(weights: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of each app's servers."""
    if len(weights) < 2:
        return {app: HIGHEST * counts[app] for app in weights}
    one = {app: weight / counts[app] for app, weight in weights.items()}
    most = max(one.values())
    alike = (
        {app: max(1, round(top * part / most)) * counts[app] for app, part in one.items()}
        for top in range(HIGHEST, 0, -1)
    )
    best = min(alike, key=lambda totals: _error(totals, weights))
    if _error(best, weights) <= _CLOSE:
        return best
    exact = {app: weight * HIGHEST / most for app, weight in weights.items()}
    some = _rounded(exact, least=1)
    return some if _error(some, weights) <= _NEAR else _rounded(exact, least=0)


def _error(totals: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """The largest difference between a share and what it shall be."""
    given, asked = sum(totals.values()), sum(weights.values())
    return max(abs(totals[app] / given - weight / asked) for app, weight in weights.items())


def _rounded(exact: Mapping[str, float], *, least: int) -> dict[str, int]:
    """Whole numbers with the same sum: those that lose most by rounding down get what is left."""
    rounded = {app: max(least, int(total + 1e-6)) for app, total in exact.items()}
    by_loss = sorted(exact, key=lambda app: (rounded[app] - exact[app], app))
    left = int(sum(exact.values()) + 1e-6) - sum(rounded.values())
    for app in by_loss[: max(left, 0)]:
        rounded[app] += 1
    return rounded


def _spread(total: int, count: int) -> list[int]:
    least, more = divmod(total, count)
    return [least + (index < more) for index in range(count)]
