"""Documents that are changed as a whole, by who has read the latest version."""

from dataclasses import replace
from typing import Final, TypeVar

from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.saves import NOUN_OF
from mesos_gpu.model.tenancy import QueueDocument

MAX_VERSIONS: Final = 50  # of each document, that are kept
Document = TypeVar("Document", AccessDocument, QueueDocument)


def take_next(turn: Turn, latest: Document, document: Document, read: int, again: str) -> bool:
    """Take it as the next version, unless it says what the latest says; whether it was.

    Args:
        turn: The step.
        latest: The version that holds.
        document: What was asked for; its version and time are of no account.
        read: The version that was read by who asks.
        again: The command that reads the latest.

    Raises:
        Conflict: Somebody else has changed it since it was read.
    """
    if read != latest.version:
        raise stale(latest.version, read, again)
    if _says(document) == _says(latest):
        return False
    turn.put(replace(document, version=latest.version + 1, at=turn.now))
    plural = NOUN_OF[type(document)].plural
    kept = getattr(turn.state.part_with(plural), plural)
    for version in sorted(kept)[:-MAX_VERSIONS]:
        turn.drop(type(document), version)
    return True


def stale(latest: int, read: int, again: str) -> Conflict:
    """What is told who has read an earlier version than the latest."""
    return Conflict(
        f"the document is at version {latest}, and version {read} was read",
        remedy=f"read it again ({again}), change that, and apply it",
    )


def _says(document: Document) -> Document:
    """What it says, but not when, by whom and why."""
    return replace(document, version=0, at=0.0, by="", comment="")
