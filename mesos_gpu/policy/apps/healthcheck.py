"""What results of health checks mean: whether a task is healthy, and when it is to be killed. Pure.

Sources: Marathon 1.11's HealthCheckActor and Health; Mesos 1.11's src/checks/health_checker.cpp. They count
differently, and so does this: an executor's check kills at the failure that makes `max_consecutive_failures`, a
scheduler's at the one after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from mesos_gpu.model.jobs.healthcheck import CheckHealth, HealthCheck
from mesos_gpu.model.jobs.port import PortBinding

FIRST_CHECK_S: Final = 5.0  # Marathon's own checks begin so soon, whatever delaySeconds says: that is Mesos'
MIN_PAUSE_S: Final = 0.25  # an interval of 0 is allowed, and must not keep a host busy
TIMEOUT_S: Final = 20.0  # instead of 0, which would let one check hang for ever


@dataclass(frozen=True, slots=True)
class Finding:
    """What one attempt found.

    Attributes:
        ok: Result; None if it is neither good nor bad (an HTTP 1xx that is to be ignored).
        cause: Reason of a bad result.
        code: HTTP status or exit code; None if there was none.
    """

    ok: bool | None
    cause: str = ""
    code: int | None = None


def first_after_s(check: HealthCheck) -> float:
    """How long after the start the first attempt is made."""
    if check.protocol.by_executor:
        return float(check.delay_s)
    return min(pause_s(check), FIRST_CHECK_S)


def pause_s(check: HealthCheck) -> float:
    """The pause from the end of an attempt to the next one, seconds."""
    return max(float(check.interval_s), MIN_PAUSE_S)


def timeout_s(check: HealthCheck) -> float:
    """What an attempt may take."""
    return float(check.timeout_s) or TIMEOUT_S


def port_of(check: HealthCheck, ports: Sequence[int]) -> int | None:
    """Where to connect, of the ports that the task has; None: it has no such port, or the check needs none."""
    if check.port is not None:
        return check.port
    index = check.port_index
    return ports[index] if index is not None and 0 <= index < len(ports) else None


def of_executor(
    checks: Sequence[HealthCheck], ports: Sequence[int], bindings: Sequence[PortBinding] = ()
) -> tuple[HealthCheck, ...]:
    """Checks that the task's executor makes, each with the port of the host that it has on this task. A check's own
    number is the container's, if the task has `bindings`."""
    inside = {each.container_port: each.host_port for each in bindings if each.protocol == "tcp"}
    own = tuple(
        replace(check, port=inside.get(check.port, check.port)) if check.port is not None else check
        for check in checks
        if check.protocol.by_executor
    )
    return tuple(replace(check, port=port_of(check, ports)) for check in own)


def of_scheduler(checks: Sequence[HealthCheck]) -> tuple[HealthCheck, ...]:
    """The others."""
    return tuple(check for check in checks if not check.protocol.by_executor)


def judge(status: int, *, ignore_1xx: bool) -> Finding:
    """What a final status means: 200 to 399 is healthy (a redirect is not followed, as in Marathon)."""
    if 200 <= status < 400:
        return Finding(True, code=status)
    return Finding(None if status < 200 and ignore_1xx else False, f"HTTP status {status}", status)


def unanswered(why: str, *, interim: bool, ignore_1xx: bool) -> Finding:
    """What it means that no final status came."""
    return Finding(None if interim and ignore_1xx else False, why)


def judged(
    check: HealthCheck, health: CheckHealth, finding: Finding, now_s: float, started_s: float
) -> CheckHealth:
    """CheckHealth after one more finding; failures in the grace period, before the first success, do not count."""
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
    """Whether the task is to be killed for it."""
    most = check.max_consecutive_failures
    if not most:
        return False
    return health.consecutive_failures >= (most if check.protocol.by_executor else most + 1)


@dataclass(frozen=True, slots=True)
class TaskHealth:
    """All checks of one task. `started_s`: when it began to run, on the clock of `after`."""

    checks: tuple[HealthCheck, ...]
    started_s: float
    healths: tuple[CheckHealth, ...]  # one a check

    @classmethod
    def begin(cls, checks: Sequence[HealthCheck], started_s: float) -> Self:
        """Nothing is known yet."""
        return cls(tuple(checks), started_s, (CheckHealth(),) * len(checks))

    def after(self, index: int, finding: Finding, now_s: float) -> "TaskHealth":
        """The health after one more finding of the check at `index`."""
        health = judged(self.checks[index], self.healths[index], finding, now_s, self.started_s)
        return replace(self, healths=(*self.healths[:index], health, *self.healths[index + 1 :]))

    @property
    def healthy(self) -> bool | None:
        """False if any check fails, True if all succeed; None: not all have been made, or there are none."""
        alive = [health.alive for health in self.healths]
        if False in alive:
            return False
        return True if alive and None not in alive else None

    @property
    def kill(self) -> str:
        """Why the task is to be killed; "": it is not."""
        for check, health in zip(self.checks, self.healths, strict=True):
            if is_fatal(check, health):
                times = health.consecutive_failures
                return f"{check.protocol.value} check failed {times} times: {health.last_failure_cause}"
        return ""

    def differs(self, before: "TaskHealth") -> bool:
        """Whether there is news of any check: another answer, or one more failure that counts."""

        def seen(of: TaskHealth) -> list[tuple[bool | None, int]]:
            return [(health.alive, health.consecutive_failures) for health in of.healths]

        return seen(self) != seen(before)
