"""Maps of names from certificates or directories to names here: `*@example.org=*` maps ann@example.org to ann."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_ANYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class NameMap:
    """A rule that maps names. A part of the name may be variable, and may be kept in the result.

    Attributes:
        before, behind: Fixed parts of the given name, before and after the variable part.
        to_before, to_behind: Fixed parts of the resulting name.
        keeps: Whether the result contains the variable part; else it is `to_before` alone.
        any: Whether the given name has a variable part; else it is `before` alone.
    """

    before: str
    behind: str
    to_before: str
    to_behind: str
    any: bool
    keeps: bool

    def name_of(self, text: str) -> str | None:
        """Return the name that a name is mapped to; None if the rule does not match."""
        if not self.any:
            return self.to_before if text == self.before else None
        part = text[len(self.before) : len(text) - len(self.behind)]
        if not part or self.before + part + self.behind != text:
            return None
        return self.to_before + part + self.to_behind if self.keeps else self.to_before


def parse(text: str) -> NameMap:
    """Parse `PATTERN=NAME`; each may have one `*`, the second only with the first. The last `=` separates them.

    Raises:
        ValueError: The text has another form.
    """
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern or not name or pattern.count(_ANYTHING) > 1 or name.count(_ANYTHING) > 1:
        raise ValueError(f"{text!r} is not PATTERN=NAME with at most one * in each, such as *@example.org=*")
    if _ANYTHING in name and _ANYTHING not in pattern:
        raise ValueError(f"{text!r}: the name has a *, but the pattern has none; add one to the pattern")
    before, has_any, behind = pattern.partition(_ANYTHING)
    to_before, keeps, to_behind = name.partition(_ANYTHING)
    return NameMap(before, behind, to_before, to_behind, bool(has_any), bool(keeps))


def mapped(maps: Sequence[NameMap], text: str) -> str | None:
    """Map a name by the first matching rule; None if no rule matches. Without rules the name stays as it is."""
    if not maps:
        return text
    return next((name for rule in maps if (name := rule.name_of(text)) is not None), None)
