"""State of a standby scheduler for the REST interface: a copy of the leader's state, reloaded as it changes."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.ids import JobId
from mesos_gpu.scheduler.figures.meter import Meter
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.wire.channel.call import Call

T = TypeVar("T")
MIN_S: Final = 1.0  # between two loads
LOADING: Final = 10  # minimum interval between loads, as a multiple of a load's duration
_READ_AT_ONCE: Final = 1  # the first reader computes the values derived from a state


class Copy:
    """Read-only implementation of `SchedulerApi` for a standby; changes are refused.

    Loaded on the thread that follows the log; read on any.

    Args:
        local: Local store, loaded on the first `follow`.
        settings: Settings of the engine.
    """

    def __init__(self, local: SqliteStore, settings: Settings) -> None:
        self._local, self._settings = local, settings
        self._began = time.time()
        self._batch, self._took_s, self._loaded_at = -1, 0.0, 0.0
        self._state = State(self._began)
        self.happened, self.meter = EventLog(), Meter()
        self._fresh_at: float | None = None  # monotonic time at which this copy was last known complete
        self._readers = ThreadPoolExecutor(_READ_AT_ONCE, "copy")
        self.unsaved, self.journal_problem = None, ""  # only the leader saves and has a journal
        self.connected = False  # whether a leader is known

    def follow(self, complete_at: float | None, *, urgent: bool = False) -> None:
        """Reload the state if the store has news and enough time has passed.

        Args:
            complete_at: Monotonic time at which the log had no entries beyond the store; None if it may have more.
            urgent: Whether to load at once, because access rights have changed.
        """
        now = time.monotonic()
        is_due = urgent or now - self._loaded_at >= max(MIN_S, LOADING * self._took_s)
        if self._batch != self._local.batch and is_due:
            state = State.restored(self._began, self._local.load())
            self.happened = EventLog(self._local.events())
            self._state, self._batch = state, self._local.batch
            self._loaded_at, self._took_s = now, time.monotonic() - now
        if complete_at is not None and self._batch == self._local.batch:
            self._fresh_at = complete_at

    @property
    def is_behind(self) -> bool:
        """Whether the store has changes that are not loaded yet."""
        return self._batch != self._local.batch

    def age_s(self) -> float | None:
        """Return the maximum age of the copy in seconds; None before the first load."""
        return None if self._fresh_at is None else time.monotonic() - self._fresh_at

    def knows(self, token_id: str) -> bool:
        """Return whether the copy has a token of this id."""
        return token_id in self._state.rights.tokens

    @property
    def access(self) -> AccessDocument:
        """The access document."""
        return self._state.rights.access

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id."""
        return self._state.rights.tokens

    def note_token_use(self, token_id: str, address: str) -> None:
        """Do nothing: the leader records token use."""

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` over the copy on another thread."""
        return self._readers.submit(lambda: fn(self._view()))

    read_copy = read

    def _view(self) -> View:
        state = self._state
        state.mesos.connected = self.connected
        return View(state, self._settings, time.time())

    def listen(self, _callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Register nothing: long-polling callers are forwarded to the leader."""
        return _nothing

    tell = listen

    def request(self, change: ev.Change[T] | Callable[[View], ev.Change[T]]) -> Future[T]:
        """Refuse the change, which only the leader accepts."""
        return _refused()

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Refuse the call, which only the leader makes."""
        return _refused()

    def close(self) -> None:
        """Stop the reader threads."""
        self._readers.shutdown()


def _nothing() -> None:
    """Do nothing: `listen` registered nothing."""


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(
        Unavailable(
            "this scheduler is a standby and takes no changes",
            remedy="send the request to the leading scheduler",
        )
    )
    return future
