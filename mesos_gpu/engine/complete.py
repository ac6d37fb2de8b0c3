"""Check of tables that need an entry for each kind of value, made when their module is imported."""

from collections import Counter
from collections.abc import Iterable


def see_complete(name: str, kinds: Iterable[type], needed: Iterable[type]) -> None:
    """Check that a table has each kind once, and no other.

    Args:
        name: Module and variable of the table, for the error.
        kinds: Kinds in the table.
        needed: Complete list of kinds.

    Raises:
        LookupError: A kind is missing, is listed twice, or is unknown.
    """
    table_counts, needed_counts = Counter(tuple(kinds)), Counter(tuple(needed))
    missing, extra = (
        sorted(map(_name, needed_counts - table_counts)),
        sorted(map(_name, table_counts - needed_counts)),
    )
    if missing or extra:
        raise LookupError(f"{name} lacks {missing or 'nothing'} and has {extra or 'nothing'} too much")


def _name(kind: type) -> str:
    return kind.__name__
