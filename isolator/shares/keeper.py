"""Keeper: an executor that holds an agent's shared cards in Mesos, one task per card, so that they are not
offered.

It has no other duty: shares of the cards run on without it, and the scheduler starts another.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from isolator.agent.agent_api import TERMINAL, Connection, Settings

#: A launch may be under way while the last task ends; an executor that has exited by then would lose it.
LINGER_S: Final = 1.0


def call_later(action: Callable[[], None]) -> None:
    """Call a function after `LINGER_S`, on another thread."""
    timer = threading.Timer(LINGER_S, action)
    timer.daemon = True
    timer.start()


class Keeper:
    """`Handler` of the agent's events for the keeper.

    Args:
        settings: Connection settings from Mesos.
        later: Function that calls its argument some time after the last task has ended.
    """

    def __init__(self, settings: Settings, later: Callable[[Callable[[], None]], None] = call_later) -> None:
        self._connection = Connection(settings, self)
        self._later = later
        self._lock = threading.Lock()
        self._tasks: set[str] = set()  # tasks whose end the agent has not acknowledged
        self._ending: set[str] = set()
        self._launches = 0

    def run(self) -> int:
        """Run until all tasks have ended; return the exit code."""
        return self._connection.run()

    def launch(self, task: Mapping[str, Any]) -> None:
        """Hold a card by a task that does nothing."""
        task_id = str(task["task_id"]["value"])
        with self._lock:
            self._tasks.add(task_id)
            self._launches += 1
        self._connection.update(task_id, "TASK_RUNNING", message=f"holds {task.get('name', 'a card')}")

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """End the task that holds a card."""
        with self._lock:
            if task_id not in self._tasks or task_id in self._ending:
                return
            self._ending.add(task_id)
        self._connection.update(task_id, "TASK_KILLED", message="killed on request")

    def shutdown(self) -> None:
        """Exit, as the agent requests."""
        self._connection.finish()

    def acknowledged(self, task_id: str, state: str) -> None:
        """Exit some time after the end of the last task was acknowledged."""
        if state not in TERMINAL:
            return
        with self._lock:
            self._tasks.discard(task_id)
            if self._tasks:
                return
            launches = self._launches
        self._later(lambda: self._finish(launches))

    def message(self, data: bytes) -> None:
        """Ignore the message: keepers get none."""

    def _finish(self, launches: int) -> None:
        """Exit unless something was launched meanwhile."""
        with self._lock:
            if not self._tasks and self._launches == launches:
                self._connection.finish()


def main() -> int:
    """Run as an executor of Mesos: all settings are in the environment."""
    return Keeper(Settings.from_environment(os.environ)).run()
