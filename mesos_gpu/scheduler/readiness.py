"""Readiness checks of new tasks, made until the task has passed one."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mesos_gpu.adapters.asker import ReadinessAttempt, as_health_check
from mesos_gpu.adapters.prober import Attempt, Prober
from mesos_gpu.model.apps.app import ReadinessCheck
from mesos_gpu.model.jobs.healthcheck import Answer, IpProtocol, Readiness
from mesos_gpu.policy.apps.healthcheck import Finding
from mesos_gpu.policy.apps.outward import Way
from mesos_gpu.scheduler.checks import Names


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running task that is not ready yet.

    Attributes:
        host: Name or address of the task's agent.
        port: Port to connect to; None if the task has no port of the check's name.
        way: Restriction of the addresses that checks may connect to.
    """

    task: str
    host: str
    port: int | None
    check: ReadinessCheck
    way: Way = field(default_factory=Way)


class ReadinessChecks:
    """Readiness checks of all candidates. Methods may be called from any thread.

    Args:
        report: Function that is called on another thread with a task's id and the result of each attempt. It must not
            block.
        prober: Prober whose thread makes the checks.
        names: Resolver of host names.
    """

    def __init__(self, report: Callable[[str, Readiness], None], prober: Prober, names: Names) -> None:
        self._report, self._prober, self._names = report, prober, names
        self._watched: dict[str, Candidate] = {}
        self._lock = threading.Lock()  # guards `_watched`, and the order of calls to the prober

    def watch(self, candidate: Candidate) -> None:
        """Check a task now, and then at the interval of its check."""
        attempts: list[ReadinessAttempt] = []

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
                ):  # otherwise it ended or was replaced meanwhile
                    check = as_health_check(candidate.check)
                    self._prober.add(_key(candidate.task), check, 0.0, attempt, found)

        with self._lock:
            self._watched[candidate.task] = candidate
        self._names.when_known((candidate.host, IpProtocol.IPV4), begin)

    def _attempt(self, candidate: Candidate) -> ReadinessAttempt:
        if candidate.port is None:
            raise OSError(0, f"the task has no port {candidate.check.port_name}")
        address = self._names.address((candidate.host, IpProtocol.IPV4))
        if wrong := candidate.way.wrong(address, candidate.port, has=True):
            raise OSError(0, wrong)
        return ReadinessAttempt(address, candidate.port, candidate.check, host=candidate.host)

    def forget(self, task: str) -> None:
        """Stop checking a task that is ready or has ended. Harmless if it is not watched."""
        with self._lock:
            self._watched.pop(task, None)
            self._prober.remove(_key(task))


def _key(task: str) -> tuple[str, str]:
    return (task, "readiness")
