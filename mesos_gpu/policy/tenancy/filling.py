"""Dividing a whole amount by weights, exactly: no float takes part, so the same input gives the same parts. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MOST_WEIGHT: Final = 1 << 30
_SCALE: Final = 64  # bits: two ratios with such weights that differ, differ after it


@dataclass(frozen=True, slots=True)
class Claim:
    """A party to a division.

    Attributes:
        key: Whose it is; decides between equals, the lowest first.
        cap: The most that it takes.
        weight: From 0 to `MOST_WEIGHT`; 0: nothing, as long as another one wants more.
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
    parts = _fill(amount, [claim for claim in claims if claim.weight])
    left = amount - sum(parts.values())
    idle = [Claim(claim.key, claim.cap, 1, claim.rank) for claim in claims if not claim.weight]
    return parts | _fill(left, idle) if idle else parts


def _fill(amount: int, claims: Iterable[Claim]) -> dict[str, int]:
    line = sorted(claims, key=lambda claim: ((claim.cap << _SCALE) // claim.weight, claim.key))
    weights, parts = sum(claim.weight for claim in line), dict[str, int]()
    for i, claim in enumerate(line):
        if claim.cap * weights > amount * claim.weight:  # the level stays below this cap and all after it
            return parts | _divide(amount, line[i:])
        parts[claim.key] = claim.cap
        amount -= claim.cap
        weights -= claim.weight
    return parts


def _divide(amount: int, claims: Sequence[Claim]) -> dict[str, int]:
    """By weights, where nobody's part reaches his cap."""
    weights = sum(claim.weight for claim in claims)
    parts = {claim.key: amount * claim.weight // weights for claim in claims}
    left = amount - sum(parts.values())
    rests = sorted(claims, key=lambda claim: (-(amount * claim.weight % weights), claim.rank, claim.key))
    for claim in rests[:left]:
        parts[claim.key] += 1
    return parts


def scaled(amount: int, parts: Sequence[Claim]) -> dict[str, int]:
    """Scale caps down in proportion so that their sum is the amount, if it is more; weights are not looked at."""
    if sum(claim.cap for claim in parts) <= amount:
        return {claim.key: claim.cap for claim in parts}
    return _divide(
        amount, [Claim(claim.key, claim.cap, claim.cap, claim.rank) for claim in parts if claim.cap]
    ) | {claim.key: 0 for claim in parts if not claim.cap}
