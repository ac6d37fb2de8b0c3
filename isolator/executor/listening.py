"""Reports of an executor on the ports of its task: at which ports the task, and no other process, listens.

The scheduler cannot see the sockets of a host, so it checks and exports only ports that the executor has proved.
"""

import time
from collections.abc import Collection
from typing import Final

from isolator.confinement.listeners import Listeners
from isolator.executor.life import Event, Kind
from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.wire.hosts.listening import encode_listening

#: Seconds after the start during which each round of the executor's upkeep checks the ports, until all are proved.
FIRST_S: Final = 60.0
LATER_S: Final = 1.0  # seconds between checks afterwards


class Watch:
    """Repeated check of a task's ports, from the start of the task."""

    def __init__(self, listeners: Listeners, ports: Collection[int]) -> None:
        """Prepare the check; the first one is made by `look`.

        Args:
            listeners: Proof of which sockets are the task's; owned by this object.
            ports: TCP ports of the host that the task was given.
        """
        self._listeners, self._ports = listeners, ports
        self._said = Listening()  # value in the executor's first status update
        self._begun = time.monotonic()
        self._next_at = 0.0

    def look(self) -> Event | None:
        """Check the ports if a check is due; return an event if the result changed, else None."""
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
        """Close the proof of listeners, and with it the file of the task's network."""
        self._listeners.close()
