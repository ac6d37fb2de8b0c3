"""Past use that decays with a half-life, computed in closed form with whole numbers. Pure.

The use of a user or a queue is stored as a value, its time, and the rate at which it has grown since. Nothing samples
it, and a long job counts while it runs. A restart and a replay go through the same changes of the rate, and so get the
same numbers.
"""

from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import Final

MICRO: Final = 1_000_000  # microseconds per second
_ONE: Final = 64  # bits after the binary point of fixed-point fractions here
_PRECISE: Final = 192  # bits after the binary point while the tables are computed
_DIGIT: Final = 8  # bits of an exponent that one table covers
_DIGITS: Final = 6
_LN2: Final = 0xB17217F7D1CF79AB  # ln 2 as a fixed-point fraction with 64 bits


@dataclass(frozen=True, slots=True)
class Usage:
    """Decayed use at a time, and the rate at which it grows from then on.

    Attributes:
        value: Use that remains at `since` after decay, in thousandths of cost times seconds.
        since: Time of the value, in microseconds since the epoch.
        rate: Thousandths of cost that are held since then.
    """

    value: int = 0
    since: int = 0
    rate: int = 0

    def at(self, now: int, half_life_s: int) -> int:
        """Return the decayed use at a time in microseconds since the epoch; a time before `since` counts as `since`."""
        span = max(0, now - self.since)
        left = halved(span, half_life_s * MICRO)
        # The integral of rate * 2**(-t / half_life): rate * half_life / ln 2 * (1 - 2**(-span / half_life)).
        grown = self.rate * half_life_s * ((1 << _ONE) - left) // _LN2
        return (self.value * left >> _ONE) + grown

    def changed(self, now: int, by: int, half_life_s: int) -> "Usage":
        """Return the use with the rate changed from a time on.

        Args:
            now: Time of the change, in microseconds since the epoch.
            by: Change of the rate, in thousandths of cost; negative if less is held.
            half_life_s: Half-life of past use, in seconds.

        Raises:
            ValueError: The rate would be negative.
        """
        if self.rate + by < 0:
            raise ValueError(f"{self.rate} thousandths are held, and {-by} cannot be given back")
        return Usage(self.at(now, half_life_s), max(now, self.since), self.rate + by)

    def returned(self, now: int, ended: int, by: int, half_life_s: int) -> "Usage":
        """Return the use with the rate lowered since a past time; what was counted after that time is taken back.

        Args:
            now: Current time, in microseconds since the epoch.
            ended: Time from which less was held, in microseconds since the epoch.
            by: Decrease of the rate, in thousandths of cost.
            half_life_s: Half-life of past use, in seconds.

        Raises:
            ValueError: The rate would be negative.
        """
        after = self.changed(now, -by, half_life_s)
        late = Usage(0, min(ended, now), by).at(now, half_life_s)
        return Usage(max(0, after.value - late), after.since, after.rate)


def halved(span: int, half_life: int) -> int:
    """Return 2**(-span / half_life) as a fixed-point fraction with 64 bits; both have one unit and are not negative."""
    halves, rest = divmod(span, half_life)
    if halves > _ONE:
        return 0
    exponent = (rest << _DIGIT * _DIGITS) // half_life
    value = 1 << _ONE
    for table in _tables():
        exponent, digit = divmod(exponent, 1 << _DIGIT)
        value = value * table[digit] >> _ONE
    return value >> halves


@cache
def _tables() -> tuple[tuple[int, ...], ...]:
    """Return for each digit of an exponent, the last one first, 2**-exponent for each value of that digit."""
    tables, root = list[tuple[int, ...]](), 1 << (_PRECISE - 1)
    for _ in range(_DIGITS):
        for _ in range(_DIGIT):
            root = isqrt(root << _PRECISE)
        power, table = 1 << _PRECISE, list[int]()
        for _ in range(1 << _DIGIT):
            table.append(power >> (_PRECISE - _ONE))
            power = power * root >> _PRECISE
        tables.append(tuple(table))
    return tuple(reversed(tables))
