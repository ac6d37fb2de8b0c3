"""A command that a host is to run in a task, as JSON. Pure.

Only the standard library's json: the host side imports it.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.checking import Problem

MAX_WORDS: Final = 1000
MAX_TEXT: Final = 1 << 15  # characters of a command
MAX_SIDE: Final = 4096  # rows or columns of a terminal


@dataclass(frozen=True, slots=True)
class Order:
    """A command in a task.

    Attributes:
        argv: Its words; the first is looked for in the task's PATH.
        stdin: Whether it gets what the client sends; else nothing.
        tty: Whether it has a terminal; then all that it writes is its stdout.
        rows, columns: Of the terminal.
        term: TERM of its environment, with a terminal.
    """

    argv: tuple[str, ...]
    stdin: bool = False
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = "xterm"


def order_of(value: object) -> tuple[Order | None, list[Problem]]:
    """What a JSON value asks for, or all that is wrong with it."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    value = {name: each for name, each in value.items() if each is not None}
    problems = [Problem(f"/{name}", "is not known here") for name in sorted(value.keys() - _FIELDS)]
    argv = value.get("argv")
    if not _is_argv(argv):
        what = f"must be a list of 1 to {MAX_WORDS} strings without NUL, {MAX_TEXT} characters at most in all"
        problems.append(Problem("/argv", what))
    problems += [
        Problem(f"/{name}", f"must be true or false, got {value[name]!r}")
        for name in ("stdin", "tty")
        if not isinstance(value.get(name, False), bool)
    ]
    problems += [
        Problem(f"/{name}", f"must be a whole number from 0 to {MAX_SIDE}")
        for name in ("rows", "columns")
        if not _is_side(value.get(name, 0))
    ]
    if not _is_term(value.get("term", "xterm")):
        problems.append(
            Problem("/term", "must be a name of a terminal: letters, digits, - and ., 40 at most")
        )
    if problems:
        return None, problems
    return Order(**{**value, "argv": tuple(value["argv"])}), []


_FIELDS: Final = frozenset(Order.__dataclass_fields__)


def _is_argv(value: object) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_WORDS or not value[0]:
        return False
    if not all(isinstance(word, str) and "\0" not in word for word in value):
        return False
    return sum(map(len, value)) <= MAX_TEXT


def _is_side(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SIDE


def _is_term(value: object) -> bool:
    plain = isinstance(value, str) and value.replace("-", "").replace(".", "").replace("+", "")
    return bool(isinstance(plain, str) and plain.isascii() and plain.isalnum() and len(str(value)) <= 40)
