"""Patterns of names: `*` stands for anything, in linear time."""

from collections.abc import Iterable
from typing import Final

ANYTHING: Final = "*"


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern is for a text; `/shop/*` is also for `/shop` itself."""
    if pattern in (ANYTHING, text) or (pattern.endswith("/*") and text == pattern[:-2]):
        return True
    return _stretches(pattern, text)


def _stretches(pattern: str, text: str) -> bool:
    first, *rest = pattern.split(ANYTHING)
    if not rest:
        return pattern == text
    if not text.startswith(first):
        return False
    at = len(first)
    *middle, last = rest
    for piece in middle:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return len(text) - at >= len(last) and text.endswith(last)


def any_fits(patterns: Iterable[str], text: str) -> bool:
    """Whether one of them is for it."""
    for pattern in patterns:  # noqa: SIM110 # a generator would take twice as long
        if fits(pattern, text):
            return True
    return False


def covers(wide: str, narrow: str) -> bool:
    """Whether a pattern is for all that another one is for; where that is not certain, no."""
    if wide in (ANYTHING, narrow):
        return True
    if ANYTHING not in narrow:
        return fits(wide, narrow)
    # What a star of the narrow one stands for, the star of the wide one that takes it in stands for too.
    return _stretches(wide, narrow) and (not narrow.endswith("/*") or covers(wide, narrow[:-2]))


def all_covered(wide: Iterable[str], narrow: Iterable[str]) -> bool:
    """Whether each pattern of the narrow ones is covered by one of the wide ones."""
    among = tuple(wide)
    return all(any(covers(each, pattern) for each in among) for pattern in narrow)
