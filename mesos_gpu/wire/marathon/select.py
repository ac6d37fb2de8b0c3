"""Label selectors, as in GET /v2/apps?label=a==b,c in (d, e); pure functions.

A term consists of A-Z, a-z, 0-9 and -._; other characters need a backslash before them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_TERM: Final = r"(?:\\.|[-A-Za-z0-9_.])+"
_SELECTOR: Final = re.compile(
    rf"\s*+(?P<label>{_TERM})\s*+"
    rf"(?:(?P<set>in|notin)\s*\(\s*(?P<values>(?:{_TERM}\s*(?:,\s*{_TERM}\s*)*)?)\)"
    rf"|(?P<equal>==|!=)\s*(?P<value>{_TERM}))?\s*(?:,(?=\s*\S)|$)",
    re.DOTALL,
)
_VALUE: Final = re.compile(_TERM, re.DOTALL)
_MAX_LENGTH: Final = 4096


@dataclass(frozen=True, slots=True)
class Selector:
    """Condition on one label, which must exist, also for != and notin."""

    label: str
    wanted: frozenset[str] | None = None  # None for any value
    unwanted: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition."""
        value = labels.get(self.label)
        if value is None:
            return False
        return value not in self.unwanted and (self.wanted is None or value in self.wanted)


def selectors_of(text: str) -> tuple[Selector, ...] | str:
    """Parse selectors, all of which must match; return the problem as text if the text is invalid."""
    if len(text) > _MAX_LENGTH:
        return f"a label selector must have at most {_MAX_LENGTH} characters"
    selectors, at = [], 0
    while text[at:].strip():
        match = _SELECTOR.match(text, at)
        if match is None:
            rest = text[at : at + 40]
            return f"cannot parse label selector at {rest!r}; write a, a==b, a!=b, a in (b, c) or a notin (b)"
        selectors.append(_selector(match))
        at = match.end()
    return tuple(selectors)


def _selector(match: re.Match[str]) -> Selector:
    label = _plain(match["label"])
    if match["equal"]:
        values = frozenset([_plain(match["value"])])
    elif match["set"]:
        values = frozenset(_plain(value) for value in _VALUE.findall(match["values"]))
    else:
        return Selector(label)
    return (
        Selector(label, values)
        if match["equal"] == "==" or match["set"] == "in"
        else Selector(label, None, values)
    )


def _plain(term: str) -> str:
    return re.sub(r"\\(.)", r"\1", term, flags=re.DOTALL)
