"""What an executor tells of the ports of its task: whether the task listens there, and nobody else does.

A scheduler sees no sockets of a host: what it checks and exports are ports that were proved here.
"""

import time
from collections.abc import Collection
from typing import Final

from isolator.confinement.listeners import Listeners
from isolator.executor.life import Event, Kind
from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.wire.hosts.listening import encode_listening

FIRST_S: Final = (
    60.0  # for so long each look of the executor's upkeep is one at the ports, until all are proved
)
LATER_S: Final = 1.0  # between looks afterwards


class Watch:
    """A watch of a task's ports, from its start on."""

    def __init__(self, listeners: Listeners, ports: Collection[int]) -> None:
        """Nothing is looked at yet.

        Args:
            listeners: Which sockets are the task's; the task's end closes it.
            ports: Of the host.
        """
        self._listeners, self._ports = listeners, ports
        self._said = Listening()  # as the executor's first update has it
        self._begun = time.monotonic()
        self._next_at = 0.0

    def look(self) -> Event | None:
        """Look if it is time to; None if nothing has changed."""
        now = time.monotonic()
        if now < self._next_at:
            return None
        try:
            seen = Listening(*self._listeners.proved(self._ports))
        except OSError as error:
            seen = Listening((), f"the ports of the task cannot be looked at: {error.strerror}")
        if len(seen.ports) == len(self._ports) or now - self._begun > FIRST_S:
            self._next_at = now + LATER_S
        if seen == self._said:
            return None
        self._said = seen
        words = seen.problem or f"the task listens at {len(seen.ports)} of its {len(self._ports)} ports"
        return Event(Kind.LISTENING, message=words, payload=encode_listening(seen))

    def close(self) -> None:
        """End it."""
        self._listeners.close()
