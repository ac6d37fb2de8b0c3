"""Names of a certificate or of another's directory as names here: `*@example.org=*` lets ann@example.org be ann."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_ANYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class NameMap:
    """What comes before and behind the one part that may be anything, and the same of the name that it becomes.

    Attributes:
        before, behind: Of the name as it is.
        to_before, to_behind: Of the name here; the part between is taken over.
        keeps: Whether the name here has that part; else it is `to_before` alone.
        any: Whether the name as it is has such a part; else it is `before` alone.
    """

    before: str
    behind: str
    to_before: str
    to_behind: str
    any: bool
    keeps: bool

    def name_of(self, text: str) -> str | None:
        """Map a name; None: this is not for it."""
        if not self.any:
            return self.to_before if text == self.before else None
        part = text[len(self.before) : len(text) - len(self.behind)]
        if not part or self.before + part + self.behind != text:
            return None
        return self.to_before + part + self.to_behind if self.keeps else self.to_before


def parse(text: str) -> NameMap:
    """`PATTERN=NAME`; each may have one `*`, the second only with the first. The last `=` counts.

    Raises:
        ValueError: Something else.
    """
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern or not name or pattern.count(_ANYTHING) > 1 or name.count(_ANYTHING) > 1:
        raise ValueError(f"{text!r} is not PATTERN=NAME with one * in each at most, as *@example.org=*")
    if _ANYTHING in name and _ANYTHING not in pattern:
        raise ValueError(f"{text!r}: the name has a *, and the pattern has none that it could stand for")
    before, has_any, behind = pattern.partition(_ANYTHING)
    to_before, keeps, to_behind = name.partition(_ANYTHING)
    return NameMap(before, behind, to_before, to_behind, bool(has_any), bool(keeps))


def mapped(maps: Sequence[NameMap], text: str) -> str | None:
    """What a name is here, by the first that is for it; without any map, itself. None: none is for it."""
    if not maps:
        return text
    return next((name for each in maps if (name := each.name_of(text)) is not None), None)
