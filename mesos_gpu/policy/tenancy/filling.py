"""Exact division of whole amounts by weights, without floats: equal input gives equal parts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_WEIGHT: Final = 1 << 30
_SCALE: Final = 64  # fraction bits: keeps different ratios with weights up to MAX_WEIGHT different


@dataclass(frozen=True, slots=True)
class Claim:
    """Party to a division.

    Attributes:
        key: Name of the party; the lowest goes first between equal ones.
        cap: Largest amount that it takes.
        weight: Weight from 0 to `MAX_WEIGHT`; with 0 it gets only what the others leave.
        rank: Order in which equal claims get the remainder of rounding, the lowest first.
    """

    key: str
    cap: int
    weight: int
    rank: int = 0


def fill(amount: int, claims: Sequence[Claim]) -> dict[str, int]:
    """Divide an amount by weights; what exceeds a party's cap is divided among the others (water-filling).

    The remainder of rounding goes in units of 1 to the largest fractions, then by rank and key. Parties of weight 0
    divide evenly what the others do not take.

    Args:
        amount: Amount to divide, not negative.
        claims: Parties to the division, with different keys.

    Returns:
        Part of each claim, by key. Their sum is the amount, or the sum of the caps if that is less.
    """
    line = sorted(claims, key=_key)
    parts = pour(amount, [c.cap for c in line], [c.weight for c in line], [c.rank for c in line])
    return {claim.key: part for claim, part in zip(line, parts, strict=True)}


def scaled(amount: int, parts: Sequence[Claim]) -> dict[str, int]:
    """Scale caps down in proportion until their sum is the amount, if it is larger; weights are ignored."""
    line = sorted(parts, key=_key)
    scaled_parts = shrink(amount, [c.cap for c in line], [c.rank for c in line])
    return {claim.key: part for claim, part in zip(line, scaled_parts, strict=True)}


def _key(claim: Claim) -> str:
    return claim.key


def pour(amount: int, caps: Sequence[int], weights: Sequence[int], ranks: Sequence[int] = ()) -> list[int]:
    """Divide an amount as `fill` does, for lists: equal parties are served in list order.

    Args:
        amount: Amount to divide, not negative.
        caps: Largest part of each party.
        weights: Weight of each party.
        ranks: Order in which parties with equal fractions get the remainder of rounding; empty if all are equal.
    """
    if sum(caps) <= amount:
        return list(caps)
    if 0 in weights:
        return _pour_by_turns(amount, caps, weights, ranks)
    parts, total = [0] * len(caps), sum(weights)
    ratios = [(cap << _SCALE) // weight for cap, weight in zip(caps, weights, strict=True)]
    order = sorted(range(len(caps)), key=ratios.__getitem__)
    for at, i in enumerate(order):
        cap, weight = caps[i], weights[i]
        if cap * total > amount * weight:  # neither this cap nor a later one is reached
            _divide(amount, weights, ranks, order[at:], total, parts)
            break
        parts[i] = cap
        amount -= cap
        total -= weight
    return parts


def shrink(amount: int, caps: Sequence[int], ranks: Sequence[int] = ()) -> list[int]:
    """Scale caps down as `scaled` does, for lists."""
    total = sum(caps)
    if total <= amount:
        return list(caps)
    parts = [0] * len(caps)
    _divide(amount, caps, ranks, [i for i, cap in enumerate(caps) if cap], total, parts)
    return parts


def _pour_by_turns(
    amount: int, caps: Sequence[int], weights: Sequence[int], ranks: Sequence[int]
) -> list[int]:
    """Divide among the parties with a weight first, then evenly among those of weight 0."""
    parts = pour(
        amount,
        [cap if weight else 0 for cap, weight in zip(caps, weights, strict=True)],
        _ones(weights),
        ranks,
    )
    idle = [0 if weight else cap for cap, weight in zip(caps, weights, strict=True)]
    last = pour(amount - sum(parts), idle, [1] * len(caps), ranks)
    return [part + extra for part, extra in zip(parts, last, strict=True)]


def _ones(weights: Sequence[int]) -> list[int]:
    return [weight or 1 for weight in weights]


def _divide(
    amount: int,
    weights: Sequence[int],
    ranks: Sequence[int],
    indexes: Sequence[int],
    total: int,
    parts: list[int],
) -> None:
    """Divide by weights among the parties of some `indexes`, none of which reaches its cap; write into `parts`."""
    left, rests = amount, list[tuple[int, int, int]]()
    for i in indexes:
        part, rest = divmod(amount * weights[i], total)
        parts[i] = part
        left -= part
        rests.append((-rest, ranks[i] if ranks else 0, i))
    if left:
        rests.sort()
        for _, _, i in rests[:left]:
            parts[i] += 1
