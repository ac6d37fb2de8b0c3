"""Events on their way to webhooks: kept until they are taken, in their order, never in the way of the engine."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mesos_gpu.access.patterns import any_fits
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.tasks.hook import Delivery, is_url, targets_of
from mesos_gpu.scheduler.happenings.log import EventLog
from mesos_gpu.wire.export.webhook import hook_body

AT_ONCE: Final = 8  # requests, one of each target at most
MOST_TRIES: Final = 12  # then it is given up
LEAST_S, MOST_S = 1.0, 600.0  # between two tries; twice as long each time
_PAGE: Final = 500  # events
_NO_ROOM_S: Final = 5.0
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
    ) -> None:
        """Nothing runs yet. `clock`: seconds since the epoch. `wait_s`: until the next try, by how many there were."""
        self._store, self._sender, self._log, self._clock = store, sender, log, clock
        self._wait_s = wait_s or pause_s
        self._stopped, self._wake = threading.Event(), store.news
        self._busy: set[str] = set()  # targets that are being sent to
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="webhook events", daemon=True)
        self._seen = store.seen()
        if not self._seen:
            self._seen = log.last
            store.take([], log.last)  # what comes from now on is sent, though this process be killed before

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
        self._sender.interrupt()
        self._pool.shutdown(cancel_futures=True)

    def _listen(self) -> None:
        """Take events over as they come."""
        while not self._stopped.is_set():
            if self._log.wait(self._seen, 1.0):
                self._take_over()

    def _take_over(self) -> None:
        first = self._log.first
        if self._seen and first > self._seen + 1 and self._store.latest.hooks:
            logger.warning("webhooks may have missed events before number %d", first)
        events = self._log.after(self._seen, _PAGE)
        hooks = self._store.latest.hooks
        deliveries = [
            (target, event.number, event.kind.value, hook_body(event, of_job=is_url(target)))
            for event in events
            for target in targets_of(event, hooks, _is_of)
        ]
        if deliveries:
            try:
                self._store.take(deliveries, events[-1].number)
            except NoRoom as error:
                logger.error("%s: %s", error.what, error.remedy)
                self._stopped.wait(_NO_ROOM_S)
                return
        if events:
            self._seen = events[-1].number

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            busy = set(self._busy)  # before: what is done meanwhile must not be sent again
            for each in self._store.due(self._clock()):
                if each.target not in busy:
                    self._busy.add(each.target)
                    self._pool.submit(self._send, each)
            next_at = self._store.next_at()
            left_s = 60.0 if next_at is None else max(next_at - self._clock(), 0.0)
            # What is due of a target that is busy is looked at when that is done.
            self._wake.wait(min(left_s, 60.0) if left_s > 0 else 1.0)

    def _send(self, each: Delivery) -> None:
        try:
            self._settle(each)
        except NoRoom as error:
            logger.error("%s: %s", error.what, error.remedy)
            self._stopped.wait(_NO_ROOM_S)
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
        answer = self._sender.send(url, message_id(each), each.body, secret)
        if self._stopped.is_set() and answer.error:
            return  # the next scheduler tries it again
        if not answer.error:
            self._store.done(each.id)
            return
        tries = each.tries + 1
        next_at = self._clock() + self._wait_s(tries) if tries < MOST_TRIES else None
        self._store.failed(each, answer.error, next_at)
        if next_at is None:
            name = "a job's own" if is_url(each.target) else each.target
            logger.warning(
                "webhook %s: event %d is given up after %d tries: %s", name, each.event, tries, answer.error
            )


def message_id(each: Delivery) -> str:
    """The id of a request, the same at each try: by it receivers know what they have taken already."""
    return f"msg_{each.event}_{each.id}"


def pause_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return float(min(LEAST_S * 2 ** (tries - 1), MOST_S))


def _is_of(patterns: Sequence[str], queue: str) -> bool:
    """Whether a queue fits a pattern, or is below one that does."""
    return any_fits(patterns, queue) or any_fits([f"{pattern}/*" for pattern in patterns], queue)
