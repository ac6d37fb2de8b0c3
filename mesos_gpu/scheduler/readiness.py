"""Readiness checks: of each new task of an app that has one, until it has passed once."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mesos_gpu.adapters.asker import Asker, as_health_check
from mesos_gpu.adapters.prober import Attempt, Prober
from mesos_gpu.model.apps.app import ReadinessCheck
from mesos_gpu.model.jobs.healthcheck import Answer, IpProtocol, Readiness
from mesos_gpu.policy.apps.healthcheck import Finding
from mesos_gpu.policy.apps.outward import Way
from mesos_gpu.scheduler.checks import Names


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running task that is not known to be ready. `host`: its agent's name or address; `port`: the check's;
    `way`: where it may go."""

    task: str
    host: str
    port: int | None  # None: the task has no port of that name
    check: ReadinessCheck
    way: Way = field(default_factory=Way)


class ReadinessChecks:
    """Checks of all candidates. Methods may be called from any thread."""

    def __init__(self, report: Callable[[str, Readiness], None], prober: Prober, names: Names) -> None:
        """Arguments are ours.

        Args:
            report: Is called on another thread with a task's id and what each attempt found. It must not wait.
            prober: Whose thread makes them.
            names: Where hosts are looked up.
        """
        self._report, self._prober, self._names = report, prober, names
        self._watched: dict[str, Candidate] = {}
        self._lock = threading.Lock()  # of `_watched`, and of the order in which the prober is told

    def watch(self, candidate: Candidate) -> None:
        """Check it from now on, at once and then as often as its check says."""
        attempts: list[Asker] = []

        def attempt() -> Attempt:
            attempts.clear()
            attempts.append(self._attempt(candidate))
            return attempts[0]

        def found(finding: Finding) -> None:
            answer: Answer | None = attempts[0].answer if attempts else None
            self._report(candidate.task, Readiness(candidate.check.name, finding.ok is True, answer))

        def begin() -> None:
            with self._lock:
                if (
                    self._watched.get(candidate.task) is candidate
                ):  # else it ended while its host was looked up
                    check = as_health_check(candidate.check)
                    self._prober.add(_key(candidate.task), check, 0.0, attempt, found)

        with self._lock:
            self._watched[candidate.task] = candidate
        self._names.when_known((candidate.host, IpProtocol.IPV4), begin)

    def _attempt(self, candidate: Candidate) -> Asker:
        if candidate.port is None:
            raise OSError(0, f"the task has no port {candidate.check.port_name}")
        address = self._names.address((candidate.host, IpProtocol.IPV4))
        if wrong := candidate.way.wrong(address, candidate.port, has=True):
            raise OSError(0, wrong)
        return Asker(address, candidate.port, candidate.check, host=candidate.host)

    def forget(self, task: str) -> None:
        """Stop asking a task that is ready, or has ended. Harmless if it is not watched."""
        with self._lock:
            self._watched.pop(task, None)
            self._prober.remove(_key(task))


def _key(task: str) -> tuple[str, str]:
    return (task, "readiness")
