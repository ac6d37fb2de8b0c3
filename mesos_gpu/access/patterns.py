"""Patterns of names, in which `*` stands for any text, matched in linear time."""

from collections.abc import Iterable
from typing import Final

ANYTHING: Final = "*"


def fits(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a text; `/shop/*` also matches `/shop`."""
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
    """Return whether one of several patterns matches a text."""
    for pattern in patterns:  # noqa: SIM110 # a generator would take twice as long
        if fits(pattern, text):
            return True
    return False


def covers(wide: str, narrow: str) -> bool:
    """Return whether a pattern matches everything that another one matches; False if that is uncertain."""
    if wide in (ANYTHING, narrow):
        return True
    if ANYTHING not in narrow:
        return fits(wide, narrow)
    # Each star of the narrow pattern must fall within text that a star of the wide pattern matches.
    return _stretches(wide, narrow) and (not narrow.endswith("/*") or covers(wide, narrow[:-2]))


def all_covered(wide: Iterable[str], narrow: Iterable[str]) -> bool:
    """Return whether each of the narrow patterns is covered by one of the wide patterns."""
    among = tuple(wide)
    return all(any(covers(wide_pattern, pattern) for wide_pattern in among) for pattern in narrow)
