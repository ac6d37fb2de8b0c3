"""Figures as bars of text."""

import shutil
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_WHOLE: Final = "█"
_MIN: Final = 8  # columns of the longest bar
_MAX_LENGTH: Final = 100
_WORDS: Final = 40  # columns that labels take at most


def bars(rows: Sequence[tuple[str, float, str]], *, unicode: bool, columns: int | None = None) -> list[str]:
    """Lines with a bar each, the longest as wide as there is room.

    Args:
        rows: A label, an amount that is not negative, and that in words.
        unicode: Whether the reader knows more than ASCII: then bars are told apart by an eighth of a column.
        columns: Of the terminal; None: as it is.
    """
    width = columns or shutil.get_terminal_size().columns
    label = min(max((cell_len(name) for name, *_ in rows), default=0), _WORDS)
    words = max((len(text) for *_, text in rows), default=0)
    room = min(max(width - label - words - 4, _MIN), _MAX_LENGTH)
    most = max((amount for _, amount, _ in rows), default=0.0)
    scale = room / most if most else 0.0
    return [
        f"{set_cell_size(name, label)}  {text:>{words}}  {_bar(amount * scale, unicode)}".rstrip()
        for name, amount, text in rows
    ]


def _bar(length: float, unicode: bool) -> str:
    eighths = round(length * 8)
    if not unicode:
        return "#" * round(length)
    return _WHOLE * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
