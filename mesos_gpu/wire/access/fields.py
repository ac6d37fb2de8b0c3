"""Parsing of fields that access documents and tokens share: names, groups, patterns, rights; pure functions."""

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
MAX_PATTERNS: Final = 100  # patterns of one field
MAX_STARS: Final = 8  # asterisks in one pattern
MAX_RIGHTS: Final = 200
QUEUE_PATTERN: Final = re.compile(r"[a-z0-9./*-]+")
APP_PATTERN: Final = re.compile(r"\*|/[a-z0-9./*-]*")

Problem = Callable[[str], str]  # returns the problem of a text; "" if it is valid


def texts(
    check: Check, key: str, most: int, problem: Problem, *, default: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return a list of distinct texts; problems are reported with their index."""
    given = check.given.get(key)
    if given is None:
        return tuple(default)
    if not isinstance(given, list) or len(given) > most:
        check.problem(key, f"must be a list of at most {most} strings, got {_count(given)}")
        return tuple(default)
    for index, item in enumerate(given):
        why = problem(item) if isinstance(item, str) else f"must be a string, got {show(item)}"
        if not why and item in given[:index]:
            why = f"appears twice: {show(item)}; remove one"
        if why:
            check.problem(f"{key}/{index}", why)
    return tuple(item for item in given if isinstance(item, str))


def _count(given: object) -> str:
    return f"{len(given)}" if isinstance(given, list) else show(given)


def name_problem(text: str) -> str:
    """Return why a text is not valid as name of a user or group; "" if it is."""
    if not 0 < len(text) <= MAX_NAME_LENGTH:
        return f"must have 1 to {MAX_NAME_LENGTH} characters, got {show(text)}"
    if not text.isprintable() or text != text.strip():
        return f"must be printable, without blanks at its ends, got {show(text)}"
    if EVERYTHING in text:
        return f"must be exact, got {show(text)}; only a single * is possible, in names, for everyone"
    return ""


def pattern_problem(pattern: re.Pattern[str] | None, form: str) -> Problem:
    """Return a check of patterns; `pattern` matches the permitted characters, None permits all that are printable."""

    def problem(text: str) -> str:
        allowed = pattern.fullmatch(text) if pattern else text.isprintable() and text == text.strip()
        if not text or not allowed:
            return f"must be {form}, got {show(text)}"
        if len(text) > MAX_PATTERN or text.count(EVERYTHING) > MAX_STARS:
            return f"must have at most {MAX_PATTERN} characters and {MAX_STARS} asterisks, got {show(text)}"
        return ""

    return problem


def right_problem(text: str) -> str:
    """Return why a text is not a valid right; "" if it is."""
    if len(text) > MAX_PATTERN or not text.isprintable() or text.count(EVERYTHING) > MAX_STARS:
        bounds = f"at most {MAX_PATTERN} characters and {MAX_STARS} asterisks"
        return f"must be printable and have {bounds}, got {show(text)}"
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def rights(check: Check, *, default: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the rights in the field `rights`."""
    return texts(check, "rights", MAX_RIGHTS, right_problem, default=default)


_queue_problem: Final = pattern_problem(
    QUEUE_PATTERN, "a queue or a pattern of queues, as research or research-*"
)
_app_problem: Final = pattern_problem(
    APP_PATTERN, "the path of an app or a pattern of them, as /shop or /shop/*"
)


def queues(check: Check) -> tuple[str, ...]:
    """Return the patterns in the field `queues`; a pattern for all queues if absent."""
    return texts(check, "queues", MAX_PATTERNS, _queue_problem, default=(EVERYTHING,))


def apps(check: Check) -> tuple[str, ...]:
    """Return the patterns in the field `apps`; a pattern for all apps if absent. `*` becomes `/*`, as paths begin with
    /."""
    given = texts(check, "apps", MAX_PATTERNS, _app_problem, default=(ALL_APPS,))
    return tuple(dict.fromkeys(ALL_APPS if pattern == EVERYTHING else pattern for pattern in given))


def line(check: Check, key: str, most: int) -> str:
    """Return a text of one line; "" if absent."""
    given = check.given.get(key, "")
    if not isinstance(given, str) or len(given) > most or not given.isprintable():
        check.problem(key, f"must be one line of at most {most} printable characters, got {show(given)}")
        return ""
    return given


def name(check: Check) -> str:
    """Return the name in the field `name`; "" if absent."""
    given = line(check, "name", MAX_NAME_LENGTH)
    if given and (why := name_problem(given)):
        check.problem("name", why)
    return given


def objects(check: Check, key: str, most: int) -> list[Any]:
    """Return a list whose items the caller parses; an empty one if absent."""
    given = check.given.get(key, [])
    if not isinstance(given, list) or len(given) > most:
        check.problem(key, f"must be a list of at most {most} objects, got {_count(given)}")
        return []
    return given
