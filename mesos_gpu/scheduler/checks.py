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

FRESH_S: Final = 60.0  # how long the address of a host's name is believed
RETRY_S: Final = 5.0  # how long, that it has none
LOOKERS: Final = 4  # threads that look names up: one that nobody answers for holds one for half a minute

Name = tuple[str, IpProtocol]


@dataclass(frozen=True, slots=True)
class Subject:
    """A running task to check.

    Attributes:
        task: Mesos' task id.
        host: Its agent's name or address.
        ports: What it has, in the order of its app's.
        checks: All of its app; those of the executor are left out.
        started_s: When it began to run, in seconds since the epoch.
        way: Where checks may go: the scheduler reaches more than its tasks must.
    """

    task: str
    host: str
    ports: tuple[int, ...]
    checks: tuple[HealthCheck, ...]
    started_s: float
    way: Way = field(default_factory=Way)


class Checks:
    """Checks of all tasks. Methods may be called from any thread."""

    def __init__(
        self,
        report: Callable[[str, TaskHealth], None],
        *,
        now: Callable[[], float] = time.time,
        prober: Prober | None = None,
        names: "Names | None" = None,
        stranger: Callable[[str, int], str] = lambda task, port: "",
    ) -> None:
        """Threads start.

        Args:
            report: Is called on another thread with a task's id and its health when that has news: another answer,
                or one more failure that counts. It must not wait.
            now: Seconds since the epoch.
            prober: Whose thread makes them; it ends with this.
            names: Where hosts are looked up; it ends with this.
            stranger: Function of a task id and a port that returns why nothing may be sent to the port; "" if the task
                is proved to listen there.
        """
        self._report, self._now, self._stranger = report, now, stranger
        self._prober = prober or Prober()
        self._names = names or Names()
        self._watched: dict[str, tuple[Subject, TaskHealth]] = {}
        self._lock = threading.Lock()  # of `_watched`, and of the order in which the prober is told

    def watch(self, subject: Subject, before: TaskHealth | None = None) -> None:
        """Check a task from now on; once more of the same task starts anew.

        Args:
            subject: The task. Without a check of the scheduler's it is left alone.
            before: What a scheduler before this one knew; None: nothing.
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
                return  # it ended while its host was looked up
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
        """The health of every task that is watched, as of now."""
        with self._lock:
            return {task: health for task, (_, health) in self._watched.items()}

    def stop(self) -> None:
        """End all; there is no report after this."""
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
    """Addresses of hosts. Looking one up may take long, so threads do it; who asks never waits."""

    def __init__(self, look_up: Callable[[str, IpProtocol], str] | None = None) -> None:
        """Threads start. `look_up`: the host's own resolver, if none is given."""
        self._look_up = look_up or resolved
        self._known: dict[
            Name, tuple[float, str, str]
        ] = {}  # until when it is believed; "": there is none, and why
        self._asked: dict[Name, list[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[Name | None] = queue.SimpleQueue()
        for number in range(LOOKERS):
            threading.Thread(target=self._work, name=f"names-{number}", daemon=True).start()

    def when_known(self, name: Name, then: Callable[[], None]) -> None:
        """Call `then` when there is something to say of a name, be it that it has no address."""
        with self._lock:
            known = is_address(name[0]) or name in self._known
            if not known:
                self._ask(name, then)
        if known:
            then()

    def address(self, name: Name) -> str:
        """What is known; what is old is still used while it is looked up again.

        Raises:
            OSError: It has none, as far as is known.
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
                words = getattr(error, "strerror", None) or str(error)
                why, fresh_s = f"{name[0]} has no address: {words}", RETRY_S
            with self._lock:
                self._known[name] = (time.monotonic() + fresh_s, address, why)
                thens = self._asked.pop(name)
            for then in thens:
                then()

    def stop(self) -> None:
        """End the threads; one that waits for an answer ends after it."""
        for _ in range(LOOKERS):
            self._orders.put(None)


def resolved(host: str, family: IpProtocol) -> str:
    """The first address of a host.

    Raises:
        OSError, UnicodeError: It has none.
    """
    kind = socket.AF_INET6 if family is IpProtocol.IPV6 else socket.AF_INET
    return str(socket.getaddrinfo(host, None, kind, socket.SOCK_STREAM)[0][4][0])


def is_address(host: str) -> bool:
    """Whether it is one, of either kind, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
