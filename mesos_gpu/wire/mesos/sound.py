"""Validation that an object made from external data can be stored in the state and read back; pure functions."""

from functools import cache
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
#: Exceptions that hostile values cause while they are taken apart.
UNFIT: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


def sound(noun: T) -> T:
    """Return an object as the state will restore it. NaN becomes None in fields that may be None.

    Raises:
        ValueError: A field has another type than declared, text that is not UTF-8, or a number that JSON lacks.
    """
    try:
        again: T = _decoder(type(noun)).decode(msgspec.json.encode(noun))  # type: ignore[arg-type]
    except (msgspec.MsgspecError, *UNFIT) as error:
        raise ValueError(f"a {type(noun).__name__} cannot be stored: {error}") from error
    return again


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
