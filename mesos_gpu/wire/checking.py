"""Checks of JSON from users, which collect all problems of an object at once; pure functions."""

import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.body import decoded

E = TypeVar("E", bound=Enum)
MAX_ENTRIES: Final = 1000  # of an object of strings, such as environment or labels
MAX_NAME: Final = 1024  # characters of one name
MAX_CHARACTERS: Final = 1 << 18  # characters of all names and values
UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a request. `path` is the JSON pointer of the field."""

    path: str
    reason: str


class BadJson(MesosGpuError):
    """Error: the body is not a JSON object (EX_DATAERR)."""

    exit_code, http_status = 65, 400

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="send one JSON object")


def object_of(body: bytes) -> dict[str, Any]:
    """Parse the body of a request as an object.

    Raises:
        BadJson: The body is not a JSON object, or exceeds a limit.
    """
    try:
        value = decoded(body)
    except ValueError as error:
        raise BadJson(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadJson(f"the body must be a JSON object, not {type(value).__name__}")
    return value


#: Fields here, by common names in other systems.
MEANT: Final = {
    "memory": ("mem", "mem_mib"), "ram": ("mem", "mem_mib"), "cmd": ("command",), "cpu": ("cpus",), "gpu": ("gpus",),
    "environment": ("env",), "timeout": ("timeout_s",), "replicas": ("tasks",),
}  # fmt: skip


class Check:
    """Collects problems of one object. Methods return a usable value even if they report a problem.

    A field with value null counts as absent.

    Args:
        value: Object to check.
        known: Names of the permitted fields.
    """

    def __init__(self, value: Mapping[str, Any], known: Iterable[str]) -> None:
        self.given = {key: item for key, item in value.items() if item is not None}
        self.problems: list[Problem] = []
        self.failed: set[str] = set()
        self.meant: set[str] = set()  # fields that unknown fields may have been meant as
        fields, listed = tuple(known), False
        for key in value:
            if key not in fields:
                near = [name for name in MEANT.get(str(key).lower(), ()) if name in fields]
                near = near or difflib.get_close_matches(str(key).lower(), fields, n=2)
                self.meant.update(near)
                more = (
                    f"did you mean {' or '.join(near)}?" if near else f"known fields are {', '.join(fields)}"
                )
                self.problem(escaped(key), "unknown field" + ("" if listed and not near else f"; {more}"))
                listed = listed or not near  # list the known fields only once

    def problem(self, path: object, reason: str) -> None:
        """Report a problem; `path` is a JSON pointer without its first slash."""
        self.failed.add(str(path))
        self.problems.append(Problem(f"/{path}", reason))

    def take(self, path: str, other: "Check") -> None:
        """Report the problems of an object at `path` of this one."""
        for problem in other.problems:
            self.problem((path + problem.path).removesuffix("/"), problem.reason)

    def number(
        self, key: str, default: float, holds: Callable[[float], bool], form: str, *, whole: bool = False
    ) -> float:
        """Return a number for which `holds` is true; else report that it must be `form`, and return the default."""
        got = self.given.get(key, default)
        if not is_number(got) or (whole and got != int(got)) or not holds(got):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return float(got) + 0.0  # not -0.0

    def integer(self, key: str, default: int, bounds: tuple[float, float]) -> int:
        """Return an integer within bounds, both included."""
        least, most = bounds
        form = f"an integer from {least} to {most}"
        return int(self.number(key, default, lambda n: least <= n <= most, form, whole=True))

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean."""
        got = self.given.get(key, default)
        if not isinstance(got, bool):
            self.problem(key, f"must be true or false, got {show(got)}")
        return got is True

    def text(self, key: str, default: str | None, pattern: re.Pattern[str], form: str) -> str | None:
        """Return a string that matches `pattern` as a whole; `form` describes it in the problem."""
        got = self.given.get(key, default)
        if got is not None and (not isinstance(got, str) or not pattern.fullmatch(got)):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return got

    def one_of(self, key: str, default: E, among: Iterable[E] | None = None) -> E:
        """Return a value of an enum; only values in `among`, if given."""
        got = self.given.get(key, default.value)
        choices = {choice.value: choice for choice in among or type(default)}
        if not isinstance(got, str) or got not in choices:
            self.problem(key, f"must be one of {', '.join(choices)}, got {show(got)}")
            return default
        return choices[got]

    def strings(self, key: str, pattern: re.Pattern[str], without: str) -> dict[str, str]:
        """Return an object of strings whose names match `pattern`; `without` says what names must not contain."""
        got = self.given.get(key, {})
        if not isinstance(got, dict):
            self.problem(key, f"must be an object of strings, got {show(got)}")
            return {}
        if too_much := excess_of(got):
            self.problem(key, too_much)
            return {}
        for name, item in got.items():
            if not is_text(name) or not pattern.fullmatch(name):
                self.problem(f"{key}/{escaped(name)}", f"must have a non-empty name without {without}")
            if not is_text(item):
                self.problem(f"{key}/{escaped(name)}", f"must be a string without NUL, got {show(item)}")
        return dict(got)


def excess_of(strings: Mapping[Any, object]) -> str:
    """Return how an object of strings exceeds a limit, as text; "" if it does not.

    Names from YAML may be no strings.
    """
    if len(strings) > MAX_ENTRIES:
        return f"must have at most {MAX_ENTRIES} entries, got {len(strings)}"
    longest = max((len(str(name)) for name in strings), default=0)
    if longest > MAX_NAME:
        return f"must have names of at most {MAX_NAME} characters, got one of {longest}"
    size = sum(len(str(name)) + len(item) for name, item in strings.items() if isinstance(item, str))
    if size > MAX_CHARACTERS:
        return f"must have at most {MAX_CHARACTERS} characters in all, got {size}"
    return ""


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; bools are not, nor integers too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= sys.float_info.max


def is_text(value: object) -> bool:
    """Return whether a value can be stored and passed to execve: a string of UTF-8 without NUL."""
    return isinstance(value, str) and not UNFIT.search(value)


def is_command(value: object) -> bool:
    """Return whether a value can be a command line for /bin/sh -c."""
    return isinstance(value, str) and is_text(value) and bool(value.strip())


def escaped(key: object) -> str:
    """Return a key as part of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def show(value: object) -> str:
    """Return a received value as JSON text, cut to 60 characters for messages."""
    try:
        text = json.dumps(value, default=str)
    except (
        TypeError,
        ValueError,
        RecursionError,
    ):  # YAML may have keys that are no strings, and circular references
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
