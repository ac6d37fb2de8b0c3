"""Filters of lists: what is asked for, and whether a record has it. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from mesos_gpu.access.patterns import fits

MAX_PATTERNS: Final = 64  # of one filter
MAX_LENGTH: Final = 300  # characters of a pattern: the path of a queue has 255

Values = Mapping["By", Iterable[str]]  # what a record has, by filter; of labels `key=value`


class By(StrEnum):
    """What a list can be filtered by."""

    USER = "user"
    NAME = "name"
    LABEL = "label"
    QUEUE = "queue"
    APP = "app"
    NODE = "node"
    STATE = "state"

    @property
    def field(self) -> str:
        """What the query of a request calls it: `name` is a whole name there, without a pattern."""
        return "named" if self is By.NAME else self.value


def labels_of(values: Mapping[str, str]) -> list[str]:
    """`key=value` of each, in the order of keys: what a filter by label looks at."""
    return [f"{key}={value}" for key, value in sorted(values.items())]


def passes(asked: Mapping[By, Sequence[str]], values: Values) -> bool:
    """Whether a record has one of what each filter asks for, and all labels that are. Filters that ask for nothing let
    everything through; a record that lacks what a filter is about does not pass."""
    for by, patterns in asked.items():
        if not patterns:
            continue
        has, held = _HAS.get(by, fits), tuple(values.get(by, ()))
        holds = (any(has(pattern, value) for value in held) for pattern in patterns)
        if not (all(holds) if by is By.LABEL else any(holds)):
            return False
    return True


def _user(pattern: str, value: str) -> bool:
    """A name that nobody has proved ends with a question mark."""
    return fits(pattern, value) or fits(pattern, value.removesuffix("?"))


def _label(wanted: str, label: str) -> bool:
    """KEY, or KEY=VALUE; the value may be a pattern."""
    key, equals, pattern = wanted.partition("=")
    has, _, value = label.partition("=")
    return key == has and (not equals or fits(pattern, value))


def _queue(pattern: str, path: str) -> bool:
    """A queue, and those below it."""
    return fits(pattern, path) or fits(f"{pattern}/*", path)


def _app(pattern: str, id: str) -> bool:
    """The slash in front of an app's ID may be left out."""
    return fits(pattern, id) or fits(f"/{pattern}", id)


def _node(pattern: str, host: str) -> bool:
    """The first part of a host's name is enough."""
    return fits(pattern, host) or fits(pattern, host.partition(".")[0])


_HAS: Final[Mapping[By, Callable[[str, str], bool]]] = {
    By.USER: _user, By.LABEL: _label, By.QUEUE: _queue, By.APP: _app, By.NODE: _node,
}  # fmt: skip
