"""Weights of single servers in HAProxy from the weights of apps. Pure."""

from collections.abc import Mapping
from typing import Final

HIGHEST: Final = 256  # largest weight of a server in HAProxy
_CLOSE: Final = 0.005  # error of the shares up to which all servers of an app get one weight
_NEAR: Final = 0.01  # error of the shares that is always met


def server_weights(weights: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the weight of each server, from 0 (no requests) to 256.

    The servers of an app together get the part that its weight has of the weights of all apps with servers, to within 1
    %. They have equal weights if possible; else they differ by 1, and where an app has more than 256 times the servers
    that its share is worth, some get 0.

    Args:
        weights: Weight of each app, 0 or more.
        counts: Number of servers of each app.
    """
    active = {app: weight for app, weight in weights.items() if weight and counts.get(app)}
    by_app = {app: [0] * counts.get(app, 0) for app in weights}
    for app, total in _totals(active, counts).items():
        by_app[app] = _spread(total, counts[app])
    return by_app


def _totals(weights: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of the weights of each app's servers."""
    if len(weights) < 2:
        return {app: HIGHEST * counts[app] for app in weights}
    per_server = {app: weight / counts[app] for app, weight in weights.items()}
    most = max(per_server.values())
    equal = (
        {app: max(1, round(top * part / most)) * counts[app] for app, part in per_server.items()}
        for top in range(HIGHEST, 0, -1)
    )
    best = min(equal, key=lambda totals: _error(totals, weights))
    if _error(best, weights) <= _CLOSE:
        return best
    exact = {app: weight * HIGHEST / most for app, weight in weights.items()}
    rounded = _rounded(exact, least=1)
    return rounded if _error(rounded, weights) <= _NEAR else _rounded(exact, least=0)


def _error(totals: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return the largest difference between an app's actual and its intended share."""
    given, intended = sum(totals.values()), sum(weights.values())
    return max(abs(totals[app] / given - weight / intended) for app, weight in weights.items())


def _rounded(exact: Mapping[str, float], *, least: int) -> dict[str, int]:
    """Round to whole numbers with the same sum: the largest fractions are rounded up."""
    rounded = {app: max(least, int(total + 1e-6)) for app, total in exact.items()}
    by_loss = sorted(exact, key=lambda app: (rounded[app] - exact[app], app))
    left = int(sum(exact.values()) + 1e-6) - sum(rounded.values())
    for app in by_loss[: max(left, 0)]:
        rounded[app] += 1
    return rounded


def _spread(total: int, count: int) -> list[int]:
    """Divide a whole number evenly among `count` servers."""
    least, more = divmod(total, count)
    return [least + (index < more) for index in range(count)]
