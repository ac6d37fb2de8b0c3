"""The state of a scheduler that stands by, as the REST interface reads it: a copy that others made, loaded anew when
there is more of it.
"""

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
LOADING: Final = 10  # that much longer than a load takes
_READ_AT_ONCE: Final = 1  # what is derived of a state is made by who reads it first


class Copy:
    """What `SchedulerApi` asks for, as far as a standby answers it: no change is taken.

    Loaded on the thread that follows the log; read on any.
    """

    def __init__(self, local: SqliteStore, settings: Settings) -> None:
        """`local`: as it is now."""
        self._local, self._settings = local, settings
        self._began = time.time()
        self._batch, self._took_s, self._loaded_at = -1, 0.0, 0.0
        self._state = State(self._began)
        self.happened, self.meter = EventLog(), Meter()
        self._fresh_at: float | None = None  # monotonic: when the leader had no more than this
        self._readers = ThreadPoolExecutor(_READ_AT_ONCE, "copy")
        self.unsaved, self.journal_problem = None, ""  # only the leader saves and has a journal
        self.connected = False  # whether a leader is known

    def follow(self, complete_at: float | None, *, urgent: bool = False) -> None:
        """Load anew, if there is more and it is time.

        Args:
            complete_at: Monotonic: when the log was seen to have no more than the store; None: it may have.
            urgent: Load now: who may do what has changed.
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
        """Whether there is more to load."""
        return self._batch != self._local.batch

    def age_s(self) -> float | None:
        """How old what is read here is at most; None: nothing was loaded yet."""
        return None if self._fresh_at is None else time.monotonic() - self._fresh_at

    def knows(self, token_id: str) -> bool:
        """Whether there is such a token here."""
        return token_id in self._state.rights.tokens

    @property
    def access(self) -> AccessDocument:
        """Who may do what."""
        return self._state.rights.access

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id."""
        return self._state.rights.tokens

    def note_token_use(self, token_id: str, address: str) -> None:
        """Keep nothing: the leader notes what it is asked."""

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` over the copy, on a thread of its own."""
        return self._readers.submit(lambda: fn(self._view()))

    read_copy = read

    def _view(self) -> View:
        state = self._state
        state.mesos.connected = self.connected
        return View(state, self._settings, time.time())

    def listen(self, _callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Tell nothing: who waits for something new is the leader's."""
        return _nothing

    tell = listen

    def request(self, change: ev.Change[T] | Callable[[View], ev.Change[T]]) -> Future[T]:
        """Refuse a change, which only the leader takes."""
        return _refused()

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Refuse to call a task to a channel, which only the leader does."""
        return _refused()

    def close(self) -> None:
        """Let go of the thread."""
        self._readers.shutdown()


def _nothing() -> None:
    """Listen no more."""


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(Unavailable("this scheduler stands by", remedy="ask the one that leads"))
    return future
