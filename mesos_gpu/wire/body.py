"""Parsing of JSON from others, within limits that bound the cost of hostile input; pure functions.

Executors import it, so it uses only the standard library.
"""

import json
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64  # nesting of objects and lists
MAX_VALUES: Final = 100_000  # of a document, at any depth
#: Most values of a document of apps and groups, which may have 16 times as many bytes.
MAX_APP_VALUES: Final = 16 * MAX_VALUES
MAX_ITEMS: Final = 10_000  # of one object or list
MAX_KEY: Final = 4096  # characters of a field's name
MAX_TEXT: Final = 1 << 17  # characters of a string: the limit of Linux for one argument (MAX_ARG_STRLEN)
MAX_DIGITS: Final = 100  # of an integer
_INFINITY: Final = float("inf")  # importing `math` would slow the start of executors
_LARGEST: Final = 10**MAX_DIGITS
MAX_AMOUNT: Final = 1 << 53  # of whole numbers that hosts report; floats are exact up to it
_Path = tuple["_Path", str | int] | None  # keys from a value up to the root
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escaped half of a surrogate pair, possibly alone
_LONE: Final = re.compile(r"[\ud800-\udfff]")  # halves that remain when pairs have become characters


def parsed(text: str | bytes) -> Any:
    """Parse JSON from our own programs, an engine, a registry or a file, without limits of size.

    The result is safe to process further: an unpaired surrogate, which is no character, is replaced by its escape.

    Raises:
        ValueError: The text is not JSON (RFC 8259), is nested too deeply, or has a number that is not finite.
    """
    text = text if isinstance(text, str) else text.decode()
    value = _loaded(text)
    return _loaded(_LONE.sub(_shown, json.dumps(value, ensure_ascii=False))) if _HALF.search(text) else value


def decoded(body: bytes, most_values: int = MAX_VALUES) -> Any:
    """Parse the JSON body of a request, within limits.

    Args:
        body: JSON in UTF-8.
        most_values: Largest number of values in it, at any depth.

    Raises:
        ValueError: The body is not JSON (RFC 8259), has a field twice, or exceeds a limit; the message says where.
    """
    text = body.decode()
    value = _loaded(text, object_pairs_hook=_once, parse_int=_whole)
    _look_through(value, most_values)
    if _HALF.search(text) and _LONE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("it has an unpaired surrogate, which is not a character; remove it")
    return value


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _shown(half: re.Match[str]) -> str:
    return f"\\\\u{ord(half[0]):04x}"


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if abs(number) == _INFINITY:
        raise ValueError(f"{digits[:40]} is out of range")
    return number


def _whole(digits: str) -> int:
    if (
        len(digits) > 1000
    ):  # converting these would take long; shorter ones are reported later, with their place
        raise ValueError(f"{digits[:40]}... is out of range")
    return int(digits)


def _look_through(value: Any, most_values: int) -> None:
    """Check every value against the limits, without recursion.

    Raises:
        ValueError: A value exceeds a limit, or there are too many values.
    """
    level: list[tuple[Any, _Path]] = [(value, None)]
    seen = 0
    for _ in range(MAX_DEPTH):
        below: list[tuple[Any, _Path]] = []
        for each, path in level:
            if isinstance(each, dict):
                _look_at_keys(each, path)
                below += [(item, (path, key)) for key, item in each.items()]
            elif isinstance(each, list):
                _check(len(each), MAX_ITEMS, "items", path)
                below += [(item, (path, i)) for i, item in enumerate(each)]
            elif isinstance(each, str):
                _check(len(each), MAX_TEXT, "characters", path)
            elif isinstance(each, int) and not -_LARGEST < each < _LARGEST:
                raise ValueError(f"{_pointer(path)} is an integer of more than {MAX_DIGITS} digits")
        seen += len(below)
        _check(seen, most_values, "values", None)
        if not below:
            return
        level = below
    raise ValueError(f"{_pointer(level[0][1])} is nested deeper than {MAX_DEPTH}")


def _look_at_keys(value: dict[str, Any], path: _Path) -> None:
    _check(len(value), MAX_ITEMS, "fields", path)
    longest = max(map(len, value), default=0)
    if longest > MAX_KEY:
        raise ValueError(
            f"{_pointer(path)} has a field whose name has {longest} characters, more than {MAX_KEY}"
        )


def _check(count: int, most: int, unit: str, path: _Path) -> None:
    if count > most:
        raise ValueError(f"{_pointer(path)} has {count} {unit}, more than {most}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a repeated field is an error, as another reader might use the other value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"field {twice[:60]!r} appears twice")
    return fields


def _pointer(path: _Path) -> str:
    """Return keys as a JSON pointer (RFC 6901), cut to 100 characters."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
    pointer = "/" + "/".join(reversed(steps))
    return pointer if len(pointer) <= 100 else pointer[:97] + "..."
