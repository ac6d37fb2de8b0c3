"""Versions of the document that says who may do what."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict
from mesos_gpu.model.access.document import AccessDocument

MOST_VERSIONS: Final = 50  # that are kept


def on_access_changed(turn: Turn, event: ev.AccessChanged) -> None:
    """Take it as the next version, unless it says what the latest says.

    Raises:
        Conflict: Somebody else has changed it since it was read.
    """
    state, latest = turn.state, turn.state.access
    if event.expected_version != latest.version:
        raise stale(latest, event.expected_version)
    if _rules_of(event.document) == _rules_of(latest):
        return
    turn.put(replace(event.document, version=latest.version + 1, at=turn.now))
    for version in sorted(state.access_versions)[:-MOST_VERSIONS]:
        turn.drop(AccessDocument, version)


def stale(latest: AccessDocument, read: int) -> Conflict:
    """What is told who has read an earlier version than the latest."""
    return Conflict(
        f"the document is at version {latest.version}, and version {read} was read",
        remedy="read it again (mesos-gpu access show), change that, and apply it",
    )


def _rules_of(document: AccessDocument) -> AccessDocument:
    """What it says, but not when, by whom and why."""
    return replace(document, version=0, at=0.0, by="", comment="")
