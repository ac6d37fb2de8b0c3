"""Control program of NVIDIA's Multi-Process Service (MPS): queries and commands to its daemon, each with a deadline,
because a daemon that was stopped never answers.

Protocol 2 has a shell that reads lines (nvidia-cuda-mps-control(1)); protocol 3 takes a command as arguments (NVIDIA's
"MPS v3 Interface"). The exit code of the first does not say whether a command succeeded: settings are read back.
"""

import errno
import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId

PROGRAM: Final = "nvidia-cuda-mps-control"
SERVER: Final = "nvidia-cuda-mps-server"  # the daemon searches its PATH for it
DEADLINE_S: Final = 3.0
#: The longest path of a directory of pipes, in bytes. An address of a UNIX socket has 108 (unix(7)), and the longest
#: name in the directory is control_privileged; the daemon of 535 uses 106, and exits silently if the path is longer.
MAX_PATH: Final = 106 - len("/control_privileged")
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
PROTOCOL: Final = "CUDA_MPS_PROTOCOL_VERSION"
PERCENT: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class Silent(Unavailable):
    """The daemon accepts a command and does not answer in time."""


class Absent(Unavailable):
    """No daemon listens at these pipes."""


class Busy(Unavailable):
    """The daemon is alive, but busy with another client all the time.

    The daemon of 535 serves one client at a time and turns others away.
    """


class SettingsRejected(Unavailable):
    """The daemon answers, but refuses a command or has other settings than it was given."""


