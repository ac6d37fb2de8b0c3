"""A health check of an app, as Marathon 1.11 has it."""

from dataclasses import dataclass
from enum import Enum


class Protocol(Enum):
    """What a check does. The scheduler makes the first three, the task's executor the others."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"
    TCP = "TCP"
    COMMAND = "COMMAND"
    MESOS_TCP = "MESOS_TCP"
    MESOS_HTTP = "MESOS_HTTP"
    MESOS_HTTPS = "MESOS_HTTPS"

    @property
    def by_executor(self) -> bool:
        """Whether it runs beside the task, in its network, rather than from the scheduler."""
        return self not in (Protocol.HTTP, Protocol.HTTPS, Protocol.TCP)

    @property
    def is_http(self) -> bool:
        """Whether it has a path."""
        return self in (Protocol.HTTP, Protocol.HTTPS, Protocol.MESOS_HTTP, Protocol.MESOS_HTTPS)


class IpProtocol(Enum):
    """Which address of the task a check connects to."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """The sum of a check's findings on a task. Times are those that were passed in, in seconds."""

    first_success_s: float | None = None
    last_success_s: float | None = None
    last_failure_s: float | None = None
    last_failure_cause: str = ""
    consecutive_failures: int = 0

    @property
    def alive(self) -> bool | None:
        """How the last finding that counts was; None: there is none yet."""
        if self.consecutive_failures:
            return False
        return None if self.last_success_s is None else True


@dataclass(frozen=True, slots=True)
class Checked:
    """Latest result of a check that is only shown, and ends no task.

    Attributes:
        ok: Whether it succeeded.
        code: HTTP status or exit code; None if there was none, as of TCP, or of a command that took too long.
    """

    ok: bool
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP, as it is shown to people; a long body is cut off."""

    status: int
    content_type: str
    body: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the last readiness check of a task found; `answer` only if it is to be kept."""

    name: str
    ready: bool
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check. `command` is set exactly for COMMAND, and then neither path, port nor port_index is."""

    protocol: Protocol = Protocol.HTTP
    path: str | None = None  # of HTTP; None: "/"
    port: int | None = None  # a fixed port; else the one at port_index of the app's ports
    port_index: int | None = None
    command: str | None = None  # for /bin/sh -c; healthy is exit code 0
    grace_period_s: int = 300  # failures do not count so long after the start, nor before the first success
    interval_s: int = 60  # between two checks
    timeout_s: int = 20  # one that takes longer has failed
    max_consecutive_failures: int = 3  # then the task is killed; 0: never
    delay_s: int = 15  # before the first check
    ip_protocol: IpProtocol = IpProtocol.IPV4
    ignore_http_1xx: bool = False  # such an answer is neither good nor bad
