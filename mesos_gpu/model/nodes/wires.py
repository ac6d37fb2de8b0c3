"""Versions of what schedulers, executors and node monitors say to each other (docs/wire.md).

A number grows with each change after which a reader who does not know it would do something wrong. What may be passed
over by who does not know it needs no new number.
"""

from typing import Final

SILENT: Final = 1  # of programs that say nothing of it: they are older than these numbers
WIRE: Final = 2  # that this program writes and reads
OLDEST: Final = 1  # the oldest that it still writes and reads


def common(wire: int, oldest: int) -> int:
    """The newest version that this program has in common with another one; 0: none.

    Args:
        wire: The newest that the other writes and reads.
        oldest: The oldest that it still does.
    """
    newest = min(wire, WIRE)
    return newest if newest >= max(oldest, OLDEST) else 0


def spoken(wire: int, oldest: int) -> str:
    """Versions in words: "wire 2", "wires 1 to 3"."""
    return f"wire {wire}" if wire == oldest else f"wires {oldest} to {wire}"
