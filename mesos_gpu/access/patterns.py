"""Patterns of names: `*` stands for anything, in linear time."""

from collections.abc import Iterable
from typing import Final

ANYTHING: Final = "*"


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern is for a text; `/shop/*` is also for `/shop` itself."""
    if pattern in (ANYTHING, text):
        return True
    first, *rest = pattern.split(ANYTHING)
    if not rest:
        return False
    if pattern.endswith("/*") and text == pattern[:-2]:
        return True
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
    return any(fits(pattern, text) for pattern in patterns)
