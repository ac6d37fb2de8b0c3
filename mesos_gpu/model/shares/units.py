"""Units of shares: thousandths of a card, and how they are written as fractions of it."""

import re
from typing import Final

WHOLE: Final = 1000  # thousandths of a card
PER_PERCENT: Final = 10  # thousandths
_FRACTION: Final = re.compile(r"0*\.([0-9]{1,3})0*")


def milli_of(text: str) -> int | None:
    """Thousandths of a card that a decimal between 0 and 1 says, exactly: "0.25" is 250. None: it says none."""
    match = _FRACTION.fullmatch(text)
    return int(match[1].ljust(3, "0")) or None if match else None


def cards_of(milli: int) -> tuple[int, int]:
    """The number of cards that so many thousandths are asked of, and thousandths of each: a fraction is of one."""
    return (1, milli) if 0 < milli < WHOLE else (milli // WHOLE, WHOLE)


def number_of(milli: int) -> float | int:
    """Thousandths of cards as a number of them: 250 are 0.25, 2000 are 2."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE
