"""The control program of NVIDIA's Multi-Process Service (MPS): how its daemon is asked and told. Each question has a
deadline: a daemon that was stopped never answers.

Protocol 2 has a shell, which is given lines (nvidia-cuda-mps-control(1)); protocol 3 takes a command as arguments
(NVIDIA's "MPS v3 Interface"). The exit code of the first does not say whether it was obeyed: settings are read back.
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
SERVER: Final = "nvidia-cuda-mps-server"  # the daemon looks for it in its PATH
DEADLINE_S: Final = 3.0
#: The longest path of a directory of pipes, in bytes. An address of a UNIX socket has 108 (unix(7)), and the longest
#: name in the directory is control_privileged; the daemon of 535 uses 106, and ends without a word if it is longer.
MAX_PATH: Final = 106 - len("/control_privileged")
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
PROTOCOL: Final = "CUDA_MPS_PROTOCOL_VERSION"
PERCENT: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


class Silent(Unavailable):
    """The daemon takes a command and does not answer in time."""


class Absent(Unavailable):
    """No daemon is at these pipes."""


class Busy(Unavailable):
    """The daemon lives, and speaks with somebody else all the time: the one of 535 has one conversation, and sends
    away whoever comes meanwhile."""


class Disobeyed(Unavailable):
    """The daemon answers, and something else than what it was told holds now."""


#: The last question of each conversation by protocol 2, and how its answer reads. A daemon that speaks with somebody
#: else sends the program away, which exits with 1, or with 0 and no word: so would a list with nothing in it.
_LAST: Final = "get_default_active_thread_percentage"
_ITS_ANSWER: Final = re.compile(r"\d+\.\d+")
#: Until it is asked again, by chance: two that pause as long would meet again.
_PAUSES_S: Final = (0.002, 0.03)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may use of the card.

    Attributes:
        percent: Of its streaming multiprocessors.
        memory_mib: Of its memory, each process; None: MPS does not limit it.
    """

    percent: int
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a daemon. `fault`: whether it says that it is in fault; None: this driver's daemon cannot say."""

    pid: int
    fault: bool | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """The program, and the pipes of the daemon that it speaks to.

    Attributes:
        program: Its path.
        pipes: The daemon's directory.
        libraries: A directory of the driver's libraries that goes before the host's; None: the host's.
        deadline_s: For one call.
    """

    program: Path
    pipes: Path
    libraries: Path | None = None
    deadline_s: float = DEADLINE_S

    def environment(self) -> dict[str, str]:
        """The environment of the daemon and of those who ask it."""
        path = f"{self.program.parent}:/usr/bin:/usr/sbin:/bin:/sbin"
        own = {"PATH": path, PIPES: str(self.pipes)}
        return own | ({"LD_LIBRARY_PATH": str(self.libraries)} if self.libraries else {})

    def ask(self, *commands: str) -> list[str]:
        """Give commands to the shell of protocol 2, and take the lines of the answer. Whoever speaks with the daemon is
        waited for; what was cut short is asked again, so each command must be one that may be given twice.

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
                    f"the MPS daemon at {self.pipes} spoke with others for {self.deadline_s:g} s",
                    remedy="see who keeps its control program open",
                )
            time.sleep(random.uniform(*_PAUSES_S))

    def tell(self, command: str) -> None:
        """Give the shell of protocol 2 a command after which the daemon may answer no more.

        Raises:
            Silent: It is not taken.
            Unavailable: The program cannot be run.
        """
        self._run((), command, _lines(command))

    def call(self, *arguments: str) -> list[str]:
        """Give one command of protocol 3, and take the lines of the answer.

        Raises:
            Silent, Absent: There is no answer.
            Disobeyed: The daemon refuses.
            Unavailable: The program cannot be run.
        """
        done = self._run(arguments, " ".join(arguments))
        if done.returncode == 0:
            return done.stdout.splitlines()
        if not self._is_heard():
            raise self._absent(done)
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise Disobeyed(
            f"the MPS daemon at {self.pipes} refuses {' '.join(arguments)!r}: {said}", remedy="see its log"
        )

    def _run(
        self, arguments: tuple[str, ...], what: str, text: str = ""
    ) -> "subprocess.CompletedProcess[str]":
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
                remedy="no more shares are put on its card; it is ended with the last task there",
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{self.program} cannot be run: {error.strerror}", remedy="see that the driver is whole"
            ) from error

    def _absent(self, done: "subprocess.CompletedProcess[str]") -> Absent:
        said = (done.stderr or done.stdout).strip()
        return Absent(
            f"no MPS daemon is at {self.pipes}: {said or f'exit code {done.returncode}'}",
            remedy="the next share of the card starts it anew",
        )

    def _is_heard(self) -> bool:
        """Whether anybody listens where the daemon does. The socket of 535 is of another type, which connect(2) says of
        one that is listened to only; so nobody's conversation is disturbed."""
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
    """How a task reaches the daemon. `pipes`: below the daemon's directory; `env`: what its environment must say."""

    pipes: str
    env: Mapping[str, str] = field(default_factory=dict)


class Mps(Protocol):
    """A daemon of one card and one user, by one protocol. Every method but `daemon` and `client` may raise Silent,
    Absent, Busy or Disobeyed."""

    control: Control

    def daemon(self, most: Limits, *, across_users: bool = False) -> tuple[tuple[str, ...], dict[str, str]]:
        """Arguments of a daemon in the foreground, and what its environment says more. `across_users`: whether it has
        one server, of root, for all users."""

    def open(self, gpu: GpuId, uid: int, most: Limits) -> None:
        """Have it serve that user on that card, no client beyond `most`; harmless if it does already."""

    def admit(self, task: str, limits: Limits) -> None:
        """Have it know a task's limits; again if they changed."""

    def client(self, task: str, limits: Limits) -> Client:
        """What the task needs in order to be a client within its limits."""

    def holds(self, tasks: Mapping[str, Limits], most: Limits) -> None:
        """See that it still has what `open` and `admit` told it.

        Raises:
            Disobeyed: It has other settings.
        """

    def quit(self, grace_s: float) -> None:
        """Have it end, with its servers. `grace_s`: for their clients, where the daemon takes one."""

    def servers(self) -> tuple[Server, ...]:
        """List its servers, with their states."""

    def clients(self, server: int) -> tuple[int, ...]:
        """Pids of a server's clients."""

    def terminate(self, server: int, client: int) -> None:
        """Have a client's work drained and the client let go; harmless if it is not there."""


def _lines(*commands: str) -> str:
    return "".join(f"{command}\n" for command in commands)


def numbers(lines: list[str]) -> tuple[int, ...]:
    """The lines of an answer that are pids; the others are words for people."""
    return tuple(int(line) for line in map(str.strip, lines) if line.isdecimal())


def whole_mib(limits: Limits) -> str:
    """A limit of memory as MPS takes it: a fraction of GiB would be cut to nothing ("1.5G" is taken as 1 MiB)."""
    return f"{limits.memory_mib}M"


def too_long(pipes: Path) -> str:
    """Why a directory cannot have a daemon's pipes; "": it can."""
    length = len(os.fsencode(pipes))
    return f"its path has {length} bytes, and sockets take {MAX_PATH}" if length > MAX_PATH else ""
