"""Fitting a table to a terminal's width by cutting, shortening and omitting columns. Pure functions."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

GAP: Final = 2  # spaces between columns
MIN: Final = 12  # minimum width of a column that may be cut, unless its header is longer
MIN_FOLDED: Final = 30  # minimum width of a folded last column while others can be omitted
LONG: Final = 26  # minimum width of a job's ID: an app's instance has as many, with eight digits
_PATH: Final = 20  # minimum width of a path while other columns can be omitted
_UUID: Final = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\S*")
_GPU: Final = re.compile(r"(GPU-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True, slots=True)
class Fit:
    """Rules for tables that are too wide for their terminal; columns are named by their headers.

    First the columns in `cut` are cut to `MIN` (a folded last column to `MIN_FOLDED`), then host names in `hosts` are
    shortened, then words longer than `LONG` in `names` and paths in `paths`, then the columns in `leave` are omitted
    one by one, empty ones first. UUIDs in `ids` are always shortened, as every command accepts the start of an ID.
    """

    cut: Sequence[str] = ()  # empty for the last column
    leave: Sequence[str] | None = None  # None for all but the first two and the last, from right to left
    ids: Sequence[str] = ()
    hosts: Sequence[str] = ()
    names: Sequence[str] = ()
    paths: Sequence[str] = ()
    wrap: bool = False  # whether the last column is folded instead of cut


@dataclass(frozen=True, slots=True)
class Column:
    """A column as displayed; `width` counts terminal cells, of which a wide character takes two."""

    header: str
    cells: Sequence[str]
    right: bool = False
    width: int = field(default=0)

    @property
    def natural(self) -> int:
        """Width at which nothing is cut."""
        from rich.cells import cell_len  # needed only for tables on terminals

        return max(map(cell_len, (self.header, *self.cells)))

    @property
    def blank(self) -> bool:
        """Whether no row has a value in this column."""
        return all(cell == "-" for cell in self.cells)


def fitted(columns: Sequence[Column], width: int, how: Fit) -> list[Column]:
    """Return the columns to show on a terminal of `width` cells, each with its width.

    Columns that no rule shortens are never cut, so rows may be wider than the terminal.
    """
    cut = dict.fromkeys(how.cut or (columns[-1].header,), MIN)
    if how.wrap:
        cut[columns[-1].header] = MIN_FOLDED
    kept = [_with(column, short_ids) if column.header in how.ids else column for column in columns]
    if _needed(kept, cut) > width:
        kept = [_with(column, short_hosts) if column.header in how.hosts else column for column in kept]
    if _needed(kept, cut) > width:
        kept = [_with(column, short_names) if column.header in how.names else column for column in kept]
        kept = _with_paths(kept, cut, width, how, _PATH)
    for header in _leaving(kept, how):
        if _needed(kept, cut) <= width:
            break
        kept = [column for column in kept if column.header != header]
    if _needed(kept, cut) > width:
        cut = dict.fromkeys(cut, MIN)
    return _spread(_with_paths(kept, cut, width, how, MIN), cut, width)


def _with_paths(
    columns: Sequence[Column], cut: Mapping[str, int], width: int, how: Fit, least: int
) -> list[Column]:
    """Return the columns with paths shortened to the width that the others leave, at least to `least`."""
    too_wide = max(_needed(columns, cut) - width, 0)
    return [
        _with(column, partial(short_paths, most=max(column.natural - too_wide, least)))
        if column.header in how.paths and too_wide
        else column
        for column in columns
    ]


def _with(column: Column, change: Callable[[Sequence[str]], list[str]]) -> Column:
    return replace(column, cells=change(column.cells))


def _least(column: Column, cut: Mapping[str, int]) -> int:
    least = cut.get(column.header)
    return column.natural if least is None else min(column.natural, max(len(column.header), least))


def _needed(columns: Sequence[Column], cut: Mapping[str, int]) -> int:
    return sum(_least(column, cut) for column in columns) + GAP * (len(columns) - 1)


def _leaving(columns: Sequence[Column], how: Fit) -> list[str]:
    by_name = {column.header: column for column in columns}
    names = [column.header for column in columns][-2:1:-1] if how.leave is None else how.leave
    return sorted(names, key=lambda name: not by_name[name].blank)  # a stable sort keeps their order


def _spread(columns: Sequence[Column], cut: Mapping[str, int], width: int) -> list[Column]:
    """Distribute the spare width to columns that may be cut, the narrowest first."""
    widths = {column.header: _least(column, cut) for column in columns}
    spare = width - _needed(columns, cut)
    for column in sorted(columns, key=lambda column: column.natural):
        more = max(min(column.natural - widths[column.header], spare), 0)
        widths[column.header] += more
        spare -= more
    return [replace(column, width=widths[column.header]) for column in columns]


def short_ids(cells: Sequence[str]) -> list[str]:
    """Shorten UUIDs at the end of words to eight digits, where that stays unique within the column."""
    return _shortened(cells, lambda word: _UUID.sub(r"\1", word, count=1))


def short_gpus(text: str) -> str:
    """Shorten UUIDs of GPUs in a text to their start, where that stays unique within the text."""
    of_start = Counter(match[1] for match in {match[0]: match for match in _GPU.finditer(text)}.values())
    return _GPU.sub(lambda match: match[1] if of_start[match[1]] == 1 else match[0], text)


def short_hosts(cells: Sequence[str]) -> list[str]:
    """Remove the domain of host names where that stays unique within the column; of more than two show the first."""
    short = _shortened(cells, lambda name: name if _ADDRESS.fullmatch(name) else name.split(".")[0])
    return [_first_of(cell.split()) for cell in short]


def short_names(cells: Sequence[str]) -> list[str]:
    """Cut long words to their start, where that stays unique within the column."""
    return _shortened(cells, lambda word: word if len(word) <= LONG else word[: LONG - 1] + "…")


def short_paths(cells: Sequence[str], most: int) -> list[str]:
    """Shorten paths of more than `most` characters: first drop leading names, then the middle of the last name.

    A path whose short form would not be unique within the column stays whole.
    """
    return _shortened(cells, lambda path: _short_path(path, most))


def _short_path(path: str, most: int) -> str:
    if len(path) <= most:
        return path
    names = path.split("/")
    ends = ("…/" + "/".join(names[i:]) for i in range(1, len(names)))
    short = next((end for end in ends if len(end) <= most), names[-1])
    half = (most - 1) // 2
    return short if len(short) <= most else f"{short[: most - 1 - half]}…{short[-half:]}"


def _first_of(words: Sequence[str]) -> str:
    return f"{words[0]} +{len(words) - 1}" if len(words) > 2 else " ".join(words)


def _shortened(cells: Sequence[str], shorten: Callable[[str], str]) -> list[str]:
    words = {word for cell in cells for word in cell.split()}
    times = Counter(map(shorten, words))
    new = {word: shorten(word) if times[shorten(word)] == 1 else word for word in words}
    return [" ".join(new[word] for word in cell.split()) for cell in cells]
