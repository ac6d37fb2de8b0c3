"""Requests that wait for the engine's answer, and events on which the engine failed."""

import contextlib
import logging
import queue
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.errors import MesosGpuError, NoRoom
from mesos_gpu.model.saves import Save

T = TypeVar("T")
MAX_PASSED_OVER: Final = 1000  # status updates that are remembered
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that waits for its answer.

    Attributes:
        event: Event to step first, or a function that creates it on the engine's thread; None for a read.
        answer: Function that answers, called after the save.
        future: Future of the answer.
        id: Id of the request to the REST interface, for log lines.
        kept: Records to save together with the consequences of `event`.
        was_refused: Whether the engine refused the event; `answer` reports it.
    """

    event: ev.Event | Callable[[], ev.Event] | None
    answer: Callable[[], None]
    future: Future[Any]
    id: str = ""
    kept: tuple[Save, ...] = ()
    was_refused: bool = False

    @property
    def changes(self) -> bool:
        """Whether the request changes anything."""
        return self.event is not None or bool(self.kept)

    def refuse(self, error: Exception) -> None:
        """Answer with an error, unless the caller has cancelled the request."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def refused(self, error: MesosGpuError) -> "Request":
        """Return the request to wait instead: its refusal may depend on changes that are not saved yet."""
        return replace(self, answer=lambda: self.refuse(error), was_refused=True)

    def answer_unsaved(self, why: NoRoom) -> None:
        """Answer while changes cannot be saved: reads get the saved state, changes an error."""
        if not self.changes:
            self.answer()
        else:
            self.refuse(why if self.was_refused else half_done(why))


def asked(
    event: ev.Event | Callable[[], ev.Event] | None, fn: Callable[[], T], id: str, kept: tuple[Save, ...]
) -> tuple[Request, Future[T]]:
    """Return a request and its future, which gets the result or exception of `fn` run on the engine's thread.

    The other parameters are fields of `Request`.
    """
    future: Future[T] = Future()

    def answer() -> None:
        if not future.set_running_or_notify_cancel():
            return  # the caller has cancelled it
        try:
            future.set_result(fn())
        except Exception as error:  # noqa: BLE001 - any exception goes to the caller
            future.set_exception(error)

    return Request(event, answer, future, id, kept), future


def half_done(error: NoRoom) -> NoRoom:
    """Return the error for a change that was decided but waits in memory because the disk is full."""
    return NoRoom(
        f"{error.what}; the change is kept in memory, and takes effect when there is room",
        remedy=f"{error.remedy}; then check whether the change took effect before you repeat it",
    )


def refuse_all(in_hand: Iterable[object], later: Iterable[object], inbox: queue.SimpleQueue[Any]) -> None:
    """Answer all waiting requests that the scheduler stops; those `in_hand` may have been saved."""
    rest = [*later]
    with contextlib.suppress(queue.Empty):
        while True:
            rest.append(inbox.get_nowait())
    stopping = MesosGpuError("the scheduler is stopping", remedy="try again after its restart")
    unknown = MesosGpuError(
        f"{stopping.what}; whether the request took effect is unknown",
        remedy="check whether it took effect before you repeat it",
    )
    for error, items in ((unknown, in_hand), (stopping, rest)):
        for item in items:
            if isinstance(item, Request) and not item.future.done():
                item.future.set_exception(error if item.changes else stopping)


class SkippedUpdates:
    """Status updates on which the engine failed: they are acknowledged without effect. Only for the engine's thread.

    Mesos repeats an update until it is acknowledged, so the engine would fail again and again.
    """

    def __init__(self) -> None:
        self._updates: dict[tuple[str | None, str, str], None] = {}  # oldest first

    def add(self, item: ev.Event | Request) -> None:
        """Log the current exception for an item, answer its request with an error, and remember a status update."""
        event = item.event if isinstance(item, Request) else item
        logger.exception(
            "%.1000r caused an unexpected error: it is skipped and the state is reloaded; report this", event
        )
        if isinstance(item, Request):
            item.refuse(
                MesosGpuError(
                    "the scheduler failed on this request", remedy="see its log, and report the error"
                )
            )
        elif isinstance(item, ev.StatusArrived):
            self._updates[_key_of(item)] = None
            if len(self._updates) > MAX_PASSED_OVER:
                del self._updates[next(iter(self._updates))]

    def answer(self, event: ev.Event) -> list[fx.Effect] | None:
        """Return the acknowledgement of an update that failed before; None for other events."""
        if not isinstance(event, ev.StatusArrived) or _key_of(event) not in self._updates:
            return None
        status = event.status
        if status.agent_id is None or status.uuid is None:
            return []
        return [fx.Acknowledge(status.agent_id, status.task_id, status.uuid)]


def _key_of(event: ev.StatusArrived) -> tuple[str | None, str, str]:
    return event.status.agent_id, event.status.task_id, event.status.uuid or event.status.state
