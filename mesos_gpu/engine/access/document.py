"""Versions of the document that says who may do what."""

from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.engine.versions import take_next

READ_AGAIN: Final = "mesos-gpu access show"


def on_access_changed(turn: Turn, event: ev.AccessChanged) -> None:
    """Take it as the next version, unless it says what the latest says.

    Raises:
        Conflict: Somebody else has changed it since it was read.
    """
    take_next(turn, turn.state.rights.access, event.document, event.expected_version, READ_AGAIN)
