"""Tables by kind that must have an entry for each kind: seen when their module is imported."""

from collections import Counter
from collections.abc import Iterable


def see_complete(name: str, kinds: Iterable[type], needed: Iterable[type]) -> None:
    """See that a table has each kind once, and no other.

    Args:
        name: The table, for who extends it: a module and its variable.
        kinds: What the table has.
        needed: All kinds that there are.

    Raises:
        LookupError: A kind is missing, is there twice, or is none of those that there are.
    """
    had, wanted = Counter(tuple(kinds)), Counter(tuple(needed))
    missing, extra = sorted(map(_name, wanted - had)), sorted(map(_name, had - wanted))
    if missing or extra:
        raise LookupError(f"{name} lacks {missing or 'nothing'} and has {extra or 'nothing'} too much")


def _name(kind: type) -> str:
    return kind.__name__
