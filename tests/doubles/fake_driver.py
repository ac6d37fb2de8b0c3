"""A driver that records its calls, a clock that a test sets, and a store that records its batches."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from mesos_gpu.errors import Unavailable
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.tasks.unknown import Listed
from tests.doubles.memory_store import MemoryStore


class FakeDriver:
    """A `Driver` that records (name, arguments) of each call in `calls`; `down` makes every call fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.down = False
        self.listed: list[Listed] = []  # answer of `tasks`
        self.on_call: Callable[[str], None] = lambda _: None
        self._changed = threading.Condition()

    def _note(self, name: str, arguments: Any = None) -> None:
        if self.down:
            raise Unavailable("the master is away", remedy="wait")
        self.on_call(name)
        with self._changed:
            self.calls.append((name, arguments))
            self._changed.notify_all()

    def wait_for(self, name: str, timeout_s: float = 60) -> Any:
        """Wait for the first call of a name, and return its arguments."""

        def found() -> list[Any]:
            return [arguments for call, arguments in self.calls if call == name]

        with self._changed:
            assert self._changed.wait_for(lambda: bool(found()), timeout_s), f"no {name} in {self.calls}"
            return found()[0]

    def start(self) -> None:
        self._note("start")

    def stop(self, *, teardown: bool) -> None:
        self.calls.append(("stop", teardown))

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Record the call; reservations and unreservations are separate calls."""
        for name, resources in (("unreserve", unreserve), ("reserve", reserve)):
            if resources:
                self._note(name, list(resources))
        self._note("accept", (tuple(offer_ids), list(task_infos)))

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        self._note("decline", (tuple(offer_ids), refuse_s))

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        self._note("acknowledge", (agent_id, task_id, uuid))

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        self._note("kill", (task_id, agent_id, grace_s))

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        self._note("reconcile", tuple(tasks))

    def tasks(self) -> Sequence[Listed]:
        self._note("tasks")
        return self.listed

    def roles(self) -> Sequence[Role]:
        self._note("roles")
        return []

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        self._note("message", (agent_id, executor_id, data))

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        self._note("shutdown", (agent_id, executor_id))

    def suppress(self, roles: Sequence[str] = ()) -> None:
        self._note("suppress", *roles)

    def revive(self, roles: Sequence[str] = ()) -> None:
        self._note("revive", *roles)

    def resubscribe(self) -> None:
        self._note("resubscribe")


class FakeClock:
    """Clock that a test sets. It can be set between two turns of an engine's thread, after all earlier events."""

    def __init__(self, now: float = 1000.0) -> None:
        self._time = now
        self._between_turns: Callable[[Callable[[Any], None]], Future[None]] | None = None

    def set_between_turns(self, read: Callable[[Callable[[Any], None]], Future[None]] | None) -> None:
        """Set the clock on an engine's thread from now on, by `Daemon.read`; None sets it at once again."""
        self._between_turns = read

    @property
    def time(self) -> float:
        """Time of the clock, in seconds since the epoch."""
        return self._time

    @time.setter
    def time(self, value: float) -> None:
        if self._between_turns is None:
            self._time = value
        else:
            self._between_turns(lambda _: setattr(self, "_time", value)).result(60)

    def now(self) -> float:
        """Return the time of the clock."""
        return self._time


class RecordingStore(MemoryStore):
    """A `Store` in memory that records saved batches; `full` makes saves fail as a full disk does."""

    def __init__(self, saved: Saved | None = None) -> None:
        super().__init__(saved)
        self.batches: list[list[Save]] = []
        self.full = False

    def save(self, batch: Iterable[Save]) -> None:
        """Record and commit a batch, or fail if the disk is full."""
        if self.full:
            raise OSError(28, "No space left on device")
        self.batches.append(list(batch))
        super().save(self.batches[-1])
