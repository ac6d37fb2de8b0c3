"""Whether a noun that was made of others' words can be kept: written into the state, and read from it again. Pure."""

from functools import cache
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
#: What hostile values raise where they are taken apart.
UNFIT: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)


def sound(noun: T) -> T:
    """The noun as the state will have it. A number that is none (NaN) is None where that may be.

    Raises:
        ValueError: A field has another type than it is declared with, text that is no UTF-8, or a number that JSON has
            not.
    """
    try:
        again: T = _decoder(type(noun)).decode(msgspec.json.encode(noun))  # type: ignore[arg-type]
    except (msgspec.MsgspecError, *UNFIT) as error:
        raise ValueError(f"a {type(noun).__name__} that cannot be kept: {error}") from error
    return again


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
