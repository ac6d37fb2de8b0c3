"""Fields that documents and tokens share: names, groups, patterns, rights. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from mesos_gpu.access.proofs import MAX_NAME
from mesos_gpu.access.rights import parse
from mesos_gpu.model.access.document import ALL_APPS, EVERYTHING
from mesos_gpu.wire.checking import Check, show

MAX_NAME_LENGTH: Final = MAX_NAME
MAX_PATTERN: Final = 256
MAX_COMMENT: Final = 1000
MAX_PATTERNS: Final = 100  # of one field
MAX_STARS: Final = 8  # of one pattern
MAX_RIGHTS: Final = 200
QUEUE_PATTERN: Final = re.compile(r"[a-z0-9./*-]+")
APP_PATTERN: Final = re.compile(r"\*|/[a-z0-9./*-]*")

Problem = Callable[[str], str]  # why a value cannot be taken; "": it can


def texts(
    check: Check, key: str, most: int, problem: Problem, *, default: Iterable[str] = ()
) -> tuple[str, ...]:
    """A list of texts, each once; what is wrong with each is told with its place."""
    given = check.given.get(key)
    if given is None:
        return tuple(default)
    if not isinstance(given, list) or len(given) > most:
        check.problem(key, f"must be a list of at most {most} strings, got {_count(given)}")
        return tuple(default)
    for index, item in enumerate(given):
        why = problem(item) if isinstance(item, str) else f"must be a string, got {show(item)}"
        if not why and item in given[:index]:
            why = f"is there twice: {show(item)}"
        if why:
            check.problem(f"{key}/{index}", why)
    return tuple(item for item in given if isinstance(item, str))


def _count(given: object) -> str:
    return f"{len(given)}" if isinstance(given, list) else show(given)


def name_problem(text: str) -> str:
    """Why a text cannot be somebody's name, or a group's."""
    if not 0 < len(text) <= MAX_NAME_LENGTH:
        return f"must have 1 to {MAX_NAME_LENGTH} characters, got {show(text)}"
    if not text.isprintable() or text != text.strip():
        return f"must be printable, without blanks at its ends, got {show(text)}"
    if EVERYTHING in text:
        return f"must be exact: {show(text)} has a *, which stands for everybody only alone, in names"
    return ""


def pattern_problem(pattern: re.Pattern[str] | None, form: str) -> Problem:
    """Why a text cannot be a pattern whose characters are those of `pattern`; None: all that are printable."""

    def problem(text: str) -> str:
        allowed = pattern.fullmatch(text) if pattern else text.isprintable() and text == text.strip()
        if not text or not allowed:
            return f"must be {form}, got {show(text)}"
        if len(text) > MAX_PATTERN or text.count(EVERYTHING) > MAX_STARS:
            return f"must have at most {MAX_PATTERN} characters and {MAX_STARS} times *, got {show(text)}"
        return ""

    return problem


def right_problem(text: str) -> str:
    """Why a text gives no right."""
    if len(text) > MAX_PATTERN or not text.isprintable() or text.count(EVERYTHING) > MAX_STARS:
        bounds = f"at most {MAX_PATTERN} characters and {MAX_STARS} times *"
        return f"must be printable and have {bounds}, got {show(text)}"
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def rights(check: Check, *, default: Iterable[str] = ()) -> tuple[str, ...]:
    """The field `rights`."""
    return texts(check, "rights", MAX_RIGHTS, right_problem, default=default)


_queue_problem: Final = pattern_problem(
    QUEUE_PATTERN, "a queue or a pattern of queues, as research or research-*"
)
_app_problem: Final = pattern_problem(
    APP_PATTERN, "the path of an app or a pattern of them, as /shop or /shop/*"
)


def queues(check: Check) -> tuple[str, ...]:
    """The field `queues`; without it: all."""
    return texts(check, "queues", MAX_PATTERNS, _queue_problem, default=(EVERYTHING,))


def apps(check: Check) -> tuple[str, ...]:
    """The field `apps`; without it: all. `*` is written `/*`, as every path begins with a slash."""
    given = texts(check, "apps", MAX_PATTERNS, _app_problem, default=(ALL_APPS,))
    return tuple(dict.fromkeys(ALL_APPS if each == EVERYTHING else each for each in given))


def line(check: Check, key: str, most: int) -> str:
    """A text of one line; without it: ""."""
    given = check.given.get(key, "")
    if not isinstance(given, str) or len(given) > most or not given.isprintable():
        check.problem(key, f"must be one line of at most {most} printable characters, got {show(given)}")
        return ""
    return given


def name(check: Check) -> str:
    """The field `name`, somebody's; without it: ""."""
    given = line(check, "name", MAX_NAME_LENGTH)
    if given and (why := name_problem(given)):
        check.problem("name", why)
    return given


def objects(check: Check, key: str, most: int) -> list[Any]:
    """A list whose items are for others to read; without it: none."""
    given = check.given.get(key, [])
    if not isinstance(given, list) or len(given) > most:
        check.problem(key, f"must be a list of at most {most} objects, got {_count(given)}")
        return []
    return given
