"""Versions of the access document, which says what each user may do."""

from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.engine.versions import take_next

READ_AGAIN: Final = "mesos-gpu access show"


def on_access_changed(turn: Turn, event: ev.AccessChanged) -> None:
    """Save a new version of the access document, unless it equals the latest one.

    Raises:
        Conflict: Another version was saved since the document was read.
    """
    take_next(turn, turn.state.rights.access, event.document, event.expected_version, READ_AGAIN)
