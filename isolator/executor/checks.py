"""Health checks that the executor makes: COMMAND in the task, MESOS_HTTP(S) and MESOS_TCP to this host's loopback.

Source: Mesos 1.11's docs/health-checks.md and src/checks (127.0.0.1 whatever the host's name; no certificate is
verified).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from isolator.host import processes
from isolator.runs.joining import Place
from mesos_gpu.adapters.prober import NOTHING, READ, Attempt, Prober, dial
from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol, Protocol
from mesos_gpu.policy.apps.healthcheck import Finding, TaskHealth, first_after_s

DEATH_S: Final = 0.2  # until a process that is killed is gone, usually
MOST_WORDS: Final = 300  # of what a failing command said last, for its user to read


class Checker:
    """All checks of the one task."""

    def __init__(
        self,
        checks: Sequence[HealthCheck],
        task: str,
        pid: int | None,
        report: Callable[[TaskHealth], None],
        now: Callable[[], float] = time.time,
        denied: Collection[int] = (),
    ) -> None:
        """See where the task is; nothing is checked yet. Up to two seconds go by until its program runs.

        Args:
            checks: Those of the executor, each with the port that it has on this task.
            task: Mesos' task id.
            pid: Of the task's first process, as this one sees it; None, or that of another: COMMAND checks fail.
            report: Is called on another thread when there is news: another answer, or one more failure that counts.
            now: Seconds, on any clock.
            denied: Ports that the task must not reach, by its checks neither.
        """
        self._report, self._now, self._denied = report, now, denied
        self._health = TaskHealth.begin(checks, now())
        self._prober: Prober | None = None
        self._place: Place | None = None
        self._commands: dict[int, Command] = {}  # the last of each check
        self._why = "its process cannot be seen from here"
        if pid is not None and any(check.protocol is Protocol.COMMAND for check in checks):
            try:
                self._place = Place(pid, task)
            except OSError as error:
                self._why = error.strerror or str(error)

    def start(self) -> None:
        """Begin; once."""
        self._prober = Prober()
        for index, check in enumerate(self._health.checks):
            self._prober.add(
                index,
                check,
                first_after_s(check),
                lambda index=index, check=check: self._attempt(index, check),  # type: ignore[misc]
                lambda finding, index=index: self._found(index, finding),  # type: ignore[misc]
            )

    def stop(self) -> None:
        """End all that is under way, and forget the task: no report after this. Twice is harmless."""
        if self._prober is not None:
            self._prober.stop()
        if self._place is not None:
            self._place.close()
        self._prober = self._place = None

    def _attempt(self, index: int, check: HealthCheck) -> Attempt:
        if check.protocol is Protocol.COMMAND:
            if self._place is None:
                raise OSError(0, f"the task cannot be joined: {self._why}")
            last = self._commands.get(index)
            if last is not None and not last.gone():
                raise OSError(0, f"the check before it, process {last.pid}, would not die")
            self._commands[index] = Command(self._place.start(check.command or "false"))
            return self._commands[index]
        if check.port is None:
            raise OSError(0, "the task has no port for it")
        if check.port in self._denied:
            raise OSError(0, f"port {check.port} commands the cluster, and is not for tasks")
        ip = "::1" if check.ip_protocol is IpProtocol.IPV6 else "127.0.0.1"
        return dial(check, ip, ip, check.port)

    def _found(self, index: int, finding: Finding) -> None:
        before = self._health
        self._health = before.after(index, finding, self._now())
        if self._health.differs(before):
            self._report(self._health)


class Command:
    """`Attempt` by a process that was just started, in a session of its own. Its exit code 0 is healthy."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Follow a process that runs."""
        assert process.stdout is not None
        self._process, self._output, self.pid = process, process.stdout, process.pid
        self.wants, self.looks = READ, True
        self._said = b""
        os.set_blocking(self._output.fileno(), False)
        self._file = self._output.fileno()

    def fileno(self) -> int:
        """The descriptor of its output, as `Attempt.fileno` says."""
        return self._file

    def go_on(self) -> Finding | None:
        """Read on, as `Attempt.go_on` says. That it has ended is seen by looking: its output may be held open by
        others."""
        self._hear()
        code = self._ended()
        if code is None:
            return None
        self._hear()
        if code == 0:
            return Finding(True)
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        said = self._said.decode(errors="replace").strip()
        return Finding(False, f"{how}: {said}" if said else how)

    def _hear(self) -> None:
        while self.wants == READ:
            try:
                data = os.read(self._file, 65536)
            except BlockingIOError:
                return
            self._said = (self._said + data)[-MOST_WORDS:]
            if not data:
                self.wants = NOTHING

    def _ended(self) -> int | None:
        """The exit code, or minus the signal; None: it runs.

        The process is left uncollected: its id stays its own until its session is ended.
        """
        try:
            child = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # collected by whoever ends the task
            return -int(signal.SIGKILL)
        if child is None:
            return None
        return child.si_status if child.si_code == os.CLD_EXITED else -child.si_status

    def close(self) -> None:
        """Close, as `Attempt.close` says: what it started goes with it, in its session and below it."""
        below = processes.descendants(self.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        processes.send(below, signal.SIGKILL)
        self._output.close()
        deadline = time.monotonic() + DEATH_S
        while not (self.gone() and all(map(_is_collected, below))) and time.monotonic() < deadline:
            time.sleep(0.002)

    def gone(self) -> bool:
        """Whether it is dead and collected; one that waits in a driver may stay for long."""
        if self._process.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, int(signal.SIGKILL)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode is not None


def _is_collected(pid: int) -> bool:
    """Whether a process that is killed is gone; one whose parent is dead comes to this process to be collected."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not os.path.exists(f"/proc/{pid}")
