"""Callbacks for changes of jobs and for events of apps.

All methods but `listen` and `tell` are for the engine's thread.
"""

from collections.abc import Callable, Sequence

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.apps.app_event import AppEvent
from mesos_gpu.model.ids import JobId
from mesos_gpu.scheduler.app_events import Follower


class Listeners:
    """Registered callbacks of the REST interface."""

    def __init__(self) -> None:
        self._of_jobs: list[Callable[[JobId, int], None]] = []
        self._of_apps: list[Callable[[Sequence[AppEvent]], None]] = []
        self._follower: Follower | None = None  # while there are callbacks of apps
        self._happened: list[AppEvent] = []  # in the current batch

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call a function with the id and version of each job that changes; return the function that ends this."""
        self._of_jobs = [*self._of_jobs, callback]

        def unlisten() -> None:
            self._of_jobs = [other for other in self._of_jobs if other is not callback]

        return unlisten

    def tell(self, callback: Callable[[Sequence[AppEvent]], None]) -> Callable[[], None]:
        """Call a function with what happens to apps from now on; return the function that ends this."""
        self._of_apps = [*self._of_apps, callback]

        def untell() -> None:
            self._of_apps = [other for other in self._of_apps if other is not callback]

        return untell

    def publish(self, effect: fx.Publish) -> None:
        """Call back with a change of a job."""
        for listener in self._of_jobs:
            listener(effect.job_id, effect.version)

    def begin(self, state: State) -> None:
        """Track apps from now on if there are callbacks for apps, since tracking costs time."""
        self._follower = (self._follower or Follower(state)) if self._of_apps else None

    def forget(self) -> None:
        """Forget the tracked apps, because the state was replaced."""
        self._follower = None

    def follow(self, event: ev.Event, effects: Sequence[fx.Effect], state: State, now: float) -> None:
        """Record the effects of a step on apps."""
        if self._follower:
            self._happened += self._follower.follow(event, effects, state, now)

    def refused(self, event: ev.Event, error: MesosGpuError, now: float) -> None:
        """Record that a change was refused."""
        if self._follower:
            self._happened += self._follower.refused(event, error.what, now)

    def tell_saved(self) -> None:
        """Report the recorded events of apps, which are saved by now."""
        happened, self._happened = self._happened, []
        for callback in self._of_apps if happened else ():
            callback(happened)
