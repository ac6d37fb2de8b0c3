"""The shell around the engine: one thread takes events, steps, saves, and then does the rest.

Requests of the REST interface and events of the driver wait in one queue. A batch of them is stepped, its
saves are committed in one transaction, and only then do calls leave for Mesos and answers for users.
"""

import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mesos_gpu.adapters.secrets.deliveries import Deliveries, Sealed
from mesos_gpu.api.http.note import request_id, within
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.engine.explain.arrays import job_in
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError, NoRoom
from mesos_gpu.model import saves
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.apps.app_event import AppEvent
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.saves import Saved
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.apps.outward import Outward
from mesos_gpu.ports import Clock, Driver, SecretStore, Store
from mesos_gpu.scheduler.app_events import Follower
from mesos_gpu.scheduler.control import ClusterPorts
from mesos_gpu.scheduler.figures.meter import Meter
from mesos_gpu.scheduler.happenings.follow import Happenings
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.scheduler.messages import MESSAGES, QUESTIONS, call_executor
from mesos_gpu.scheduler.narrator import Narrator
from mesos_gpu.scheduler.requests import PassedOver, Request, asked, refuse_all
from mesos_gpu.scheduler.snapshots import Snapshots, Uses
from mesos_gpu.scheduler.view import StateView
from mesos_gpu.scheduler.watching import Watching
from mesos_gpu.wire.channel.call import Call
from mesos_gpu.wire.mesos.v1 import resources_to_json

