"""What the engine is given: who waits for its answer, and what it broke on."""

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
MAX_PASSED_OVER: Final = 1000  # updates that are remembered
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody waits for an answer: `event`, if any, is stepped first, and `kept` is saved with what follows from it;
    `answer` runs after the save."""

    event: ev.Event | Callable[[], ev.Event] | None  # made on the engine's thread, if need be
    answer: Callable[[], None]
    future: Future[Any]
    id: str = ""  # of the request to the REST interface, for lines of the log
    kept: tuple[Save, ...] = ()
    was_refused: bool = False  # by the engine; `answer` says it

    @property
    def changes(self) -> bool:
        """Whether it wants more than to look."""
        return self.event is not None or bool(self.kept)

    def refuse(self, error: Exception) -> None:
        """Answer with an error, unless the asker has gone."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def refused(self, error: MesosGpuError) -> "Request":
        """What waits in its place: the refusal, which may follow from what is not saved yet."""
        return replace(self, answer=lambda: self.refuse(error), was_refused=True)

    def answer_unsaved(self, why: NoRoom) -> None:
        """Answer while what was decided cannot be saved: who only looks is shown what is saved."""
        if not self.changes:
            self.answer()
        else:
            self.refuse(why if self.was_refused else half_done(why))


def asked(
    event: ev.Event | Callable[[], ev.Event] | None, fn: Callable[[], T], id: str, kept: tuple[Save, ...]
) -> tuple[Request, Future[T]]:
    """A request whose future has what `fn` returns or raises, on the engine's thread; the rest as of `Request`."""
    future: Future[T] = Future()

    def answer() -> None:
        if not future.set_running_or_notify_cancel():
            return  # the asker has gone
        try:
            future.set_result(fn())
        except Exception as error:  # noqa: BLE001 - the asker gets it, whatever it is
            future.set_exception(error)

    return Request(event, answer, future, id, kept), future


def half_done(error: NoRoom) -> NoRoom:
    """For who asked for something when the disk turned full: it was decided, and is done when there is room."""
    return NoRoom(
        f"{error.what}; it is kept in memory, and done as soon as there is room",
        remedy=f"{error.remedy}; then see whether it was done, before you ask again",
    )


def refuse_all(in_hand: Iterable[object], later: Iterable[object], inbox: queue.SimpleQueue[Any]) -> None:
    """Answer those who wait that the scheduler ends; `in_hand`: what was being saved, and may have been."""
    rest = [*later]
    with contextlib.suppress(queue.Empty):
        while True:
            rest.append(inbox.get_nowait())
    stopping = MesosGpuError("the scheduler is stopping", remedy="try again when it is back")
    unknown = MesosGpuError(
        f"{stopping.what}; whether it did what was asked is not known",
        remedy="look whether it was done before you ask again",
    )
    for error, items in ((unknown, in_hand), (stopping, rest)):
        for item in items:
            if isinstance(item, Request) and not item.future.done():
                item.future.set_exception(error if item.changes else stopping)


class PassedOver:
    """What the engine broke on. Whose it is may lose it, nobody else: Mesos repeats an update until it is acknowledged,
    so that it would break on it again and again. Only for the engine's thread."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._updates: dict[tuple[str | None, str, str], None] = {}  # the latest last

    def add(self, item: ev.Event | Request) -> None:
        """Say it, with the error that is handled now, and remember it."""
        event = item.event if isinstance(item, Request) else item
        logger.exception("%.1000r is passed over, and the state read anew", event)
        if isinstance(item, Request):
            item.refuse(
                MesosGpuError("the scheduler broke on it", remedy="see its log, and tell who maintains it")
            )
        elif isinstance(item, ev.StatusArrived):
            self._updates[_key_of(item)] = None
            if len(self._updates) > MAX_PASSED_OVER:
                del self._updates[next(iter(self._updates))]

    def answer(self, event: ev.Event) -> list[fx.Effect] | None:
        """What is done with it if it was passed over before: it is acknowledged; None: it was not."""
        if not isinstance(event, ev.StatusArrived) or _key_of(event) not in self._updates:
            return None
        status = event.status
        if status.agent_id is None or status.uuid is None:
            return []
        return [fx.Acknowledge(status.agent_id, status.task_id, status.uuid)]


def _key_of(event: ev.StatusArrived) -> tuple[str | None, str, str]:
    return event.status.agent_id, event.status.task_id, event.status.uuid or event.status.state
