"""Evaluation of health checks: whether a task is healthy, and when it must be killed. Pure.

Sources: Marathon 1.11's HealthCheckActor and Health; Mesos 1.11's src/checks/health_checker.cpp. They count
differently, and so does this module: a check by the executor kills at failure number `max_consecutive_failures`, a
check by the scheduler at the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from mesos_gpu.model.jobs.healthcheck import CheckHealth, HealthCheck
from mesos_gpu.model.jobs.port import PortBinding

#: Latest start of Marathon's own checks; delaySeconds applies to Mesos' checks only.
FIRST_CHECK_S: Final = 5.0
MIN_PAUSE_S: Final = 0.25  # an interval of 0 is allowed, and must not keep a host busy
TIMEOUT_S: Final = 20.0  # used instead of 0, which would let a check hang for ever


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one attempt of a check.

    Attributes:
        ok: Result; None if it is neither good nor bad (an ignored HTTP 1xx).
        cause: Reason of a bad result.
        code: HTTP status or exit code; None without one.
    """

    ok: bool | None
    cause: str = ""
    code: int | None = None


def first_after_s(check: HealthCheck) -> float:
    """Return the seconds from the task's start to the first attempt."""
    if check.protocol.by_executor:
        return float(check.delay_s)
    return min(pause_s(check), FIRST_CHECK_S)


def pause_s(check: HealthCheck) -> float:
    """Return the seconds from the end of an attempt to the next one."""
    return max(float(check.interval_s), MIN_PAUSE_S)


def timeout_s(check: HealthCheck) -> float:
    """Return the seconds that an attempt may take."""
    return float(check.timeout_s) or TIMEOUT_S


def port_of(check: HealthCheck, ports: Sequence[int]) -> int | None:
    """Return the port to connect to, from the task's ports; None if the task lacks it or the check needs none."""
    if check.port is not None:
        return check.port
    index = check.port_index
    return ports[index] if index is not None and 0 <= index < len(ports) else None


def of_executor(
    checks: Sequence[HealthCheck], ports: Sequence[int], bindings: Sequence[PortBinding] = ()
) -> tuple[HealthCheck, ...]:
    """Return the checks that the task's executor makes, each with its port on the host.

    Args:
        checks: Checks of the app.
        ports: Ports of the task on its host.
        bindings: Host ports of a container on a bridge; a port number in a check is then a port of the container.
    """
    inside = {binding.container_port: binding.host_port for binding in bindings if binding.protocol == "tcp"}
    own = tuple(
        replace(check, port=inside.get(check.port, check.port)) if check.port is not None else check
        for check in checks
        if check.protocol.by_executor
    )
    return tuple(replace(check, port=port_of(check, ports)) for check in own)


def of_scheduler(checks: Sequence[HealthCheck]) -> tuple[HealthCheck, ...]:
    """Return the checks that the scheduler makes."""
    return tuple(check for check in checks if not check.protocol.by_executor)


def judge(status: int, *, ignore_1xx: bool) -> Finding:
    """Evaluate a final HTTP status: 200 to 399 is healthy (a redirect is not followed, as in Marathon)."""
    if 200 <= status < 400:
        return Finding(True, code=status)
    return Finding(None if status < 200 and ignore_1xx else False, f"HTTP status {status}", status)


def unanswered(why: str, *, interim: bool, ignore_1xx: bool) -> Finding:
    """Evaluate an attempt that got no final HTTP status.

    Args:
        why: Reason for the missing status.
        interim: Whether an interim status (HTTP 1xx) came.
        ignore_1xx: Whether such a status is ignored, so that the result is neither good nor bad.
    """
    return Finding(None if interim and ignore_1xx else False, why)


def judged(
    check: HealthCheck, health: CheckHealth, finding: Finding, now_s: float, started_s: float
) -> CheckHealth:
    """Return a check's health after one more result.

    Failures in the grace period, before the first success, do not count.

    Args:
        check: Settings of the check.
        health: Health before the result.
        finding: Result of the attempt.
        now_s: Time of the result.
        started_s: Time at which the task began to run, on the clock of `now_s`.
    """
    if finding.ok is None:
        return health
    if finding.ok:
        first_s = now_s if health.first_success_s is None else health.first_success_s
        return replace(health, first_success_s=first_s, last_success_s=now_s, consecutive_failures=0)
    if health.first_success_s is None and now_s < started_s + check.grace_period_s:
        return health
    return replace(
        health,
        last_failure_s=now_s,
        last_failure_cause=finding.cause,
        consecutive_failures=health.consecutive_failures + 1,
    )


def is_fatal(check: HealthCheck, health: CheckHealth) -> bool:
    """Return whether the task must be killed because of a check."""
    limit = check.max_consecutive_failures
    if not limit:
        return False
    return health.consecutive_failures >= (limit if check.protocol.by_executor else limit + 1)


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """Health of one task over all its checks.

    Attributes:
        checks: Checks of the task.
        started_s: Time at which the task began to run, on the clock of `after`.
        healths: Health of each check.
    """

    checks: tuple[HealthCheck, ...]
    started_s: float
    healths: tuple[CheckHealth, ...]

    @classmethod
    def begin(cls, checks: Sequence[HealthCheck], started_s: float) -> Self:
        """Return the health of a task for which no check was made yet."""
        return cls(tuple(checks), started_s, (CheckHealth(),) * len(checks))

    def after(self, index: int, finding: Finding, now_s: float) -> "TaskHealth":
        """Return the health after one more result of the check at `index`."""
        health = judged(self.checks[index], self.healths[index], finding, now_s, self.started_s)
        return replace(self, healths=(*self.healths[:index], health, *self.healths[index + 1 :]))

    @property
    def healthy(self) -> bool | None:
        """False if any check fails, True if all succeed; None if some were not made yet, or without checks."""
        alive = [health.alive for health in self.healths]
        if False in alive:
            return False
        return True if alive and None not in alive else None

    @property
    def kill(self) -> str:
        """Reason why the task must be killed; "" if it need not be."""
        for check, health in zip(self.checks, self.healths, strict=True):
            if is_fatal(check, health):
                times = health.consecutive_failures
                return f"{check.protocol.value} check failed {times} times: {health.last_failure_cause}"
        return ""

    def differs(self, before: "TaskHealth") -> bool:
        """Return whether a check changed since `before`: another result, or one more failure that counts."""

        def seen(of: TaskHealth) -> list[tuple[bool | None, int]]:
            return [(health.alive, health.consecutive_failures) for health in of.healths]

        return seen(self) != seen(before)
