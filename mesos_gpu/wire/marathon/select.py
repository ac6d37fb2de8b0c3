"""Label selectors, as in GET /v2/apps?label=a==b,c in (d, e). Pure.

A term is of A-Z, a-z, 0-9 and -._; any other character needs a backslash before it.
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
    """What is asked of one label. It must be there, for != and notin too."""

    label: str
    wanted: frozenset[str] | None = None  # None: any value will do
    unwanted: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an app with these labels is meant."""
        value = labels.get(self.label)
        if value is None:
            return False
        return value not in self.unwanted and (self.wanted is None or value in self.wanted)


def selectors_of(text: str) -> tuple[Selector, ...] | str:
    """The selectors, all of which must match; or what is wrong with the text."""
    if len(text) > _MAX_LENGTH:
        return f"a label selector may have {_MAX_LENGTH} characters at most"
    selectors, at = [], 0
    while text[at:].strip():
        match = _SELECTOR.match(text, at)
        if match is None:
            rest = text[at : at + 40]
            return f"can not parse label selector at {rest!r}: write as a, a==b, a!=b, a in (b, c) or a notin (b)"
        selectors.append(_selector(match))
        at = match.end()
    return tuple(selectors)


def _selector(match: re.Match[str]) -> Selector:
    label = _plain(match["label"])
    if match["equal"]:
        values = frozenset([_plain(match["value"])])
    elif match["set"]:
        values = frozenset(_plain(each) for each in _VALUE.findall(match["values"]))
    else:
        return Selector(label)
    return (
        Selector(label, values)
        if match["equal"] == "==" or match["set"] == "in"
        else Selector(label, None, values)
    )


def _plain(term: str) -> str:
    return re.sub(r"\\(.)", r"\1", term, flags=re.DOTALL)
