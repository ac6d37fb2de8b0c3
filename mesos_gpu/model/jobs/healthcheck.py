"""Health checks of apps as in Marathon 1.11."""

from dataclasses import dataclass
from enum import Enum


class Protocol(Enum):
    """Protocol of a check. The scheduler makes HTTP, HTTPS and TCP checks, the task's executor the others."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"
    TCP = "TCP"
    COMMAND = "COMMAND"
    MESOS_TCP = "MESOS_TCP"
    MESOS_HTTP = "MESOS_HTTP"
    MESOS_HTTPS = "MESOS_HTTPS"

    @property
    def by_executor(self) -> bool:
        """Whether the executor makes the check in the task's network, instead of the scheduler."""
        return self not in (Protocol.HTTP, Protocol.HTTPS, Protocol.TCP)

    @property
    def is_http(self) -> bool:
        """Whether the check sends an HTTP request, and so has a path."""
        return self in (Protocol.HTTP, Protocol.HTTPS, Protocol.MESOS_HTTP, Protocol.MESOS_HTTPS)


class IpProtocol(Enum):
    """IP version of the address that a check connects to."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """Results of a check of one task, summarized. Times are seconds on the caller's clock."""

    first_success_s: float | None = None
    last_success_s: float | None = None
    last_failure_s: float | None = None
    last_failure_cause: str = ""
    consecutive_failures: int = 0

    @property
    def alive(self) -> bool | None:
        """Last result that counts; None before the first."""
        if self.consecutive_failures:
            return False
        return None if self.last_success_s is None else True


@dataclass(frozen=True, slots=True)
class Checked:
    """Latest result of a check that is only shown, and ends no task.

    Attributes:
        ok: Whether the check succeeded.
        code: HTTP status or exit code; None for TCP, or if a command timed out.
    """

    ok: bool
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response for display; a long body is cut off."""

    status: int
    content_type: str
    body: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """Last readiness check of a task; `answer` is set only if the app asks to keep it."""

    name: str
    ready: bool
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check. `command` is set exactly for COMMAND, and then neither path, port nor port_index is."""

    protocol: Protocol = Protocol.HTTP
    path: str | None = None  # path for HTTP; None for "/"
    port: int | None = None  # fixed port; None to use the port with `port_index` of the app
    port_index: int | None = None
    command: str | None = None  # for /bin/sh -c; exit code 0 means healthy
    grace_period_s: int = 300  # time after the start in which failures before the first success do not count
    interval_s: int = 60  # time between two checks
    timeout_s: int = 20  # time after which a check counts as failed
    max_consecutive_failures: int = 3  # number after which the task is killed; 0 for never
    delay_s: int = 15  # time before the first check
    ip_protocol: IpProtocol = IpProtocol.IPV4
    ignore_http_1xx: bool = False  # whether HTTP status 1xx counts neither as success nor as failure
