"""Filters of lists, and whether a record passes them; pure functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from mesos_gpu.access.patterns import fits

MAX_PATTERNS: Final = 64  # patterns of one filter
MAX_LENGTH: Final = 300  # characters of a pattern; paths of queues have up to 255

Values = Mapping["By", Iterable[str]]  # values of a record by filter; labels as `key=value`


class By(StrEnum):
    """Property by which a list can be filtered."""

    USER = "user"
    NAME = "name"
    LABEL = "label"
    QUEUE = "queue"
    APP = "app"
    NODE = "node"
    STATE = "state"

    @property
    def field(self) -> str:
        """Name in the query of a request, where `name` has another meaning: a whole name, not a pattern."""
        return "named" if self is By.NAME else self.value


def labels_of(values: Mapping[str, str]) -> list[str]:
    """Return labels as `key=value`, sorted by key, which is the form that filters use."""
    return [f"{key}={value}" for key, value in sorted(values.items())]


def passes(asked: Mapping[By, Sequence[str]], values: Values) -> bool:
    """Return whether a record passes all filters.

    A record passes a filter if it has a value that matches one of the patterns; for labels, if it matches all patterns.
    A filter without patterns passes everything.
    """
    for by, patterns in asked.items():
        if not patterns:
            continue
        has, held = _HAS.get(by, fits), tuple(values.get(by, ()))
        holds = (any(has(pattern, value) for value in held) for pattern in patterns)
        if not (all(holds) if by is By.LABEL else any(holds)):
            return False
    return True


def _user(pattern: str, value: str) -> bool:
    """Match a user; the name may end with a question mark, which marks unproved names."""
    return fits(pattern, value) or fits(pattern, value.removesuffix("?"))


def _label(wanted: str, label: str) -> bool:
    """Match a label with KEY or KEY=VALUE, whose value may be a pattern."""
    key, equals, pattern = wanted.partition("=")
    has, _, value = label.partition("=")
    return key == has and (not equals or fits(pattern, value))


def _queue(pattern: str, path: str) -> bool:
    """Match a queue, or one of its ancestors."""
    return fits(pattern, path) or fits(f"{pattern}/*", path)


def _app(pattern: str, id: str) -> bool:
    """Match an app id; the pattern may lack the first slash."""
    return fits(pattern, id) or fits(f"/{pattern}", id)


def _node(pattern: str, host: str) -> bool:
    """Match a host name; the pattern may have only its first part."""
    return fits(pattern, host) or fits(pattern, host.partition(".")[0])


_HAS: Final[Mapping[By, Callable[[str, str], bool]]] = {
    By.USER: _user, By.LABEL: _label, By.QUEUE: _queue, By.APP: _app, By.NODE: _node,
}  # fmt: skip
