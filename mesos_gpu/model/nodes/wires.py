"""Versions of the messages between schedulers, executors and node monitors (docs/wire.md).

The version grows with each change that a reader of the previous version would misunderstand. Additions that such a
reader can ignore need no new version.
"""

from typing import Final

SILENT: Final = 1  # assumed for programs that report no version: they are older than the field
WIRE: Final = 2  # newest version that this program reads and writes
OLDEST: Final = 1  # oldest version that it reads and writes


def common(wire: int, oldest: int) -> int:
    """Return the newest message version that this program shares with another; 0 without a common one.

    Args:
        wire: Newest version of the other program.
        oldest: Oldest version of the other program.
    """
    newest = min(wire, WIRE)
    return newest if newest >= max(oldest, OLDEST) else 0


def spoken(wire: int, oldest: int) -> str:
    """Return message versions as text: "wire 2", "wires 1 to 3"."""
    return f"wire {wire}" if wire == oldest else f"wires {oldest} to {wire}"
