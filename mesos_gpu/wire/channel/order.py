"""JSON of orders to run a command in a task; pure functions.

The host side imports this module, so it uses only the standard library's json.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.checking import Problem

MAX_WORDS: Final = 1000
MAX_TEXT: Final = 1 << 15  # characters of a command
MAX_SIDE: Final = 4096  # rows or columns of a terminal


@dataclass(frozen=True, slots=True)
class Order:
    """An order to run a command in a task.

    Attributes:
        argv: Words of the command; the first is looked up in the task's PATH.
        stdin: Whether it gets input from the client; else its input is empty.
        tty: Whether it has a terminal; then all of its output is stdout.
        rows, columns: Size of the terminal.
        term: Value of TERM, with a terminal.
    """

    argv: tuple[str, ...]
    stdin: bool = False
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = "xterm"


def order_of(value: object) -> tuple[Order | None, list[Problem]]:
    """Parse an order; return it and no problems, or None and all problems."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    value = {name: each for name, each in value.items() if each is not None}
    problems = [Problem(f"/{name}", "unknown field") for name in sorted(value.keys() - _FIELDS)]
    argv = value.get("argv")
    if not _is_argv(argv):
        what = (
            f"must be a list of 1 to {MAX_WORDS} strings without NUL, at most {MAX_TEXT} characters in total"
        )
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
            Problem(
                "/term", "must be the name of a terminal type: at most 40 letters, digits, '-', '+' and '.'"
            )
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
