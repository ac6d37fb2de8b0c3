"""Text bar charts."""

import shutil
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_WHOLE: Final = "█"
_MIN: Final = 8  # minimum columns of the longest bar
_MAX_LENGTH: Final = 100
_WORDS: Final = 40  # maximum columns of labels


def bars(rows: Sequence[tuple[str, float, str]], *, unicode: bool, columns: int | None = None) -> list[str]:
    """Return one line with a bar per row; the longest bar uses the available width.

    Args:
        rows: Label, amount (0 or more) and the amount as text.
        unicode: Whether to use block characters, with a resolution of an eighth of a column, instead of ASCII.
        columns: Width of the terminal; None to measure it.
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
