"""Events on their way to webhooks: kept until they are taken, in their order, never in the way of the engine."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from mesos_gpu.access.patterns import any_fits
from mesos_gpu.adapters.hooks.send import Answer, Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.hook import Delivery, Sent, is_url, targets_of
from mesos_gpu.scheduler.happenings.handing_over import HandedOver
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.wire.export.webhook import hook_body

AT_ONCE: Final = 8  # requests to hooks, and as many to URLs that jobs have named; one of each target at most
MAX_TRIES: Final = 12  # then it is given up
MIN_S, MAX_S = 1.0, 600.0  # between two tries; twice as long each time
_PAGE: Final = 500  # events
_NOTE_S: Final = 10.0  # in which as many events as are kept hardly happen
_AGAIN_S: Final = 5.0  # after what should not have failed
logger = logging.getLogger("mesos_gpu.scheduler")


class Deliveries:
    """Two kinds of threads: one that looks at events and at what is due, and those that send."""

    def __init__(
        self,
        store: HookStore,
        sender: Sender,
        log: EventLog,
        clock: Callable[[], float] = time.time,
        wait_s: Callable[[int], float] | None = None,
        handed_over: HandedOver | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            store: Of webhooks.
            sender: To them.
            log: What has happened.
            clock: Seconds since the epoch.
            wait_s: Until the next try, by how many there were.
            handed_over: What the state has of it; None: no other scheduler will go on with it.
        """
        self._handed_over = handed_over
        self._store, self._sender, self._log, self._clock = store, sender, log, clock
        self._wait_s = wait_s or pause_s
        self._stopped, self._wake = threading.Event(), store.news
        self._busy: set[str] = set()  # targets that are being sent to
        # Two, so that jobs with receivers that hang hold up no hook.
        self._of_hooks = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._of_jobs = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook of a job")
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="webhook events", daemon=True)
        self._seen, self._noted_at = self._begun(handed_over.sent if handed_over else None), time.monotonic()

    @property
    def seen(self) -> int:
        """The number of the latest event that was looked at."""
        return self._seen

    def _begun(self, sent: Sent | None) -> int:
        """Where to go on. `sent`: where another scheduler was; None: where the file says."""
        if sent is not None:
            self._resume(sent)
            return sent.seen
        seen = self._store.seen()
        if seen is None:
            seen = self._log.last
            self._store.take([], seen)  # what comes from now on is sent, though this process be killed before
        return seen

    def _resume(self, sent: Sent) -> None:
        """Take up what another scheduler had not sent, from the events that it follows from."""
        here, at = self._store.resume(sent), sent.first - 1
        self._warn_of_gap(at)
        while events := [each for each in self._log.after(at, _PAGE) if each.number <= sent.seen]:
            owed = [
                each
                for each in self._owed(events)
                if each[1] >= sent.first_of(each[0]) and each[:2] not in here
            ]
            at = events[-1].number
            self._store.take(owed, sent.seen)

    def _owed(self, events: Sequence[LogEvent]) -> list[tuple[str, int, str, bytes]]:
        """What is to be sent of events, as `HookStore.take` has it."""
        hooks = self._store.latest.hooks
        return [
            (target, event.number, event.kind.value, hook_body(event, of_job=is_url(target)))
            for event in events
            for target in targets_of(event, hooks, _is_of)
        ]

    def _warn_of_gap(self, seen: int) -> None:
        first = self._log.first
        if seen and first > seen + 1 and self._store.latest.hooks:
            logger.warning("webhooks may have missed events before number %d", first)

    def start(self) -> None:
        """Begin where the last scheduler has ended."""
        self._thread.start()
        self._listener.start()

    def stop(self) -> None:
        """End; what was not taken yet is sent by the next scheduler."""
        self._stopped.set()
        self._wake.set()
        self._log.wake()
        for thread in (self._thread, self._listener):
            if thread.is_alive():
                thread.join()
        with self._logged("how far events were looked at was not noted"):
            self._store.take([], self._seen)
        self._sender.interrupt()
        for pool in (self._of_hooks, self._of_jobs):
            pool.shutdown(cancel_futures=True)

    def _listen(self) -> None:
        """Take events over as they come."""
        while not self._stopped.is_set():
            with self._logged("events were not looked at for webhooks"):
                if self._handed_over is not None:
                    self._handed_over.tell(self._seen)
                if self._log.wait(self._seen, 1.0):
                    self._take_over()

    def _take_over(self) -> None:
        self._warn_of_gap(self._seen)
        events = self._log.after(self._seen, _PAGE)
        if deliveries := self._owed(events):
            self._store.take(deliveries, events[-1].number)
        if events:
            self._seen = events[-1].number
            self._note()

    def _note(self) -> None:
        """Keep how far events were looked at, also where none is for a webhook: long after a kill they are gone."""
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_S:
            self._store.take([], self._seen)
            self._noted_at = now

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._logged("what waits for webhooks was not looked at"):
                self._begin_what_is_due()

    def _begin_what_is_due(self) -> None:
        """Hand it to threads, and wait until there is more."""
        self._wake.clear()
        busy = set(self._busy)  # before: what is done meanwhile must not be sent again
        for each in self._store.due(self._clock()):
            if each.target not in busy:
                self._busy.add(each.target)
                pool = self._of_jobs if is_url(each.target) else self._of_hooks
                pool.submit(self._send, each)
        next_at = self._store.next_at()
        left_s = 60.0 if next_at is None else max(next_at - self._clock(), 0.0)
        # What is due of a target that is busy is looked at when that is done.
        self._wake.wait(min(left_s, 60.0) if left_s > 0 else 1.0)

    @contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """Log what fails, and wait a moment: it is tried again, and neither at once nor in silence."""
        try:
            yield
        except MesosGpuError as error:
            logger.error("%s: %s: %s", what, error.what, error.remedy)
            self._stopped.wait(_AGAIN_S)
        except Exception:
            logger.exception("%s", what)
            self._stopped.wait(_AGAIN_S)

    def _send(self, each: Delivery) -> None:
        try:
            with self._logged("what came of a request to a webhook was not noted"):
                if not self._stopped.is_set():
                    self._settle(each)
        finally:
            self._busy.discard(each.target)
            self._wake.set()

    def _settle(self, each: Delivery) -> None:
        url, secret = each.target, None
        if not is_url(each.target):
            hook = self._store.latest.hook(each.target)
            if hook is None:
                self._store.done(each.id)  # it was removed
                return
            url, secret = hook.url, self._store.secret(each.target)
        answer = self._answer(url, each, secret)
        if self._stopped.is_set() and answer.error:
            return  # the next scheduler tries it again
        if not answer.error:
            self._store.done(each.id)
            return
        tries = each.tries + 1
        next_at = self._clock() + self._wait_s(tries) if tries < MAX_TRIES else None
        self._store.failed(each, answer.error, next_at)
        if next_at is None:
            name = "a job's own" if is_url(each.target) else each.target
            logger.warning(
                "webhook %s: event %d is given up after %d tries: %s", name, each.event, tries, answer.error
            )

    def _answer(self, url: str, each: Delivery, secret: bytes | None) -> Answer:
        try:
            return self._sender.send(url, message_id(each), each.body, secret)
        except Exception as error:  # noqa: BLE001 - a try that failed: else it were tried without end
            why = f"the request broke down: {type(error).__name__}"  # its text may have the URL, which may be secret
            logger.error("event %d is not sent to a webhook: %s", each.event, why)
            return Answer(why)


def message_id(each: Delivery) -> str:
    """The id of a request, the same at each try and of each scheduler: by it receivers know what they have taken."""
    return f"msg_{each.event}_{hashlib.sha256(each.target.encode()).hexdigest()[:16]}"


def pause_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return float(min(MIN_S * 2 ** (tries - 1), MAX_S))


def _is_of(patterns: Sequence[str], queue: str) -> bool:
    """Whether a queue fits a pattern, or is below one that does."""
    return any_fits(patterns, queue) or any_fits([f"{pattern}/*" for pattern in patterns], queue)
