"""Versions of documents that are replaced as a whole by a user who has read the latest version."""

from dataclasses import replace
from typing import Final, TypeVar

from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.saves import NOUN_OF
from mesos_gpu.model.tenancy import QueueDocument

MAX_VERSIONS: Final = 50  # versions of each document that are saved
Document = TypeVar("Document", AccessDocument, QueueDocument)


def take_next(turn: Turn, latest: Document, document: Document, read: int, again: str) -> bool:
    """Save a document as the next version, unless it equals the latest one.

    Args:
        latest: Version that is valid now.
        document: Document to save; its version and time do not count.
        read: Version that the user has read.
        again: Command that reads the latest version.

    Returns:
        Whether it was saved.

    Raises:
        Conflict: Another version was saved since it was read.
    """
    if read != latest.version:
        raise stale(latest.version, read, again)
    if _content(document) == _content(latest):
        return False
    turn.put(replace(document, version=latest.version + 1, at=turn.now))
    plural = NOUN_OF[type(document)].plural
    kept = getattr(turn.state.part_with(plural), plural)
    for version in sorted(kept)[:-MAX_VERSIONS]:
        turn.drop(type(document), version)
    return True


def stale(latest: int, read: int, again: str) -> Conflict:
    """Return the error for a user who has read an earlier version than the latest."""
    return Conflict(
        f"the document is at version {latest}, and version {read} was read",
        remedy=f"read it again ({again}), repeat the change, and apply it",
    )


def _content(document: Document) -> Document:
    """Return a document without version, time, author and comment."""
    return replace(document, version=0, at=0.0, by="", comment="")
