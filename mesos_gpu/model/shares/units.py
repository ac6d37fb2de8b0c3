"""Thousandths of a card, the unit of shares, and their notation as fractions."""

import re
from typing import Final

WHOLE: Final = 1000  # thousandths of a card
PER_PERCENT: Final = 10  # thousandths
_FRACTION: Final = re.compile(r"0*\.([0-9]{1,3})0*")


def milli_of(text: str) -> int | None:
    """Return the thousandths of a card for a decimal between 0 and 1 ("0.25" is 250); None for any other text."""
    match = _FRACTION.fullmatch(text)
    return int(match[1].ljust(3, "0")) or None if match else None


def cards_of(milli: int) -> tuple[int, int]:
    """Return the number of cards and the thousandths of each for a request; only a request below WHOLE is a
    fraction."""
    return (1, milli) if 0 < milli < WHOLE else (milli // WHOLE, WHOLE)


def number_of(milli: int) -> float | int:
    """Return thousandths of cards as a number of cards: 250 are 0.25, 2000 are 2."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE
