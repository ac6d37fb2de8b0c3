"""The shell around the engine: one thread takes events, steps, saves, and then does the rest.

Requests of the REST interface and events of the driver wait in one queue. A batch of them is stepped, its
saves are committed in one transaction, and only then do calls leave for Mesos and answers for users.
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
from mesos_gpu.scheduler.happenings.follow import Happenings
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.scheduler.listeners import Listeners
from mesos_gpu.scheduler.messages import Calls, call_executor
from mesos_gpu.scheduler.narrator import Narrator
from mesos_gpu.scheduler.requests import PassedOver, Request, asked, refuse_all
from mesos_gpu.scheduler.snapshots import Snapshots, Uses
from mesos_gpu.scheduler.watching import Watching
from mesos_gpu.wire.channel.call import Call

T = TypeVar("T")
TICK_S: Final = 0.25
NO_ROOM_S: Final = 1.0  # until the disk is tried again
MAX_IN_BATCH: Final = 500  # of what comes while it is taken in
logger = logging.getLogger(__name__)


class _CopyReader:
    """Reads of a copy of the state on another thread; the engine waits only for the copy."""

    def __init__(self, read: Callable[[Callable[[View], View]], Future[View]]) -> None:
        self._read = read
        self._threads = ThreadPoolExecutor(1, "readers")  # one: it shares the processor with the engine

    def __call__(self, fn: Callable[[View], T]) -> Future[T]:
        """Return what `fn` returns, which may take long."""
        return self._threads.submit(lambda: fn(self._read(View.copied).result()))


class Daemon:
    """The scheduler. Made once, started once; `stop` leaves tasks running unless told otherwise."""

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
        """Take up what `store` had `saved`. Nothing runs yet. `key`: that secrets of launches are made of, if the
        settings want updates sealed. `secrets`: of jobs; None: there is no store of them. `outward`: where
        checks may go; None: where no setting is needed for."""
        self._key = key
        self._store, self._driver, self._clock, self._settings = store, driver, clock, settings
        self._journal = journal
        self._state = State.restored(clock.now(), saved)
        self._inbox: queue.SimpleQueue[ev.Event | Request | MesosGpuError | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []  # those of the batch in hand
        self._watching = Watching(self.put, outward or Outward(), settings.programs.control_ports)
        self.meter = Meter()  # what is counted and timed here, for any thread
        self._narrator = Narrator(self._state, self.meter, settings.placing.levels)
        self.happened = EventLog(store.events())  # for any thread
        self._happenings = Happenings(self._state, self.happened)
        self._listeners = Listeners()
        self.listen, self.tell = self._listeners.listen, self._listeners.tell  # for any thread
        self._calls = Calls(driver, settings, key, secrets, self.put, self._listeners.publish)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.read_copy = _CopyReader(self.read)
        self._ended = threading.Event()
        self._late: list[ev.Event | Request] = []  # that came while nothing could be saved
        self._passed_over = PassedOver()
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
        """Whether the engine's thread ended within `timeout_s`."""
        return self._ended.wait(timeout_s)

    def put(self, event: ev.Event) -> None:
        """An event of the driver."""
        self._inbox.put(event)

    def fail(self, error: MesosGpuError) -> None:
        """The driver cannot go on: end the engine's thread with this failure."""
        self._inbox.put(error)

    @property
    def journal_problem(self) -> str:
        """The reason why the journal is larger than it should be, or has ended; "" if neither. For any thread."""
        return self._journal.problem if self._journal else ""

    @property
    def access(self) -> AccessDocument:
        """Who may do what, as it was saved last; from any thread."""
        return self._snapshots.access

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Tokens by id, as they were saved last; from any thread."""
        return self._snapshots.tokens

    def note_token_use(self, token_id: str, address: str) -> None:
        """A token has proved a name, from `address` ("": a Unix socket); may be called at each request."""
        if self._uses.is_new(token_id, self.tokens):
            self.put(ev.TokenUsed(token_id, address))

    def request(self, change: ev.Change[T] | Callable[[View], ev.Change[T]]) -> Future[T]:
        """Take in a change that a user asks for.

        The answer comes after the change and what follows from it is saved; it raises what the engine refuses it with.

        Args:
            change: Change, or a quick function that makes it on the engine's thread from a view; what the function
                raises is raised by the answer.
        """
        if isinstance(change, ev.Change):
            return self._ask(cast("ev.Event", change), lambda: answer_to(self._state, change))
        made: list[ev.Change[T]] = []

        def event() -> ev.Event:
            made.append(change(self._view()))
            return cast("ev.Event", made[0])

        return self._ask(event, lambda: answer_to(self._state, made[0]))

    def read(self, fn: Callable[[View], T]) -> Future[T]:
        """Return what `fn` returns, which runs on the engine's thread: it must be quick, and only read."""
        return self._ask(None, lambda: fn(self._view()))

    def _view(self) -> View:
        # The snapshots are those of that time: a request that broke the engine may have led to new ones.
        return self._snapshots.view(self._settings, self._clock.now(), str(self.unsaved or ""))

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Call a task's executor to a channel, as `SchedulerApi` says."""
        return self._ask(None, lambda: call_executor(self._driver, self._state, call, self._key, answers))

    def keep(self, *kept: saves.Save) -> Future[None]:
        """Save what the engine decides nothing by, with its next batch."""
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
        try:
            if self._journal:
                self._journal.begin(self._state, self._settings)
            while self._turn():
                pass
        except MesosGpuError as error:
            logger.error("%s", error)
            self.failure = error
        except BaseException as error:
            # State in memory may be ahead of the disk: going on could launch twice. A restart reconciles.
            logger.exception("the engine stopped")
            self.failure = error
        finally:
            if self._journal:
                self._journal.close()
            self._ended.set()
            refuse_all(self._waiting, self._late, self._inbox)

    def _turn(self) -> bool:
        """Step a batch of events; returns whether to go on."""
        batch, go_on = self._collect()
        self._listeners.begin(self._state)
        self._waiting = [item for item in batch if isinstance(item, Request)]
        now = self._clock.now()
        pending: list[fx.Effect] = []
        origins: list[tuple[int, str]] = []  # where the effects end that follow from an item
        broken = False
        for number, item in enumerate(batch):
            begin = len(pending)
            try:
                pending += self._step_item(item, now)
            except Exception:  # noqa: BLE001 - it is said there
                broken = True
                self._passed_over.add(item)
                self._late = [*batch[number + 1 :], *self._late]
                self._waiting = [each for each in self._waiting if each not in batch[number:]]
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
            self._take_up_anew()
        return go_on

    def _step_item(self, item: ev.Event | Request, now: float) -> list[fx.Effect]:
        if isinstance(item, Request):
            with within(item.id):
                return self._step_request(item, now)
        known = self._passed_over.answer(item)
        return self._step(item, now) if known is None else known

    def _take_up_anew(self) -> None:
        """Give up what is in memory, which may be half of a step, for what is on disk, as a restart does. Mesos tells
        the rest after the next subscription."""
        self._state = State.restored(self._clock.now(), self._store.load())
        self._narrator = Narrator(self._state, self.meter, self._settings.placing.levels)
        self._snapshots = Snapshots(self._state, self._store.load)
        self._ports, self._happenings = ClusterPorts(self._state), Happenings(self._state, self.happened)
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
        """Step what somebody asks for; a refusal is his, and has changed nothing."""
        event = None
        try:
            event = request.event() if callable(request.event) else request.event
            return [*request.kept, *(self._step(event, now) if event else ())]
        except MesosGpuError as error:
            if event:
                self._narrator.refused(event, error)
                self._listeners.refused(event, error, now)
            self._waiting[self._waiting.index(request)] = request.refused(error)  # what it saw is saved first
            return []

    def _save_at_last(self, effects: list[fx.Effect]) -> None:
        """Save, however long it takes: nothing else is done before, and readers are shown what is saved."""
        while True:
            try:
                if latest := saves.latest_of(effects):
                    self.meter.save(self._store, latest)
                elif any(request.changes for request in self._waiting):
                    self._store.confirm()
                break
            except NoRoom as error:
                if self.unsaved is None:
                    text = "%s; until then nothing is launched and no change is taken: %s"
                    logger.error(text, error.what, error.remedy)
                self.unsaved = error
            waiting, self._waiting = self._waiting, []
            for request in waiting:
                request.answer_unsaved(self.unsaved)
            self._look_aside(self.unsaved)
        if self.unsaved is not None:
            self.unsaved = None
            logger.warning("the state can be written again: the scheduler goes on")

    def _look_aside(self, why: NoRoom) -> None:
        """For a second: show who looks what is saved, refuse who wants a change, keep Mesos' events for later."""
        until = time.monotonic() + NO_ROOM_S
        while (left_s := until - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if item is None or isinstance(item, MesosGpuError):
                raise item or why  # nothing of the batch was done yet: the next start takes it up anew
            if isinstance(item, Request) and not item.changes:
                item.answer()
            elif isinstance(item, Request):
                item.refuse(why)
            elif not isinstance(item, ev.HealthFound | ev.ReadinessFound | ev.TokenUsed):  # they come again
                self._late.append(item)

    def _collect(self) -> tuple[list[ev.Event | Request], bool]:
        if self._late:
            batch, self._late = list(self._late), []
            return batch, True
        # All that waits: while matches are slow, offers would fall further behind reports each time.
        batch, most = [], max(MAX_IN_BATCH, self._inbox.qsize())
        with contextlib.suppress(queue.Empty):
            item = self._inbox.get(timeout=TICK_S)
            while item is not None:
                if isinstance(item, MesosGpuError):
                    if not batch:
                        raise item
                    self._inbox.put(item)  # what came before it is saved first
                    return batch, True
                batch.append(item)
                if len(batch) >= most:
                    return batch, True
                item = self._inbox.get_nowait()
            return batch, False
        return batch, True
