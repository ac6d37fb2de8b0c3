"""A table on a terminal of a certain width: what is cut, shortened and left out, in the order of importance. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

GAP: Final = 2  # blanks between columns
MIN: Final = 12  # a column that may be cut keeps so many characters, or its header
MIN_FOLDED: Final = 30  # a last column that is folded keeps so many characters while others may be left out
LONG: Final = (
    26  # a job's ID is not cut to fewer characters: an app's instance has as many, with eight digits
)
_PATH: Final = 20  # a path keeps so many characters while columns may still be left out
_UUID: Final = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\S*")
_GPU: Final = re.compile(r"(GPU-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True, slots=True)
class Fit:
    """What gives way where a table is too wide for its terminal; columns by their headers.

    First `cut` are cut to `MIN` (a folded last column to `MIN_FOLDED`), then host names in `hosts` are shortened,
    then words longer than `LONG` in `names` and paths in `paths`, then `leave` are left out one by one, those without
    any value before the others. The UUIDs in `ids` are always shortened: every command takes the start of an ID.
    """

    cut: Sequence[str] = ()  # empty: the last column
    leave: Sequence[str] | None = None  # None: all but the first two and the last, from right to left
    ids: Sequence[str] = ()
    hosts: Sequence[str] = ()
    names: Sequence[str] = ()
    paths: Sequence[str] = ()
    wrap: bool = False  # the last column is folded and not cut


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it is shown. `width` counts cells of the terminal: a wide character has two."""

    header: str
    cells: Sequence[str]
    right: bool = False
    width: int = field(default=0)

    @property
    def natural(self) -> int:
        """The width that nothing of it is cut in."""
        from rich.cells import cell_len  # of tables on terminals alone

        return max(map(cell_len, (self.header, *self.cells)))

    @property
    def blank(self) -> bool:
        """Whether no row has a value in it."""
        return all(cell == "-" for cell in self.cells)


def fitted(columns: Sequence[Column], width: int, how: Fit) -> list[Column]:
    """The columns that are shown on a terminal of `width` cells, each with its width.

    What cannot give way is never cut: then the rows are wider than the terminal.
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
    """With paths that are shortened to what the other columns leave of the width, or to `least`."""
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
    return sorted(names, key=lambda name: not by_name[name].blank)  # stable: their order is kept


def _spread(columns: Sequence[Column], cut: Mapping[str, int], width: int) -> list[Column]:
    """Each column with its width: what is to spare goes to those that are cut, the most telling (shortest) first."""
    widths = {column.header: _least(column, cut) for column in columns}
    spare = width - _needed(columns, cut)
    for column in sorted(columns, key=lambda column: column.natural):
        more = max(min(column.natural - widths[column.header], spare), 0)
        widths[column.header] += more
        spare -= more
    return [replace(column, width=widths[column.header]) for column in columns]


def short_ids(cells: Sequence[str]) -> list[str]:
    """Words with a UUID end after its first eight digits, if that names no other word of the column."""
    return _shortened(cells, lambda word: _UUID.sub(r"\1", word, count=1))


def short_gpus(text: str) -> str:
    """A text whose GPUs are named by the start of their UUIDs, where that names no other of them."""
    of_start = Counter(match[1] for match in {each[0]: each for each in _GPU.finditer(text)}.values())
    return _GPU.sub(lambda match: match[1] if of_start[match[1]] == 1 else match[0], text)


def short_hosts(cells: Sequence[str]) -> list[str]:
    """Host names without their domain, if that names no other host of the column; of more than two the first."""
    short = _shortened(cells, lambda name: name if _ADDRESS.fullmatch(name) else name.split(".")[0])
    return [_first_of(cell.split()) for cell in short]


def short_names(cells: Sequence[str]) -> list[str]:
    """Long words are cut to a start, if that names no other word of the column."""
    return _shortened(cells, lambda word: word if len(word) <= LONG else word[: LONG - 1] + "…")


def short_paths(cells: Sequence[str], most: int) -> list[str]:
    """Paths of more than `most` characters lose their first names, then the middle of their last one.

    What would name another path of the column as well stays whole: siblings differ at their ends.
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
