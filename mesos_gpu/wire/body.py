"""JSON that somebody sent, within limits: what is beyond them costs no more than to see it. Pure.

Executors import it, too: the standard library only.
"""

import json
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64  # of objects and lists in each other
MAX_VALUES: Final = 100_000  # of a document, however deep
MAX_APP_VALUES: Final = 16 * MAX_VALUES  # of a document of apps and groups, of 16 times the bytes
MAX_ITEMS: Final = 10_000  # of one object or list
MAX_KEY: Final = 4096  # characters of a field's name
MAX_TEXT: Final = 1 << 17  # characters of a string: as much as Linux takes as one argument (MAX_ARG_STRLEN)
MAX_DIGITS: Final = 100  # of an integer
_INFINITY: Final = float("inf")  # `math` would cost each executor's start
_LARGEST: Final = 10**MAX_DIGITS
MAX_AMOUNT: Final = 1 << 53  # of whole numbers that hosts report: a float holds them exactly
_Path = tuple["_Path", str | int] | None  # the way to a value, its end first
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair; it may be alone
_LONE: Final = re.compile(r"[\ud800-\udfff]")  # what is left when pairs have become characters


def parsed(text: str | bytes) -> Any:
    """What another program of ours, an engine, a registry or a file says: of any size that was read, but nothing that
    breaks who goes on with it. Half of a surrogate pair, which is no character, stands there as its escape.

    Raises:
        ValueError: It is no JSON (RFC 8259), nested too deeply, or has a number that is not finite.
    """
    text = text if isinstance(text, str) else text.decode()
    value = _loaded(text)
    return _loaded(_LONE.sub(_shown, json.dumps(value, ensure_ascii=False))) if _HALF.search(text) else value


def decoded(body: bytes, most_values: int = MAX_VALUES) -> Any:
    """Return a body's value.

    Args:
        body: JSON in UTF-8.
        most_values: Largest number of values in it, however deep.

    Raises:
        ValueError: It is no JSON (RFC 8259), has a field twice, or is beyond a limit; the message says where.
    """
    text = body.decode()
    value = _loaded(text, object_pairs_hook=_once, parse_int=_whole)
    _look_through(value, most_values)
    if _HALF.search(text) and _LONE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("it has half of a surrogate pair, which is no character")
    return value


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _shown(half: re.Match[str]) -> str:
    return f"\\\\u{ord(half[0]):04x}"


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if abs(number) == _INFINITY:
        raise ValueError(f"{digits[:40]} is out of range")
    return number


def _whole(digits: str) -> int:
    if len(digits) > 1000:  # those take long to read; of others it is said where they are
        raise ValueError(f"{digits[:40]}... is out of range")
    return int(digits)


def _look_through(value: Any, most_values: int) -> None:
    """Look at every value, without recursion.

    Raises:
        ValueError: One is beyond a limit, or there are too many.
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
            f"{_pointer(path)} has a field whose name has {longest} characters; at most {MAX_KEY}"
        )


def _check(count: int, most: int, unit: str, path: _Path) -> None:
    if count > most:
        raise ValueError(f"{_pointer(path)} has {count} {unit}; at most {most}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object whose fields are all there once: of two, another reader could take the other."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"field {twice[:60]!r} is there twice")
    return fields


def _pointer(path: _Path) -> str:
    """Write the way to a value as a JSON pointer (RFC 6901), cut to what fits in a sentence."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
    pointer = "/" + "/".join(reversed(steps))
    return pointer if len(pointer) <= 100 else pointer[:97] + "..."
