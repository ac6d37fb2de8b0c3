"""Health checks that the executor makes, and the check whose result is only shown.

COMMAND checks run in the task. MESOS_HTTP(S) and MESOS_TCP checks connect to the host's loopback address, or
to the address of a container on a bridge, and send data only to servers that are proved to be the task's.
Source: Mesos 1.11's docs/health-checks.md and src/checks (127.0.0.1 whatever the host's name; no certificate
is verified).
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from isolator.confinement.listeners import NOBODY, Listeners
from isolator.executor.life import Event, Kind
from isolator.host import processes
from isolator.runs.joining import Place, Running
from mesos_gpu.adapters.prober import NOTHING, READ, Attempt, Prober, dial
from mesos_gpu.model.jobs.healthcheck import Checked, HealthCheck, IpProtocol, Protocol
from mesos_gpu.policy.apps.healthcheck import Finding, TaskHealth, first_after_s
from mesos_gpu.wire.hosts.checked import encode_checked

if TYPE_CHECKING:
    from isolator.confinement.inner_calls import Inner

DEATH_S: Final = 0.2  # time that a killed process usually takes to be gone
MAX_WORDS: Final = 300  # most bytes of a failing command's last output that are shown to the user


class Checker:
    """All checks of the one task.

    Args:
        checks: Health checks, each with its port on this task.
        task: Mesos' task id.
        pid: Pid of the task's first process as this process sees it. If None, or not the task's, COMMAND
            checks fail.
        report: Function that is called on another thread if the health or the number of counted failures
            changed.
        listeners: Proof of which sockets belong to the task; closed by `stop`.
        now: Clock in seconds.
        denied: Ports that the task, and so its checks, must not reach.
        inner: Inner process of the task, from which commands are forked; None if the task has none.
        shown: Check that changes no health, with its port; empty if the task has none.
        post: Function that gets an event CHECKED, on another thread, if the result of that check changed.
    """

    def __init__(
        self,
        checks: Sequence[HealthCheck],
        task: str,
        pid: int | None,
        report: Callable[[TaskHealth], None],
        listeners: Listeners,
        *,
        now: Callable[[], float] = time.time,
        denied: Collection[int] = (),
        inner: "Inner | None" = None,
        shown: Sequence[HealthCheck] = (),
        post: Callable[[Event], None] | None = None,
    ) -> None:
        """Prepare the checks; may take up to two seconds, until the task's program runs."""
        self._report, self._now, self._denied, self._listeners = report, now, denied, listeners
        self._health, self._shown, self._post = TaskHealth.begin(checks, now()), tuple(shown), post
        self._checked: Checked | None = None
        self._prober: Prober | None = None
        self._place: Place | None = None
        self._commands: dict[int, Command] = {}  # last command of each check
        self._why = "its process is not visible to the executor"
        if pid is not None and any(check.protocol is Protocol.COMMAND for check in (*checks, *shown)):
            try:
                self._place = Place(pid, task, inner.session if inner is not None else None)
            except OSError as error:
                self._why = error.strerror or str(error)

    def start(self) -> None:
        """Start the checks; to be called once."""
        self._prober = Prober()
        for index, check in enumerate((*self._health.checks, *self._shown)):
            self._prober.add(
                index,
                check,
                first_after_s(check),
                lambda index=index, check=check: self._attempt(index, check),  # type: ignore[misc]
                lambda finding, index=index: self._found(index, finding),  # type: ignore[misc]
            )

    def stop(self) -> None:
        """End all checks that are under way; no report follows. May be called twice."""
        if self._prober is not None:
            self._prober.stop()
        if self._place is not None:
            self._place.close()
        self._listeners.close()
        self._listeners = NOBODY
        self._prober = self._place = None

    def _attempt(self, index: int, check: HealthCheck) -> Attempt:
        """Start one attempt of a check."""
        if check.protocol is Protocol.COMMAND:
            if self._place is None:
                raise OSError(0, f"the task cannot be joined: {self._why}")
            last = self._commands.get(index)
            if last is not None and not last.gone():
                raise OSError(0, f"process {last.pid} of the previous check could not be killed")
            self._commands[index] = Command(*self._place.start(check.command or "false"))
            return self._commands[index]
        if check.port is None:
            raise OSError(0, "the task has no port for this check")
        if check.port in self._denied:
            raise OSError(0, f"port {check.port} controls the cluster, and tasks may not reach it")
        listeners, port = self._listeners, check.port
        ip, inner = listeners.place_of(port, ipv6=check.ip_protocol is IpProtocol.IPV6)
        with listeners.entered():
            return dial(check, ip, ip, inner, lambda line: listeners.prove(line, port))

    def _found(self, index: int, finding: Finding) -> None:
        if index >= len(self._health.checks):
            self._show(finding)
            return
        before = self._health
        self._health = before.after(index, finding, self._now())
        if self._health.differs(before):
            self._report(self._health)

    def _show(self, finding: Finding) -> None:
        checked = Checked(finding.ok is not False, finding.code)
        if checked != self._checked and self._post is not None:
            self._checked = checked
            self._post(Event(Kind.CHECKED, message=finding.cause, payload=encode_checked(checked)))


class Command:
    """`Attempt` by a command that was just started in a session of its own; exit code 0 is healthy.

    Args:
        output: Descriptor of the command's output; closed when the command has ended.
    """

    def __init__(self, process: Running, output: int) -> None:
        self._process, self._file, self.pid = process, output, process.pid
        self.wants, self.looks = READ, True
        self._said = b""
        os.set_blocking(output, False)

    def fileno(self) -> int:
        """Return the descriptor of the command's output, as `Attempt.fileno`."""
        return self._file

    def go_on(self) -> Finding | None:
        """Read on, as `Attempt.go_on`; poll the process, as others may hold its output open after its end."""
        self._hear()
        code = self._process.poll()
        if code is None:
            return None
        self._hear()
        if code == 0:
            return Finding(True, code=0)
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        output = self._said.decode(errors="replace").strip()
        return Finding(False, f"{how}: {output}" if output else how, code if code > 0 else None)

    def _hear(self) -> None:
        while self.wants == READ:
            try:
                data = os.read(self._file, 65536)
            except BlockingIOError:
                return
            self._said = (self._said + data)[-MAX_WORDS:]
            if not data:
                self.wants = NOTHING

    def close(self) -> None:
        """Kill the command and all that it started, in its session and below it, as `Attempt.close`."""
        below = self._process.processes()
        self._process.close()
        processes.send(below, signal.SIGKILL)
        os.close(self._file)
        deadline = time.monotonic() + DEATH_S
        others = [pid for pid in below if pid != self.pid]
        while not (self.gone() and all(map(_is_collected, others))) and time.monotonic() < deadline:
            time.sleep(0.002)

    def gone(self) -> bool:
        """Return whether the command has ended and was reaped."""
        return self._process.gone()


def _is_collected(pid: int) -> bool:
    """Return whether a killed process is gone; processes without a parent become children of this one, which
    reaps them.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not os.path.exists(f"/proc/{pid}")
