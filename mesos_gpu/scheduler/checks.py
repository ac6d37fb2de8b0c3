"""Health checks that the scheduler makes itself: HTTP, HTTPS and TCP to the ports of running tasks."""

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.adapters.prober import Attempt, Prober, dial
from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol
from mesos_gpu.policy.apps.healthcheck import Finding, TaskHealth, first_after_s, of_scheduler, port_of
from mesos_gpu.policy.apps.outward import Way

FRESH_S: Final = 60.0  # how long a resolved address is used
RETRY_S: Final = 5.0  # how long a failed lookup is remembered
LOOKERS: Final = 4  # resolver threads: an unanswered lookup blocks one for half a minute

Name = tuple[str, IpProtocol]


@dataclass(frozen=True, slots=True)
class Subject:
    """A running task to check.

    Attributes:
        task: Mesos task id.
        host: Name or address of the task's agent.
        ports: Host ports of the task, in the order of the app's ports.
        checks: Checks of the app; those that the executor makes are ignored.
        started_s: Start of the task, in seconds since the epoch.
        way: Restriction of the addresses that checks may connect to, since the scheduler reaches more than its tasks
            may.
    """

    task: str
    host: str
    ports: tuple[int, ...]
    checks: tuple[HealthCheck, ...]
    started_s: float
    way: Way = field(default_factory=Way)


class Checks:
    """Health checks of all tasks; starts threads. Methods may be called from any thread.

    Args:
        report: Function that is called on another thread with a task's id and its health when the health changes or one
            more counted failure occurs. It must not block.
        now: Function that returns the seconds since the epoch.
        prober: Prober whose thread makes the checks; `stop` stops it.
        names: Resolver of host names; `stop` stops it.
        stranger: Function of a task id and a port that returns why nothing may be sent to the port; "" if the task
            is proved to listen there.
    """

    def __init__(
        self,
        report: Callable[[str, TaskHealth], None],
        *,
        now: Callable[[], float] = time.time,
        prober: Prober | None = None,
        names: "Names | None" = None,
        stranger: Callable[[str, int], str] = lambda task, port: "",
    ) -> None:
        self._report, self._now, self._stranger = report, now, stranger
        self._prober = prober or Prober()
        self._names = names or Names()
        self._watched: dict[str, tuple[Subject, TaskHealth]] = {}
        self._lock = threading.Lock()  # guards `_watched`, and the order of calls to the prober

    def watch(self, subject: Subject, before: TaskHealth | None = None) -> None:
        """Check a task from now on; a second call for the task replaces the first.

        Args:
            subject: Task to check. Without any check that the scheduler makes, nothing happens.
            before: Health that a former scheduler knew; None if not known.
        """
        checks = of_scheduler(subject.checks)
        if not checks:
            return
        if before is None or before.checks != checks:
            before = TaskHealth.begin(checks, subject.started_s)
        self.forget(subject.task)
        with self._lock:
            self._watched[subject.task] = (subject, before)
        for index, check in enumerate(checks):
            self._names.when_known(
                (subject.host, check.ip_protocol),
                lambda index=index, check=check: self._begin(subject, index, check),  # type: ignore[misc]
            )

    def _begin(self, subject: Subject, index: int, check: HealthCheck) -> None:
        with self._lock:
            watched = self._watched.get(subject.task)
            if watched is None or watched[0] is not subject:
                return  # the task ended or was replaced during the lookup
            self._prober.add(
                (subject.task, index),
                check,
                max(subject.started_s + first_after_s(check) - self._now(), 0.0),
                lambda: self._attempt(subject, check),
                lambda finding: self._found(subject, index, finding),
            )

    def forget(self, task: str) -> None:
        """Stop checking a task that has ended. Harmless if it is not watched."""
        with self._lock:
            watched = self._watched.pop(task, None)
            for index in range(len(watched[1].checks) if watched else 0):
                self._prober.remove((task, index))

    @property
    def healths(self) -> Mapping[str, TaskHealth]:
        """Current health of each watched task."""
        with self._lock:
            return {task: health for task, (_, health) in self._watched.items()}

    def stop(self) -> None:
        """Stop the checks and the lookups; no report follows."""
        self._prober.stop()
        self._names.stop()

    # --- on the prober's thread

    def _attempt(self, subject: Subject, check: HealthCheck) -> Attempt:
        port = port_of(check, subject.ports)
        if port is None:
            raise OSError(0, f"the task has no port {check.port_index}")
        address = self._names.address((subject.host, check.ip_protocol))
        if wrong := subject.way.wrong(address, port, has=port in subject.ports):
            raise OSError(0, wrong)
        if why := self._stranger(subject.task, port):
            raise OSError(0, why)
        return dial(check, address, subject.host, port)

    def _found(self, subject: Subject, index: int, finding: Finding) -> None:
        with self._lock:
            watched, before = self._watched.get(subject.task, (None, None))
            if watched is not subject or before is None:
                return
            after = before.after(index, finding, self._now())
            self._watched[subject.task] = (subject, after)
        if after.differs(before):
            self._report(subject.task, after)


class Names:
    """Asynchronous resolver of host names: threads make the lookups, callers never wait.

    Args:
        look_up: Function that resolves a name; the host's resolver by default.
    """

    def __init__(self, look_up: Callable[[str, IpProtocol], str] | None = None) -> None:
        self._look_up = look_up or resolved
        self._known: dict[Name, tuple[float, str, str]] = {}  # expiry, address or "", reason if ""
        self._asked: dict[Name, list[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[Name | None] = queue.SimpleQueue()
        for number in range(LOOKERS):
            threading.Thread(target=self._work, name=f"names-{number}", daemon=True).start()

    def when_known(self, name: Name, then: Callable[[], None]) -> None:
        """Call `then` once the lookup of a name has succeeded or failed; at once if the result is known."""
        with self._lock:
            is_known = is_address(name[0]) or name in self._known
            if not is_known:
                self._ask(name, then)
        if is_known:
            then()

    def address(self, name: Name) -> str:
        """Return the last known address; an expired one is still returned while it is looked up again.

        Raises:
            OSError: The name has no known address.
        """
        if is_address(name[0]):
            return name[0]
        with self._lock:
            until, address, why = self._known.get(name, (0.0, "", f"{name[0]} is being looked up"))
            if time.monotonic() > until and name not in self._asked:
                self._ask(name)
        if not address:
            raise OSError(0, why)
        return address

    def _ask(self, name: Name, *then: Callable[[], None]) -> None:
        if name not in self._asked:
            self._orders.put(name)
        self._asked.setdefault(name, []).extend(then)

    def _work(self) -> None:
        while (name := self._orders.get()) is not None:
            address, why, fresh_s = "", "", FRESH_S
            try:
                address = self._look_up(*name)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                why, fresh_s = f"{name[0]} has no address: {reason}", RETRY_S
            with self._lock:
                self._known[name] = (time.monotonic() + fresh_s, address, why)
                thens = self._asked.pop(name)
            for then in thens:
                then()

    def stop(self) -> None:
        """End the threads; a thread that waits for a lookup ends after it."""
        for _ in range(LOOKERS):
            self._orders.put(None)


def resolved(host: str, family: IpProtocol) -> str:
    """Return the first address of a host.

    Raises:
        OSError, UnicodeError: The host has no address.
    """
    kind = socket.AF_INET6 if family is IpProtocol.IPV6 else socket.AF_INET
    return str(socket.getaddrinfo(host, None, kind, socket.SOCK_STREAM)[0][4][0])


def is_address(host: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
