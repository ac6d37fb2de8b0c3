"""The keeper of an agent: it holds the agent's shared cards in Mesos, one task for each, so that nobody else is offered
them. It has no other duty: without it the shares of those cards run on, and the scheduler starts another.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from isolator.agent.agent_api import TERMINAL, Connection, Settings

#: A launch may be on its way while the last task is being ended: an executor that has gone by then would lose it.
LINGER_S: Final = 1.0


def call_later(action: Callable[[], None]) -> None:
    """Call a function after `LINGER_S`, on another thread."""
    timer = threading.Timer(LINGER_S, action)
    timer.daemon = True
    timer.start()


class Keeper:
    """`Handler` of the agent's events."""

    def __init__(self, settings: Settings, later: Callable[[Callable[[], None]], None] = call_later) -> None:
        """Nothing runs yet. `later`: calls a function some time after the keeper's last task has ended."""
        self._connection = Connection(settings, self)
        self._later = later
        self._lock = threading.Lock()
        self._tasks: set[str] = set()  # whose end the agent has not acknowledged
        self._ending: set[str] = set()
        self._launches = 0

    def run(self) -> int:
        """Run until its tasks have ended; the exit code."""
        return self._connection.run()

    def launch(self, task: Mapping[str, Any]) -> None:
        """Hold a card: a task that does nothing."""
        task_id = str(task["task_id"]["value"])
        with self._lock:
            self._tasks.add(task_id)
            self._launches += 1
        self._connection.update(task_id, "TASK_RUNNING", message=f"holds {task.get('name', 'a card')}")

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """Give a card back."""
        with self._lock:
            if task_id not in self._tasks or task_id in self._ending:
                return
            self._ending.add(task_id)
        self._connection.update(task_id, "TASK_KILLED", message="killed on request")

    def shutdown(self) -> None:
        """The agent wants it gone."""
        self._connection.finish()

    def acknowledged(self, task_id: str, state: str) -> None:
        """Finish a moment after the last task."""
        if state not in TERMINAL:
            return
        with self._lock:
            self._tasks.discard(task_id)
            if self._tasks:
                return
            launches = self._launches
        self._later(lambda: self._finish(launches))

    def message(self, data: bytes) -> None:
        """Nothing is said to a keeper."""

    def _finish(self, launches: int) -> None:
        """End, unless something was launched meanwhile."""
        with self._lock:
            if not self._tasks and self._launches == launches:
                self._connection.finish()


def main() -> int:
    """Run as an executor of Mesos: all settings are in the environment."""
    return Keeper(Settings.from_environment(os.environ)).run()
