"""What the REST interface asks of the scheduler."""

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
    """The latest events; from any thread. Numbers grow from one to the next."""

    @property
    def first(self) -> int:
        """The number of the oldest one that is kept; 0: there is none."""

    @property
    def last(self) -> int:
        """The number of the latest one; 0: there is none."""

    def after(self, number: int, most: int = ...) -> Sequence[LogEvent]:
        """At most so many that come after the one of that number, oldest first."""


class SchedulerApi(Protocol):
    """The calls of the scheduler; every future is resolved after what it did is saved."""

    @property
    def happened(self) -> Happened:
        """What has happened of late."""

    @property
    def unsaved(self) -> NoRoom | None:
        """The error why the state cannot be saved now; None if it can be. For any thread."""

    @property
    def journal_problem(self) -> str:
        """The reason why the journal is larger than it should be, or has ended; "" if neither. For any thread."""

    @property
    def meter(self) -> Collector:
        """What it counts and times of itself; from any thread."""

    @property
    def access(self) -> AccessDocument:
        """Who may do what, as it is now; from any thread."""

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id, as they are now; from any thread."""

    def note_token_use(self, token_id: str, address: str) -> None:
        """A token has proved a name, from `address` ("": a Unix socket); at each request, of which few are kept."""

    def request(self, change: Change[T] | Callable[[View], Change[T]]) -> Future[T]:
        """Take in a change that a user asks for, of a class of `mesos_gpu.engine.events`.

        The answer has the type that the class of the change says. It raises what the engine refuses the change with,
        and what a function raises that makes the change.

        Args:
            change: Change, or a function that makes it on the engine's thread from a view; it must be quick.
        """

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Call a task's executor to a channel; `answers` is told before, on the engine's thread, how it will prove that
        it was called. The future may raise `Conflict`: it does not run, or has no secret; or `Unavailable`."""

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` on the engine's thread: it must be quick, and only read."""

    def read_copy(self, fn: Callable[[View], T]) -> Future[T]:
        """Run `fn` over a copy of the state, on another thread than the engine; it may take long."""

    def tell(self, callback: Callable[[Sequence[AppEvent]], None]) -> Callable[[], None]:
        """Call back, on the engine's thread, with what happens to apps; returns the way out."""

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call back with (id, version) at each change; returns the way out."""
