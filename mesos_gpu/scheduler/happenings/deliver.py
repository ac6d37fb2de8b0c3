"""Delivery of events to webhooks: stored until accepted, in order, without delaying the engine."""

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
from mesos_gpu.scheduler.happenings.handing_over import DeliveryProgress
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.wire.export.webhook import hook_body

AT_ONCE: Final = 8  # concurrent requests to webhooks, and as many to URLs of jobs; at most one per target
MAX_TRIES: Final = 12  # after which a delivery is given up
MIN_S, MAX_S = 1.0, 600.0  # pause between two tries, doubled each time
_PAGE: Final = 500  # events
_NOTE_S: Final = 10.0  # short enough that no more events than are kept occur in it
_AGAIN_S: Final = 5.0  # pause after an unexpected error
logger = logging.getLogger("mesos_gpu.scheduler")


class Deliveries:
    """Sender of events to webhooks and job URLs.

    One thread listens for events, one starts requests that are due, and pools send them.

    Args:
        store: Store of webhooks and of pending deliveries.
        sender: HTTP sender of requests.
        log: Log of events.
        clock: Function that returns the seconds since the epoch.
        wait_s: Function that returns the pause in seconds after a number of failed tries.
        handed_over: Delivery progress in the state; None if no other scheduler will continue the deliveries.
    """

    def __init__(
        self,
        store: HookStore,
        sender: Sender,
        log: EventLog,
        clock: Callable[[], float] = time.time,
        wait_s: Callable[[int], float] | None = None,
        handed_over: DeliveryProgress | None = None,
    ) -> None:
        self._handed_over = handed_over
        self._store, self._sender, self._log, self._clock = store, sender, log, clock
        self._wait_s = wait_s or pause_s
        self._stopped, self._wake = threading.Event(), store.news
        self._busy: set[str] = set()  # targets with a request in progress
        # Two pools, so that hanging receivers of jobs do not delay webhooks.
        self._of_hooks = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._of_jobs = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook of a job")
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="webhook events", daemon=True)
        self._seen, self._noted_at = self._begun(handed_over.sent if handed_over else None), time.monotonic()

    @property
    def seen(self) -> int:
        """Number of the latest event that was examined."""
        return self._seen

    def _begun(self, sent: Sent | None) -> int:
        """Return the number of the last examined event: of another scheduler's progress `sent`, else of the file."""
        if sent is not None:
            self._resume(sent)
            return sent.seen
        seen = self._store.seen()
        if seen is None:
            seen = self._log.last
            self._store.take([], seen)  # later events are sent even if this process is killed first
        return seen

    def _resume(self, sent: Sent) -> None:
        """Create the deliveries that another scheduler had not made, from the events that cause them."""
        here, at = self._store.resume(sent), sent.first - 1
        self._warn_of_gap(at)
        while events := [event for event in self._log.after(at, _PAGE) if event.number <= sent.seen]:
            owed = [
                delivery
                for delivery in self._owed(events)
                if delivery[1] >= sent.first_of(delivery[0]) and delivery[:2] not in here
            ]
            at = events[-1].number
            self._store.take(owed, sent.seen)

    def _owed(self, events: Sequence[LogEvent]) -> list[tuple[str, int, str, bytes]]:
        """Return the deliveries that events cause, as `HookStore.take` expects them."""
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
        """Start to deliver, from where the last scheduler ended."""
        self._thread.start()
        self._listener.start()

    def stop(self) -> None:
        """Stop; unfinished deliveries are made by the next scheduler."""
        self._stopped.set()
        self._wake.set()
        self._log.wake()
        for thread in (self._thread, self._listener):
            if thread.is_alive():
                thread.join()
        with self._logged("the progress of webhooks could not be saved"):
            self._store.take([], self._seen)
        self._sender.interrupt()
        for pool in (self._of_hooks, self._of_jobs):
            pool.shutdown(cancel_futures=True)

    def _listen(self) -> None:
        """Examine events as they arrive."""
        while not self._stopped.is_set():
            with self._logged("events could not be examined for webhooks, trying again"):
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
        """Save the progress from time to time even without deliveries: long after a kill the events would be gone."""
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_S:
            self._store.take([], self._seen)
            self._noted_at = now

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._logged("pending webhook requests could not be started, trying again"):
                self._start_due()

    def _start_due(self) -> None:
        """Submit deliveries that are due to the pools, and wait until there may be more."""
        self._wake.clear()
        busy = set(self._busy)  # read first: a delivery that ends meanwhile must not be sent again
        for delivery in self._store.due(self._clock()):
            if delivery.target not in busy:
                self._busy.add(delivery.target)
                pool = self._of_jobs if is_url(delivery.target) else self._of_hooks
                pool.submit(self._send, delivery)
        next_at = self._store.next_at()
        left_s = 60.0 if next_at is None else max(next_at - self._clock(), 0.0)
        # A due delivery of a busy target is started when the target's request is done.
        self._wake.wait(min(left_s, 60.0) if left_s > 0 else 1.0)

    @contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """Log an error and pause, since the caller tries again."""
        try:
            yield
        except MesosGpuError as error:
            logger.error("%s: %s: %s", what, error.what, error.remedy)
            self._stopped.wait(_AGAIN_S)
        except Exception:
            logger.exception("%s", what)
            self._stopped.wait(_AGAIN_S)

    def _send(self, delivery: Delivery) -> None:
        try:
            with self._logged("the result of a webhook request could not be saved, so it may be sent again"):
                if not self._stopped.is_set():
                    self._settle(delivery)
        finally:
            self._busy.discard(delivery.target)
            self._wake.set()

    def _settle(self, delivery: Delivery) -> None:
        """Send a delivery, and record it as done, as failed with a time of retry, or as given up."""
        url, secret = delivery.target, None
        if not is_url(delivery.target):
            hook = self._store.latest.hook(delivery.target)
            if hook is None:
                self._store.done(delivery.id)  # the webhook was removed
                return
            url, secret = hook.url, self._store.secret(delivery.target)
        answer = self._answer(url, delivery, secret)
        if self._stopped.is_set() and answer.error:
            return  # the next scheduler tries it again
        if not answer.error:
            self._store.done(delivery.id)
            return
        tries = delivery.tries + 1
        next_at = self._clock() + self._wait_s(tries) if tries < MAX_TRIES else None
        self._store.failed(delivery, answer.error, next_at)
        if next_at is None:
            name = "a job's own" if is_url(delivery.target) else delivery.target
            logger.warning(
                "webhook %s: event %d was not delivered in %d tries and is given up; check the receiver: %s",
                name,
                delivery.event,
                tries,
                answer.error,
            )

    def _answer(self, url: str, delivery: Delivery, secret: bytes | None) -> Answer:
        try:
            return self._sender.send(url, message_id(delivery), delivery.body, secret)
        except Exception as error:  # noqa: BLE001 - counted as a failed try, otherwise it would be repeated for ever
            why = f"internal error: {type(error).__name__}"  # the error's text may contain the URL, which may be secret
            logger.error("event %d could not be sent to a webhook: %s", delivery.event, why)
            return Answer(why)


def message_id(each: Delivery) -> str:
    """Return the id of a request, equal for each try and each scheduler, so that receivers can ignore repetitions."""
    return f"msg_{each.event}_{hashlib.sha256(each.target.encode()).hexdigest()[:16]}"


def pause_s(tries: int) -> float:
    """Return the pause in seconds after a number of failed tries."""
    return float(min(MIN_S * 2 ** (tries - 1), MAX_S))


def _is_of(patterns: Sequence[str], queue: str) -> bool:
    """Return whether a queue or one of its ancestors matches a pattern."""
    return any_fits(patterns, queue) or any_fits([f"{pattern}/*" for pattern in patterns], queue)