#: Last query of each conversation by protocol 2, and the form of its answer. A daemon that is busy with another client
#: turns the program away, which then exits with 1, or with 0 and no output, as for an empty list.
_LAST: Final = "get_default_active_thread_percentage"
_ITS_ANSWER: Final = re.compile(r"\d+\.\d+")
#: Range of random pauses between attempts: two clients with equal pauses would collide again.
_PAUSES_S: Final = (0.002, 0.03)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a client on its card.

    Attributes:
        percent: Share of the streaming multiprocessors in percent.
        memory_mib: Memory of each process in MiB; None if MPS does not limit it.
    """

    percent: int
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """An MPS server of a daemon. `fault`: whether it reports a fault; None if this driver cannot report that."""

    pid: int
    fault: bool | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """The control program, with the pipes of the daemon that it talks to.

    Attributes:
        program: Path of the program.
        pipes: Directory of the daemon's pipes.
        libraries: Directory of driver libraries that takes precedence over the host's; None for the host's.
        deadline_s: Seconds for one call.
    """

    program: Path
    pipes: Path
    libraries: Path | None = None
    deadline_s: float = DEADLINE_S

    def environment(self) -> dict[str, str]:
        """Return the environment of the daemon and of its clients."""
        path = f"{self.program.parent}:/usr/bin:/usr/sbin:/bin:/sbin"
        own = {"PATH": path, PIPES: str(self.pipes)}
        return own | ({"LD_LIBRARY_PATH": str(self.libraries)} if self.libraries else {})

    def ask(self, *commands: str) -> list[str]:
        """Send commands to the shell of protocol 2, and return the lines of the answer.

        While another client talks to the daemon, this waits; an interrupted conversation is repeated, so each command
        must be safe to send twice.

        Raises:
            Silent, Absent, Busy: There is no answer.
            Unavailable: The program cannot be run.
        """
        deadline = time.monotonic() + self.deadline_s
        while True:
            done = self._run((), commands[0], _lines(*commands, _LAST))
            lines = done.stdout.splitlines()
            if not done.returncode and lines and _ITS_ANSWER.fullmatch(lines[-1]):
                return lines[:-1]
            if done.returncode and not self._is_heard():
                raise self._absent(done)
            if time.monotonic() > deadline:
                raise Busy(
                    f"the MPS daemon at {self.pipes} was busy with other clients for {self.deadline_s:g} s",
                    remedy="look for a process that keeps its control program open",
                )
            time.sleep(random.uniform(*_PAUSES_S))

    def tell(self, command: str) -> None:
        """Send a command to the shell of protocol 2 without reading an answer.

        It is for commands such as quit, after which the daemon may not answer any more.

        Raises:
            Silent: The daemon does not accept the command.
            Unavailable: The program cannot be run.
        """
        self._run((), command, _lines(command))

    def call(self, *arguments: str) -> list[str]:
        """Send one command of protocol 3, and return the lines of the answer.

        Raises:
            Silent, Absent: There is no answer.
            SettingsRejected: The daemon refuses the command.
            Unavailable: The program cannot be run.
        """
        done = self._run(arguments, " ".join(arguments))
        if done.returncode == 0:
            return done.stdout.splitlines()
        if not self._is_heard():
            raise self._absent(done)
        output = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise SettingsRejected(
            f"the MPS daemon at {self.pipes} refuses {' '.join(arguments)!r}: {output}", remedy="see its log"
        )

    def _run(
        self, arguments: tuple[str, ...], what: str, text: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run the control program with arguments (protocol 3) or input (protocol 2)."""
        try:
            return subprocess.run(
                [self.program, *arguments],
                input=text,
                env=self.environment() | ({PROTOCOL: "3"} if arguments else {}),
                cwd="/",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Silent(
                f"the MPS daemon at {self.pipes} did not answer {what!r} within {self.deadline_s:g} s",
                remedy="none needed: its card gets no more shares, and the daemon is ended with the last task there",
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{self.program} cannot be run: {error.strerror}",
                remedy="check the installation of the driver",
            ) from error

    def _absent(self, done: "subprocess.CompletedProcess[str]") -> Absent:
        output = (done.stderr or done.stdout).strip()
        return Absent(
            f"no MPS daemon is at {self.pipes}: {output or f'exit code {done.returncode}'}",
            remedy="the next share of the card starts it again",
        )

    def _is_heard(self) -> bool:
        """Return whether a process listens on the daemon's socket, without disturbing its clients.

        The socket of 535 is of another type, which connect(2) reports only for a socket that is listened on.
        """
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.settimeout(self.deadline_s)
            try:
                daemon.connect(str(self.pipes / "control"))
            except TimeoutError:
                return True
            except OSError as error:
                return error.errno == errno.EPROTOTYPE
        return True


@dataclass(frozen=True, slots=True)
class Client:
    """Connection data of a task. `pipes`: path below the daemon's directory; `env`: variables that the task needs."""

    pipes: str
    env: Mapping[str, str] = field(default_factory=dict)


class Mps(Protocol):
    """A daemon of one card and one user, over one protocol.

    Every method but `daemon` and `client` may raise Silent, Absent, Busy or SettingsRejected.
    """

    control: Control

    def daemon(self, most: Limits, *, across_users: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return arguments and additional variables of a daemon in the foreground.

        `across_users`: whether it has one server, of root, for all users.
        """

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Make the daemon serve a user on a card, no client beyond `most`; harmless if it does already."""

    def admit(self, task: str, limits: Limits) -> None:
        """Set or change a task's limits in the daemon."""

    def client(self, task: str, limits: Limits) -> Client:
        """Return the settings by which the task becomes a client within its limits."""

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """Check that the daemon still has the settings of `open` and `admit`.

        Raises:
            SettingsRejected: It has other settings.
        """

    def quit(self, grace_s: float) -> None:
        """End the daemon and its servers. `grace_s`: time for their clients, where the daemon supports that."""

    def servers(self) -> tuple[Server, ...]:
        """Return the daemon's servers with their states."""

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the pids of a server's clients."""

    def terminate(self, server: int, client: int) -> None:
        """Drain a client's work and disconnect it; harmless if it is gone."""


def _lines(*commands: str) -> str:
    return "".join(f"{command}\n" for command in commands)


def numbers(lines: list[str]) -> tuple[int, ...]:
    """Return the pids among the lines of an answer; the other lines are text for people."""
    return tuple(int(line) for line in map(str.strip, lines) if line.isdecimal())


def whole_mib(limits: Limits) -> str:
    """Return a memory limit in the form for MPS; fractions of GiB would be truncated ("1.5G" is read as 1 MiB)."""
    return f"{limits.memory_mib}M"


def too_long(pipes: Path) -> str:
    """Return why a directory cannot have a daemon's pipes; "" if it can."""
    length = len(os.fsencode(pipes))
    return f"its path has {length} bytes, and sockets allow {MAX_PATH}" if length > MAX_PATH else ""
