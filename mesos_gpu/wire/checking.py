"""Checks of JSON that people send: all that is wrong with an object at once. Pure."""

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
MAX_ENTRIES: Final = 1000  # of an object of strings, as environment and labels
MAX_NAME: Final = 1024  # characters of a name in it
MAX_CHARACTERS: Final = 1 << 18  # of all its names and values
UNFIT: Final = re.compile(r"[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """A thing that is wrong. `path` is a JSON pointer."""

    path: str
    reason: str


class BadJson(MesosGpuError):
    """The body is no JSON object (EX_DATAERR)."""

    exit_code, http_status = 65, 400

    def __init__(self, what: str) -> None:
        """Say what it is instead."""
        super().__init__(what, remedy="send one JSON object")


def object_of(body: bytes) -> dict[str, Any]:
    """A request's body as an object.

    Raises:
        BadJson: It is none.
    """
    try:
        value = decoded(body)
    except ValueError as error:
        raise BadJson(f"the body is not JSON that is taken: {error}") from error
    if not isinstance(value, dict):
        raise BadJson(f"the body must be a JSON object, not {type(value).__name__}")
    return value


#: What other systems call a field, and what it is called here.
MEANT: Final = {
    "memory": ("mem", "mem_mib"), "ram": ("mem", "mem_mib"), "cmd": ("command",), "cpu": ("cpus",), "gpu": ("gpus",),
    "environment": ("env",), "timeout": ("timeout_s",), "replicas": ("tasks",),
}  # fmt: skip


class Check:
    """Collects problems of one object; each method gives a usable value even where it found one.

    A field that is null is as if it were absent.
    """

    def __init__(self, value: Mapping[str, Any], known: Iterable[str]) -> None:
        """`known` are the fields that it may have."""
        self.given = {key: item for key, item in value.items() if item is not None}
        self.problems: list[Problem] = []
        self.failed: set[str] = set()
        self.meant: set[str] = set()  # fields that unknown ones may be
        fields, listed = tuple(known), False
        for key in value:
            if key not in fields:
                near = [each for each in MEANT.get(str(key).lower(), ()) if each in fields]
                near = near or difflib.get_close_matches(str(key).lower(), fields, n=2)
                self.meant.update(near)
                more = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(fields)}"
                self.problem(escaped(key), "unknown field" + ("" if listed and not near else f"; {more}"))
                listed = listed or not near  # once is enough

    def problem(self, path: object, reason: str) -> None:
        """Report one; `path` is without its first slash."""
        self.failed.add(str(path))
        self.problems.append(Problem(f"/{path}", reason))

    def take(self, path: str, other: "Check") -> None:
        """Report what was found in an object that is at `path` of this one."""
        for problem in other.problems:
            self.problem((path + problem.path).removesuffix("/"), problem.reason)

    def number(
        self, key: str, default: float, holds: Callable[[float], bool], form: str, *, whole: bool = False
    ) -> float:
        """A number that `holds` is true of."""
        got = self.given.get(key, default)
        if not is_number(got) or (whole and got != int(got)) or not holds(got):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return float(got) + 0.0  # not -0.0

    def integer(self, key: str, default: int, bounds: tuple[float, float]) -> int:
        """A whole number within the bounds, which it may reach."""
        least, most = bounds
        form = f"an integer from {least} to {most}"
        return int(self.number(key, default, lambda n: least <= n <= most, form, whole=True))

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        got = self.given.get(key, default)
        if not isinstance(got, bool):
            self.problem(key, f"must be true or false, got {show(got)}")
        return got is True

    def text(self, key: str, default: str | None, pattern: re.Pattern[str], form: str) -> str | None:
        """A string that all of `pattern` matches."""
        got = self.given.get(key, default)
        if got is not None and (not isinstance(got, str) or not pattern.fullmatch(got)):
            self.problem(key, f"must be {form}, got {show(got)}")
            return default
        return got

    def one_of(self, key: str, default: E, among: Iterable[E] | None = None) -> E:
        """A value of an enum."""
        got = self.given.get(key, default.value)
        known = {choice.value: choice for choice in among or type(default)}
        if not isinstance(got, str) or got not in known:
            self.problem(key, f"must be one of {', '.join(known)}, got {show(got)}")
            return default
        return known[got]

    def strings(self, key: str, pattern: re.Pattern[str], without: str) -> dict[str, str]:
        """An object of strings; `pattern` matches its names, `without` says what these must not have."""
        got = self.given.get(key, {})
        if not isinstance(got, dict):
            self.problem(key, f"must be an object of strings, got {show(got)}")
            return {}
        if too_much := excess_of(got):
            self.problem(key, too_much)
            return {}
        for name, item in got.items():
            if not is_text(name) or not pattern.fullmatch(name):
                self.problem(f"{key}/{escaped(name)}", f"must have a name without {without}")
            if not is_text(item):
                self.problem(f"{key}/{escaped(name)}", f"must be a string without NUL, got {show(item)}")
        return dict(got)


def excess_of(strings: Mapping[Any, object]) -> str:
    """What an object of strings has too much of; "": nothing. YAML has names that are no strings."""
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
    """A bool is none; nor is an integer that no float holds: `math.isfinite` would raise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= sys.float_info.max


def is_text(value: object) -> bool:
    """What can be an argument of execve, and be stored: UTF-8 without NUL."""
    return isinstance(value, str) and not UNFIT.search(value)


def is_command(value: object) -> bool:
    """What /bin/sh -c can be given."""
    return isinstance(value, str) and is_text(value) and bool(value.strip())


def escaped(key: object) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def show(value: object) -> str:
    """A value that was sent, cut to what fits in a sentence."""
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # YAML has keys that are no strings, and circles
        return f"something of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
