"""The shell around the engine: one thread takes events, steps the engine, saves, and then executes the effects.

Requests of the REST interface and events of the driver wait in one queue. A batch of them is stepped, its saves are
committed in one transaction, and only then are calls sent to Mesos and answers to users.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar, cast

from mesos_gpu.api.http.note import request_id, within
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.answers import answer_to
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError, NoRoom
from mesos_gpu.model import saves
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.saves import Saved
from mesos_gpu.policy.apps.outward import Outward
from mesos_gpu.ports import Clock, Driver, SecretStore, Store
from mesos_gpu.scheduler.control import ClusterPorts
from mesos_gpu.scheduler.figures.meter import Meter
from mesos_gpu.scheduler.happenings.follow import EventSource
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.scheduler.listeners import Listeners
from mesos_gpu.scheduler.messages import Calls, call_executor
from mesos_gpu.scheduler.narrator import EventLogger
from mesos_gpu.scheduler.requests import Request, SkippedUpdates, asked, refuse_all
from mesos_gpu.scheduler.snapshots import Snapshots, Uses
from mesos_gpu.scheduler.watching import Watching
from mesos_gpu.wire.channel.call import Call

T = TypeVar("T")
TICK_S: Final = 0.25
NO_ROOM_S: Final = 1.0  # between attempts to write to a full disk
MAX_IN_BATCH: Final = 500  # counting items that arrive while the batch is collected
logger = logging.getLogger(__name__)


class _CopyReader:
    """Reader of a copy of the state on another thread; the engine waits only for the copy."""

    def __init__(self, read: Callable[[Callable[[View], View]], Future[View]]) -> None:
        self._read = read
        # Only one, because it competes with the engine for the processor.
        self._threads = ThreadPoolExecutor(1, "readers")

    def __call__(self, fn: Callable[[View], T]) -> Future[T]:
        """Return a future of the result of `fn`, which may be slow."""
        return self._threads.submit(lambda: fn(self._read(View.copied).result()))


class Daemon:
    """The scheduler's main object, started once; `stop` leaves tasks running unless told to end them.

    Args:
        store: Store that the state is saved to.
        saved: State that was loaded from the store.
        driver: Driver of the Mesos connection.
        clock: Source of the current time.
        settings: Settings of the engine.
        journal: Journal of the engine's steps; None to write none.
        key: Key from which launch secrets are derived, if the settings ask for sealed updates.
        secrets: Store of jobs' secrets; None without one.
        outward: Addresses that health checks may connect to; None for those that need no setting.
    """

    def __init__(
        self,
        store: Store,
        saved: Saved,
        driver: Driver,
        clock: Clock,
        settings: Settings,
        journal: Journal | None = None,
        key: bytes = b"",
        secrets: SecretStore | None = None,
        outward: Outward | None = None,
    ) -> None:
        self._key = key
        self._store, self._driver, self._clock, self._settings = store, driver, clock, settings
        self._journal = journal
        self._state = State.restored(clock.now(), saved)
        self._inbox: queue.SimpleQueue[ev.Event | Request | MesosGpuError | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []  # unanswered requests of the current batch
        self._watching = Watching(self.put, outward or Outward(), settings.programs.control_ports)
        self.meter = Meter()  # metrics; for any thread
        self._narrator = EventLogger(self._state, self.meter, settings.placing.levels)
        self.happened = EventLog(store.events())  # for any thread
        self._happenings = EventSource(self._state, self.happened)
        self._listeners = Listeners()
        self.listen, self.tell = self._listeners.listen, self._listeners.tell  # for any thread
        self._calls = Calls(driver, settings, key, secrets, self.put, self._listeners.publish)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.read_copy = _CopyReader(self.read)
        self._ended = threading.Event()
        self._late: list[ev.Event | Request] = []  # arrived while the state could not be saved
        self._passed_over = SkippedUpdates()
        self.unsaved: NoRoom | None = None  # why nothing can be saved now
        self._snapshots = Snapshots(self._state, store.load)
        self._uses, self._ports = Uses(), ClusterPorts(self._state)
        self._calls.look_at(self._state, self._ports)
        self.failure: BaseException | None = None  # what ended the engine's thread, if not `stop`

    # --- from any thread

    def start(self) -> None:
        """Start the engine's thread, then subscribe."""
        self._thread.start()
        self._driver.start()

    def stop(self, *, teardown: bool = False) -> None:
        """Leave the master and end the thread. With `teardown` every task ends."""
        try:
            self._driver.stop(teardown=teardown)
        finally:
            self._inbox.put(None)
            if self._thread.is_alive():
                self._thread.join()
            self._watching.stop()
            self._calls.close()
            self._store.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; return whether the engine's thread has ended."""
        return self._ended.wait(timeout_s)

    def put(self, event: ev.Event) -> None:
        """Enqueue an event, for example one of the driver."""
        self._inbox.put(event)

    def fail(self, error: MesosGpuError) -> None:
        """End the engine's thread with this failure, because the driver cannot continue."""
        self._inbox.put(error)

    @property
    def journal_problem(self) -> str:
        """Reason why the journal exceeds its size or has stopped; "" if neither. For any thread."""
        return self._journal.problem if self._journal else ""

    @property
    def access(self) -> AccessDocument:
        """The access document as last saved; for any thread."""
        return self._snapshots.access

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id as last saved; for any thread."""
        return self._snapshots.tokens

    def note_token_use(self, token_id: str, address: str) -> None:
        """Record that a token was used from `address` ("" for a Unix socket); cheap enough to call for each request."""
        if self._uses.is_new(token_id, self.tokens):
            self.put(ev.TokenUsed(token_id, address))

    def request(self, change: ev.Change[T] | Callable[[View], ev.Change[T]]) -> Future[T]:
        """Enqueue a change that a user requests.

        The result comes after the change and its consequences are saved; it raises the engine's refusal.

        Args:
            change: Change, or a quick function that makes it on the engine's thread from a view; what the function
                raises is raised by the answer.
        """
        if isinstance(change, ev.Change):
            return self._ask(cast("ev.Event", change), lambda: answer_to(self._state, change))
        changes: list[ev.Change[T]] = []

        def event() -> ev.Event:
            changes.append(change(self._view()))
            return cast("ev.Event", changes[0])

        return self._ask(event, lambda: answer_to(self._state, changes[0]))

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Return a future of the result of `fn`, which runs on the engine's thread: it must be quick and only read."""
        return self._ask(None, lambda: fn(self._view()))

    def _view(self) -> View:
        # Snapshots are read at that time, because recovery from a broken request replaces them.
        return self._snapshots.view(self._settings, self._clock.now(), str(self.unsaved or ""))

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Ask a task's executor to open a channel; see `SchedulerApi`."""
        return self._ask(None, lambda: call_executor(self._driver, self._state, call, self._key, answers))

    def keep(self, *kept: saves.Save) -> Future[None]:
        """Save records that do not affect the engine's decisions, with its next batch."""
        return self._ask(None, lambda: None, kept)

    def _ask(
        self,
        event: ev.Event | Callable[[], ev.Event] | None,
        fn: Callable[[], T],
        kept: tuple[saves.Save, ...] = (),
    ) -> Future[T]:
        request, future = asked(event, fn, request_id(), kept)
        self._inbox.put(request)
        if self._ended.is_set():
            refuse_all(self._waiting, self._late, self._inbox)
        return future

    # --- on the engine's thread

    def _run(self) -> None:
        """Process batches until the daemon is stopped or fails; the main function of the engine thread."""
        try:
            if self._journal:
                self._journal.begin(self._state, self._settings)
            while self._turn():
                pass
        except MesosGpuError as error:
            logger.error("%s", error)
            self.failure = error
        except BaseException as error:
            # The state in memory may be ahead of the disk: continuing could launch twice. A restart reconciles.
            logger.exception(
                "the engine stopped after an unexpected error; restart the scheduler and report this"
            )
            self.failure = error
        finally:
            if self._journal:
                self._journal.close()
            self._ended.set()
            refuse_all(self._waiting, self._late, self._inbox)

    def _turn(self) -> bool:
        """Step a batch of events; return whether to continue."""
        batch, go_on = self._collect()
        self._listeners.begin(self._state)
        self._waiting = [item for item in batch if isinstance(item, Request)]
        now = self._clock.now()
        pending: list[fx.Effect] = []
        origins: list[tuple[int, str]] = []  # (end of the item's effects, request id)
        broken = False
        for number, item in enumerate(batch):
            begin = len(pending)
            try:
                pending += self._step_item(item, now)
            except Exception:  # noqa: BLE001 - logged by `SkippedUpdates.add`
                broken = True
                self._passed_over.add(item)
                self._late = [*batch[number + 1 :], *self._late]
                self._waiting = [request for request in self._waiting if request not in batch[number:]]
                break
            if isinstance(item, Request):
                origins += [(begin, ""), (len(pending), item.id)]
        for event in () if broken else (ev.Tick(), ev.Match()):
            pending += self._step(event, now)
        if self._journal:
            self._journal.flush(self._state, self._settings)
        pending += self._happenings.follow(pending, self._state, now)
        self._save_at_last(pending)
        self._snapshots.saved(pending, now)
        self._ports.follow(pending)
        self._narrator.saved_by(pending, origins)
        self._narrator.look(
            self._state, now, self._settings.placing.uncovered_alarm_s, self._settings.tasks.roll_timeout_s
        )
        self._calls.make(pending)
        self._listeners.tell_saved()
        if (last := self._happenings.saved()) is not None:
            self._listeners.publish(fx.Publish(JobId(""), last))
        if any(isinstance(item, ev.Registered | ev.Disconnected) for item in batch):
            self._calls.void_owed()
        self._calls.give_back_owed()
        self._watching.look(self._state, now)
        for request in self._waiting:
            request.answer()
        if broken:
            self._reload_state()
        return go_on

    def _step_item(self, item: ev.Event | Request, now: float) -> list[fx.Effect]:
        if isinstance(item, Request):
            with within(item.id):
                return self._step_request(item, now)
        answer = self._passed_over.answer(item)
        return self._step(item, now) if answer is None else answer

    def _reload_state(self) -> None:
        """Replace the state in memory, which a failed step may have left inconsistent, by the saved one.

        Like a restart: Mesos reports everything else after the next subscription.
        """
        self._state = State.restored(self._clock.now(), self._store.load())
        self._narrator = EventLogger(self._state, self.meter, self._settings.placing.levels)
        self._snapshots = Snapshots(self._state, self._store.load)
        self._ports, self._happenings = ClusterPorts(self._state), EventSource(self._state, self.happened)
        self._calls.look_at(self._state, self._ports)
        self._listeners.forget()
        if self._journal:
            self._journal.begin(self._state, self._settings)
        self._driver.resubscribe()

    def _step(self, event: ev.Event, now: float) -> list[fx.Effect]:
        outcome: list[fx.Effect] | Exception = []
        try:
            outcome = self.meter.step(self._state, event, now, self._settings)
        except Exception as error:
            outcome = error
            raise
        finally:
            if self._journal:
                self._journal.note(event, outcome, now)
        self._narrator.heard(event)
        self._listeners.follow(event, outcome, self._state, now)
        return outcome

    def _step_request(self, request: Request, now: float) -> list[fx.Effect]:
        """Step a request; a refusal goes to its caller and has changed nothing."""
        event = None
        try:
            event = request.event() if callable(request.event) else request.event
            return [*request.kept, *(self._step(event, now) if event else ())]
        except MesosGpuError as error:
            if event:
                self._narrator.refused(event, error)
                self._listeners.refused(event, error, now)
            # Answered after the state that it saw is saved.
            self._waiting[self._waiting.index(request)] = request.refused(error)
            return []

    def _save_at_last(self, effects: list[fx.Effect]) -> None:
        """Save the effects, retrying until the disk has room; until then readers get the last saved state."""
        while True:
            try:
                if latest := saves.latest_of(effects):
                    self.meter.save(self._store, latest)
                elif any(request.changes for request in self._waiting):
                    self._store.confirm()
                break
            except NoRoom as error:
                if self.unsaved is None:
                    text = "%s; until this is fixed nothing is launched and all changes are refused: %s"
                    logger.error(text, error.what, error.remedy)
                self.unsaved = error
            waiting, self._waiting = self._waiting, []
            for request in waiting:
                request.answer_unsaved(self.unsaved)
            self._look_aside(self.unsaved)
        if self.unsaved is not None:
            self.unsaved = None
            logger.warning("the state can be written again; the scheduler continues")

    def _look_aside(self, why: NoRoom) -> None:
        """Handle the queue for a second while nothing can be saved: answer reads, refuse changes, keep Mesos'
        events."""
        until = time.monotonic() + NO_ROOM_S
        while (left_s := until - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if item is None or isinstance(item, MesosGpuError):
                raise item or why  # nothing of the batch was executed: the next start repeats it
            if isinstance(item, Request) and not item.changes:
                item.answer()
            elif isinstance(item, Request):
                item.refuse(why)
            elif not isinstance(
                item, ev.HealthFound | ev.ReadinessFound | ev.TokenUsed
            ):  # these are repeated later
                self._late.append(item)

    def _collect(self) -> tuple[list[ev.Event | Request], bool]:
        """Take all waiting items from the queue as a batch; return it, and whether to continue."""
        if self._late:
            batch, self._late = list(self._late), []
            return batch, True
        # Take all that waits: otherwise offers would fall further behind status updates while matches are slow.
        batch, max_items = [], max(MAX_IN_BATCH, self._inbox.qsize())
        with contextlib.suppress(queue.Empty):
            item = self._inbox.get(timeout=TICK_S)
            while item is not None:
                if isinstance(item, MesosGpuError):
                    if not batch:
                        raise item
                    self._inbox.put(item)  # items before it are saved first
                    return batch, True
                batch.append(item)
                if len(batch) >= max_items:
                    return batch, True
                item = self._inbox.get_nowait()
            return batch, False
        return batch, True
