"""Dividing a whole amount by weights, exactly: no float takes part, so the same input gives the same parts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_WEIGHT: Final = 1 << 30
_SCALE: Final = 64  # bits: two ratios with such weights that differ, differ after it


@dataclass(frozen=True, slots=True)
class Claim:
    """A party to a division.

    Attributes:
        key: Whose it is; decides between equals, the lowest first.
        cap: The most that it takes.
        weight: From 0 to `MAX_WEIGHT`; 0: nothing, as long as another one wants more.
        rank: Who gets what rounding leaves over first among equal rests, the lowest first.
    """

    key: str
    cap: int
    weight: int
    rank: int = 0


def fill(amount: int, claims: Sequence[Claim]) -> dict[str, int]:
    """Divide an amount by weights, nobody getting more than his cap, whose rest the others divide (water-filling).

    What cannot be divided goes by one to the largest rests, then by rank and key. Those of weight 0 divide, evenly,
    what the others do not take.

    Args:
        amount: What there is, not negative.
        claims: Who divides it, each key once.

    Returns:
        The part of each claim, by key. Their sum is the amount, or the sum of the caps if that is less.
    """
    line = sorted(claims, key=_key)
    parts = pour(amount, [c.cap for c in line], [c.weight for c in line], [c.rank for c in line])
    return {claim.key: part for claim, part in zip(line, parts, strict=True)}


def scaled(amount: int, parts: Sequence[Claim]) -> dict[str, int]:
    """Scale caps down in proportion so that their sum is the amount, if it is more; weights are not looked at."""
    line = sorted(parts, key=_key)
    scaled_parts = shrink(amount, [c.cap for c in line], [c.rank for c in line])
    return {claim.key: part for claim, part in zip(line, scaled_parts, strict=True)}


def _key(claim: Claim) -> str:
    return claim.key


def pour(amount: int, caps: Sequence[int], weights: Sequence[int], ranks: Sequence[int] = ()) -> list[int]:
    """`fill` without names: equals are served in their order. `ranks`: none: all are equal."""
    if sum(caps) <= amount:
        return list(caps)
    if 0 in weights:
        return _pour_by_turns(amount, caps, weights, ranks)
    parts, total = [0] * len(caps), sum(weights)
    ratios = [(cap << _SCALE) // weight for cap, weight in zip(caps, weights, strict=True)]
    order = sorted(range(len(caps)), key=ratios.__getitem__)
    for at, i in enumerate(order):
        cap, weight = caps[i], weights[i]
        if cap * total > amount * weight:  # the level stays below this cap and all after it
            _divide(amount, weights, ranks, order[at:], total, parts)
            break
        parts[i] = cap
        amount -= cap
        total -= weight
    return parts


def shrink(amount: int, caps: Sequence[int], ranks: Sequence[int] = ()) -> list[int]:
    """`scaled` without names."""
    total = sum(caps)
    if total <= amount:
        return list(caps)
    parts = [0] * len(caps)
    _divide(amount, caps, ranks, [i for i, cap in enumerate(caps) if cap], total, parts)
    return parts


def _pour_by_turns(
    amount: int, caps: Sequence[int], weights: Sequence[int], ranks: Sequence[int]
) -> list[int]:
    """First those with a weight, then, evenly, those without."""
    parts = pour(
        amount,
        [cap if weight else 0 for cap, weight in zip(caps, weights, strict=True)],
        _ones(weights),
        ranks,
    )
    idle = [0 if weight else cap for cap, weight in zip(caps, weights, strict=True)]
    last = pour(amount - sum(parts), idle, [1] * len(caps), ranks)
    return [one + other for one, other in zip(parts, last, strict=True)]


def _ones(weights: Sequence[int]) -> list[int]:
    return [weight or 1 for weight in weights]


def _divide(
    amount: int,
    weights: Sequence[int],
    ranks: Sequence[int],
    who: Sequence[int],
    total: int,
    parts: list[int],
) -> None:
    """By weights, where nobody's part reaches his cap."""
    left, rests = amount, list[tuple[int, int, int]]()
    for i in who:
        part, rest = divmod(amount * weights[i], total)
        parts[i] = part
        left -= part
        rests.append((-rest, ranks[i] if ranks else 0, i))
    if left:
        rests.sort()
        for _, _, i in rests[:left]:
            parts[i] += 1