T = TypeVar("T")
TICK_S: Final = 0.25
NO_ROOM_S: Final = 1.0  # until the disk is tried again
MOST_IN_BATCH: Final = 500  # of what comes while it is taken in
logger = logging.getLogger(__name__)


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
        self._deliveries = Deliveries(secrets, self.put) if secrets is not None else None
        self._store, self._driver, self._clock, self._settings = store, driver, clock, settings
        self._journal = journal
        self._state = State.restored(clock.now(), saved)
        self._inbox: queue.SimpleQueue[ev.Event | Request | MesosGpuError | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []  # those of the batch in hand
        self._watching = Watching(self.put, outward or Outward(), settings.control_ports)
        self.meter = Meter()  # what is counted and timed here, for any thread
        self._narrator = Narrator(self._state, self.meter, settings.levels)
        self.happened = EventLog(store.events())  # for any thread
        self._happenings = Happenings(self._state, self.happened)
        self._owed: list[OfferId] = []  # offers whose ACCEPT or DECLINE did not reach the master
        self._listeners: list[Callable[[JobId, int], None]] = []
        self._told: list[Callable[[Sequence[AppEvent]], None]] = []  # that want to hear what happens to apps
        self._follower: Follower | None = None  # while there are such
        self._happened: list[AppEvent] = []  # in the batch in hand
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._readers = ThreadPoolExecutor(1, "readers")  # one: each shares the processor with the engine
        self._ended = threading.Event()
        self._late: list[ev.Event | Request] = []  # that came while nothing could be saved
        self._passed_over = PassedOver()
        self.unsaved: NoRoom | None = None  # why nothing can be saved now
        self._snapshots = Snapshots(self._state, store.load)
        self._uses, self._ports = Uses(), ClusterPorts(self._state)
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
            if self._deliveries is not None:
                self._deliveries.close()
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

    def submit(self, spec: JobSpec, owner: str = "") -> Future[Job]:
        """Queue a job, or a job array, of who has that name; the future's job is saved."""
        job_id = JobId(f"{spec.name}-{uuid.uuid4().hex[:8]}")
        return self._ask(ev.JobSubmitted(job_id, spec, owner), lambda: job_in(self._state, job_id))

    def kill(self, job_id: JobId, *, wipe: bool = False, indexes: str | None = None) -> Future[Job]:
        """Ask for the end of a job, as `SchedulerApi` says; the future raises `NotFound`."""

        def event() -> ev.Event:
            is_array = job_id in self._state.work.arrays
            return ev.ArrayKillRequested(job_id, indexes) if is_array else ev.KillRequested(job_id, wipe)

        return self._ask(event, lambda: job_in(self._state, job_id))

    def resize(self, job_id: JobId, patch: Mapping[str, int | None], *, restart: bool = False) -> Future[Job]:
        """Ask for other shares of a running job, as `ResizeRequested` says, with what that raises."""
        return self._ask(ev.ResizeRequested(job_id, patch, restart), lambda: job_in(self._state, job_id))

    def withdraw_resize(self, job_id: JobId) -> Future[Job]:
        """Let a job keep the shares that it had, as `ResizeWithdrawn` says, with what that raises."""
        return self._ask(ev.ResizeWithdrawn(job_id), lambda: self._state.work.jobs[job_id])

    def tell_of(self, event: ev.CheckpointTold | ev.KeepAsked | ev.KeepWithdrawn) -> Future[Job]:
        """Take in what somebody says of a job, as `SchedulerApi` says."""
        return self._ask(event, lambda: self._state.work.jobs[event.job_id])

    def call_to_channel(self, call: Call, answers: Callable[[str], None]) -> Future[None]:
        """Call a task's executor to a channel, as `SchedulerApi` says."""
        return self._ask(None, lambda: call_executor(self._driver, self._state, call, self._key, answers))

    def drain(
        self, target: Target, name: str, reason: str, *, by: str = "", deadline_s: float | None = None
    ) -> Future[None]:
        """Take a GPU (by UUID) or a node (by host name) out; the future raises `NotFound`."""
        return self._ask(ev.DrainRequested(target, name, reason, by, deadline_s), lambda: None)

    def undrain(self, target: Target, name: str, *, by: str = "") -> Future[None]:
        """Give it back; the future raises `NotFound` or `Conflict`."""
        return self._ask(ev.UndrainRequested(target, name, by), lambda: None)

    def reset(self, gpu_id: GpuId, reason: str, *, by: str = "") -> Future[str]:
        """Ask a GPU's node to reset it; the request's id. The future raises `NotFound` or `Conflict`."""
        request = uuid.uuid4().hex[:12]
        return self._ask(ev.ResetRequested(gpu_id, request, reason, by), lambda: request)

    def adopt(self, task_id: TaskId) -> Future[None]:
        """Take up an unknown task; the future raises `NotFound` or `Conflict`."""
        return self._ask(ev.UnknownAdopted(task_id), lambda: None)

    def kill_unknown(self, task_id: TaskId) -> Future[None]:
        """End an unknown task; the future raises `NotFound`."""
        return self._ask(ev.UnknownKilled(task_id), lambda: None)

    def change_apps(
        self,
        target: Callable[[Group], Group],
        *,
        force: bool = False,
        restarts: frozenset[str] = frozenset(),
        kill: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Future[Deployment | None]:
        """Make the tree of apps what `target` makes of it; the future's deployment is None if nothing changes.

        `target` runs on the engine's thread and must be quick. The future raises what it raises, and `AppLocked`.
        """
        new_id = str(uuid.uuid4())

        def event() -> ev.Event:
            return ev.AppsChanged(new_id, target(self._state.apps.catalog.root), force, restarts, dict(kill))

        return self._ask(event, lambda: self._state.apps.deployments.get(new_id))

    def cancel_deployment(self, deployment_id: str, *, force: bool = False) -> Future[Deployment | None]:
        """Undo a deployment; the future's is the one that does so, None with `force`. It raises `NotFound`."""
        new_id = str(uuid.uuid4())
        gone = ev.DeploymentDeleted(deployment_id, new_id, force)
        return self._ask(gone, lambda: self._state.apps.deployments.get(new_id))

    def reset_delay(self, app_id: str) -> Future[None]:
        """Let an app's next launch be at once; the future raises `NotFound` if nothing of it waits."""
        return self._ask(ev.DelayReset(app_id), lambda: None)

    def set_split(self, split: TrafficSplit) -> Future[None]:
        """Make a named service what `split` says."""
        return self._ask(ev.SplitSet(split), lambda: None)

    def drop_split(self, name: str) -> Future[None]:
        """Forget a named service; the future raises `NotFound`."""
        return self._ask(ev.SplitDropped(name), lambda: None)

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

    def set_access(self, document: AccessDocument, expected_version: int) -> Future[AccessDocument]:
        """Let who may do what be as `document` says, if `expected_version` is the latest; else it raises `Conflict`."""
        return self._ask(ev.AccessChanged(document, expected_version), lambda: self._state.rights.access)

    def set_queues(
        self, document: QueueDocument, expected_version: int, reclaim_after_s: float | None = None
    ) -> Future[QueueDocument]:
        """Let the tree of queues be as `document` says; the future raises `Conflict`, as `SchedulerApi` says."""
        event = ev.QueuesChanged(document, expected_version, reclaim_after_s)
        return self._ask(event, lambda: self._state.quota.queues)

    def grant_budget(self, queue: str, user: str, amount: int) -> Future[None]:
        """Change what a budget has in its current period, as `BudgetGranted` says; the future raises `NotFound`."""
        return self._ask(ev.BudgetGranted(queue, user, amount), lambda: None)

    def book(self, event: ev.BookingMade | ev.BookingChanged | ev.BookingCancelled) -> Future[Booking]:
        """Make, change or cancel a booking, as `SchedulerApi` says."""
        return self._ask(event, lambda: self._state.calendar.bookings[event.id])

    def create_token(self, token: Token, lifetime_s: float, until: float | None = None) -> Future[Token]:
        """Keep a token, as `TokenCreated` says; the future raises `TooMuch`."""
        event = ev.TokenCreated(token, lifetime_s, until)
        return self._ask(event, lambda: self._state.rights.tokens[token.id])

    def revoke_token(self, token_id: str) -> Future[None]:
        """Forget a token, and those that were made with it; the future raises `NotFound`."""
        return self._ask(ev.TokenRevoked(token_id), lambda: None)

    def note_token_use(self, token_id: str, address: str) -> None:
        """A token has proved a name, from `address` ("": a Unix socket); may be called at each request."""
        if self._uses.is_new(token_id, self.tokens):
            self.put(ev.TokenUsed(token_id, address))

    def read(self, fn: Callable[[StateView], T]) -> Future[T]:
        """Run `fn` over the state, on the engine's thread: it must be quick, and only read."""
        # Which snapshots are looked at then: a request that broke the engine may have led to new ones by that time.
        return self._ask(
            None, lambda: fn(self._snapshots.view(self._settings, self._clock.now(), str(self.unsaved or "")))
        )

    def read_copy(self, fn: Callable[[StateView], T]) -> Future[T]:
        """Run `fn` over a copy of the state, on a thread of its own; the engine waits only for the copy."""
        return self._readers.submit(lambda: fn(self.read(StateView.copied).result()))

    def listen(self, callback: Callable[[JobId, int], None]) -> Callable[[], None]:
        """Call `callback(job id, version)` at each change, on the engine's thread; returns the way out."""
        self._listeners = [*self._listeners, callback]

        def unlisten() -> None:
            self._listeners = [other for other in self._listeners if other is not callback]

        return unlisten

    def tell(self, callback: Callable[[Sequence[AppEvent]], None]) -> Callable[[], None]:
        """Call `callback` with what happens to apps from now on, on the engine's thread; returns the way out."""
        self._told = [*self._told, callback]

        def untell() -> None:
            self._told = [other for other in self._told if other is not callback]

        return untell

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
        self._follow()
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
        self._snapshots.saved(pending)
        self._ports.follow(pending)
        self._narrate(pending, origins)
        self._narrator.look(self._state, now, self._settings.uncovered_alarm_s, self._settings.roll_timeout_s)
        for effect in pending:
            if type(effect) in _HANDLERS:
                self._do(effect)
        self._tell()
        if (last := self._happenings.saved()) is not None:
            self._publish(fx.Publish(JobId(""), last))
        if any(isinstance(item, ev.Registered | ev.Disconnected) for item in batch):
            self._owed.clear()  # they are void
        self._give_back_owed()
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
        self._narrator = Narrator(self._state, self.meter, self._settings.levels)
        self._snapshots = Snapshots(self._state, self._store.load)
        self._ports, self._happenings = ClusterPorts(self._state), Happenings(self._state, self.happened)
        self._follower = None
        if self._journal:
            self._journal.begin(self._state, self._settings)
        self._driver.resubscribe()

    def _narrate(self, pending: Sequence[fx.Effect], origins: Iterable[tuple[int, str]]) -> None:
        """Say what was saved, with the id of the request that it follows from."""
        begin = 0
        for end, request in origins:
            if end > begin:
                with within(request):
                    self._narrator.saved(pending[begin:end])
            begin = end
        self._narrator.saved(pending[begin:])

    def _follow(self) -> None:
        """Begin to compare, or leave it: only what somebody listens to is worth the time."""
        self._follower = (self._follower or Follower(self._state)) if self._told else None

    def _tell(self) -> None:
        """What is on disk by now."""
        happened, self._happened = self._happened, []
        for callback in self._told if happened else ():
            callback(happened)

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
        if self._follower:
            self._happened += self._follower.follow(event, outcome, self._state, now)
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
            if self._follower and event:
                self._happened += self._follower.refused(event, error.what, now)
            self._waiting[self._waiting.index(request)] = request.refused(error)  # what it saw is saved first
            return []

    def _save_at_last(self, effects: list[fx.Effect]) -> None:
        """Save, however long it takes: nothing else is done before, and readers are shown what is saved."""
        while True:
            try:
                self._save(effects)
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
        batch, most = [], max(MOST_IN_BATCH, self._inbox.qsize())
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

    def _save(self, effects: list[fx.Effect]) -> None:
        if latest := saves.latest_of(effects):
            self.meter.save(self._store, latest)
        elif any(request.changes for request in self._waiting):
            self._store.confirm()

    def _do(self, effect: fx.Effect) -> None:
        try:
            _HANDLERS[type(effect)](self, effect)
        except MesosGpuError as error:
            if not isinstance(effect, fx.Call):
                raise
            # Not lost: reconciliation, repeated kills and Mesos' own resends bring it up again; offers we owe.
            logger.warning("%s was not delivered: %s", type(effect).__name__, error.what)
            if isinstance(effect, fx.Launch | fx.Decline):
                self._owed += effect.offer_ids

    def _give_back_owed(self) -> None:
        """Offers whose answer did not arrive: without one the master keeps them for us for ever. Those that it has
        taken an answer of are none any more, and it ignores them."""
        if not self._owed or not self._state.mesos.connected:
            return
        try:
            self._driver.decline(self._owed, refuse_s=0.0)
            self._owed.clear()
        except MesosGpuError as error:
            logger.warning("offers are still owed: %s", error.what)

    def _publish(self, effect: fx.Publish) -> None:
        for listener in self._listeners:
            listener(effect.job_id, effect.version)

    def _disbelieve(self, effect: fx.Disbelieve) -> None:
        logger.warning(
            "%s of %s was not believed, and changes nothing: %s", effect.state, effect.task_id, effect.why
        )

    def _send(self, effect: fx.Call) -> None:
        MESSAGES[type(effect)](self._driver, effect)

    def _launch(self, effect: fx.Launch) -> None:
        known = self._ports.now()
        infos = [
            to_task_info(task, self._settings, control_ports=known, key=self._key, sealed=self._sealed(task))
            for task in effect.tasks
        ]
        self._driver.accept(
            effect.offer_ids,
            infos,
            refuse_s=0.0,
            reserve=resources_to_json(effect.reserve),
            unreserve=resources_to_json(effect.unreserve),
        )

    def _sealed(self, launch: fx.LaunchTask) -> Sealed:
        """The secrets of a task that has some."""
        if launch.spec is None or not launch.spec.secrets:
            return Sealed()
        if self._deliveries is None:
            return Sealed(problem="the scheduler has no store of secrets any more")
        return self._deliveries.sealed(launch, self._state.cluster.nodes.get(launch.task.agent_id))

    def _read_secrets(self, effect: fx.ReadSecrets) -> None:
        if self._deliveries is not None:
            self._deliveries.read(effect.sources)
            return
        why = "the scheduler has no store of secrets any more: it needs --secrets-dir or --vault-url"
        self.put(ev.SecretsRead(dict.fromkeys(effect.sources, why)))

    def _forget_secrets(self, effect: fx.ForgetSecrets) -> None:
        if self._deliveries is not None:
            self._deliveries.forget(effect.sources)


_HANDLERS: Final[dict[type, Callable[[Daemon, Any], None]]] = {
    **dict.fromkeys(MESSAGES, Daemon._send),
    fx.Launch: Daemon._launch,
    **dict.fromkeys(QUESTIONS, lambda daemon, asked: QUESTIONS[type(asked)](daemon._driver, daemon.put)),
    fx.Publish: Daemon._publish,
    fx.Disbelieve: Daemon._disbelieve,
    fx.ReadSecrets: Daemon._read_secrets,
    fx.ForgetSecrets: Daemon._forget_secrets,
}
see_complete("scheduler.daemon._HANDLERS", _HANDLERS, fx.DONE_OUTSIDE)
