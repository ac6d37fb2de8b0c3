"""Interface of the scheduler to the REST interface."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from prometheus_client.registry import Collector

from mesos_gpu.engine.events import Change
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app_event import AppEvent
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.wire.channel.call import Call

T = TypeVar("T")


class Happened(Protocol):
    """The latest events, in order of their growing numbers. For any thread."""

    @property
    def first(self) -> int:
        """Number of the oldest available event; 0 without events."""

    @property
    def last(self) -> int:
        """Number of the latest event; 0 without events."""

    def after(self, number: int, most: int = ...) -> Sequence[LogEvent]:
        """Return up to `most` events with a greater number than the given one, oldest first."""


class SchedulerApi(Protocol):
    """Methods of the scheduler. A future is resolved after the state with its change is saved."""

    @property
    def happened(self) -> Happened:
        """The latest events."""

    @property
    def unsaved(self) -> NoRoom | None:
        """Error that keeps the state from being saved now; None if it can be saved. For any thread."""

    @property
    def journal_problem(self) -> str:
        """Reason for which the journal is too large or is not written any more; "" if neither. For any thread."""

    @property
    def meter(self) -> Collector:
        """Metrics of the scheduler itself. For any thread."""

    @property
    def access(self) -> AccessDocument:
        """The current access document: users, roles and rights. For any thread."""

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Current tokens by id. For any thread."""

    def note_token_use(self, token_id: str, address: str) -> None:
        """Record that a token was used, from `address` ("" for a Unix socket). Of frequent uses, few are saved."""

    def request(self, change: Change[T] | Callable[[View], Change[T]]) -> Future[T]:
        """Carry out a change that a user requests; the future's type is declared by the class of the change.

        The future raises the error with which the engine refuses the change, or that of the function that makes it.

        Args:
            change: Change of a class of `mesos_gpu.engine.events`, or a function that makes it from a view on the
                engine's thread; the function must be quick.
        """

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Ask a task's executor to connect to a channel.

        Before that, `answers` is called on the engine's thread with the text by which the executor will prove that it
        was called. The future may raise `Conflict` if the task does not run or has no secret, or `Unavailable`.
        """

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` on the engine's thread; it must be quick and must not change anything."""

    def read_copy(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` over a copy of the state on another thread than the engine's; it may take long."""

    def tell(self, callback: Callable[[Sequence[AppEvent]], None]) -> Callable[[], None]:
        """Call `callback` on the engine's thread with events of apps; return a function that ends this."""

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call `callback` on the engine's thread with id and version of each changed job; return a function to stop."""
