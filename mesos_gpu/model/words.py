"""Numbers and names in texts. Pure."""

from typing import Final

_MOST_DIGITS: Final = 18  # Python converts no more than 4,300


def whole_of(text: str) -> int | None:
    """Return the whole number that a text of at most 18 ASCII digits says; None if it is no such text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def counted(count: float, noun: str) -> str:
    """A number with its noun: `1 GPU`, `2 GPUs`, `0 GPUs`, `0.25 GPUs`. Nouns that only take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def is_or_are(count: float) -> str:
    """Return the verb that follows a number with its noun."""
    return "is" if count == 1 else "are"
