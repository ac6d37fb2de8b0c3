"""Hosts by OpenSSH's client: scripts that run there as root, with what they read. Keys of hosts must be known."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from mesos_gpu.errors import Unavailable

MAX_BYTES: Final = 4 << 20  # of what a script prints
#: What ssh itself ends with when it did not reach the host, or was refused.
_NOT_REACHED: Final = 255
#: ssh takes the first that it is given: nothing after these changes them.
_ALWAYS: Final[Mapping[str, str]] = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "PermitLocalCommand": "no",
    "ConnectTimeout": "15",
    "ServerAliveCountMax": "4",
    "LogLevel": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Ssh:
    """How a host is reached.

    Attributes:
        host: Name or address.
        user: root, or one who may run `sudo` without being asked.
        port: TCP port.
        identity: File of a private key; None: what the agent and ~/.ssh/config have.
        known_hosts: File of the hosts' keys; None: the user's own.
        options: Further ones of ssh_config(5), by name.
    """

    host: str = ""
    user: str = "root"
    port: int = 22
    identity: Path | None = None
    known_hosts: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def command(self, script: str, arguments: Sequence[str] = ()) -> list[str]:
        """What to execute here.

        Args:
            script: Of sh, for root there.
            arguments: Its $1, $2, …; whoever is on either host may read script and arguments.
        """
        words = [*([] if self.user == "root" else ["sudo", "-n", "--"]), "sh", "-c", script, "sh", *arguments]
        options = {
            **_ALWAYS,
            **self._files(),
            **{name: value for name, value in self.options.items() if name not in _ALWAYS},
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [
            "ssh",
            "-T",
            *flags,
            "-p",
            f"{self.port}",
            "-l",
            self.user,
            "--",
            self.host,
            shlex.join(words),
        ]

    def _files(self) -> dict[str, str]:
        """Options that name files."""
        made: dict[str, str] = {}
        if self.known_hosts:
            made |= {"UserKnownHostsFile": _quoted(self.known_hosts), "GlobalKnownHostsFile": "none"}
        if self.identity:
            made |= {"IdentityFile": _quoted(self.identity), "IdentitiesOnly": "yes"}
        return made

    def run(
        self, script: str, arguments: Sequence[str] = (), stdin: bytes = b"", *, timeout_s: float
    ) -> "Done":
        """Run a script there.

        Args:
            script: As of `command`.
            arguments: As of `command`.
            stdin: What it reads; nobody else sees it.
            timeout_s: After that long it is given up.

        Raises:
            Unavailable: The host is not reached, its key is not known, or it gives no answer in time.
        """
        if shutil.which("ssh") is None:
            raise Unavailable("there is no ssh here", remedy="apt-get install -y openssh-client")
        with _pipe(stdin) as source, _started(self.command(script, arguments), source) as process:
            assert process.stdout is not None
            late = threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGKILL))
            late.start()
            try:
                output = process.stdout.read(MAX_BYTES)
                more = process.stdout.read(1)
                code = process.wait() if not more else 0
            finally:
                late.cancel()
        text = output.decode(errors="replace")
        if more:
            raise Unavailable(f"{self.host} prints more than {MAX_BYTES} bytes", remedy="look what it runs")
        if code == -signal.SIGKILL:
            raise Unavailable(
                f"{self.host}: no end within {timeout_s:g} s; so far:\n{text[-2000:]}",
                remedy="look what runs there, then try again",
            )
        if code == _NOT_REACHED:
            raise Unavailable(
                f"{self.host}, port {self.port}: {text.strip() or 'ssh failed'}", remedy=self._remedy(text)
            )
        return Done(code, text)

    def _remedy(self, text: str) -> str:
        """What mends that ssh failed."""
        if "Host key verification failed" in text or "host key" in text:
            known = self.known_hosts or "~/.ssh/known_hosts"
            return f"look at the host's key on its console (/etc/ssh/ssh_host_ed25519_key.pub), and put it into {known}"
        if "Permission denied" in text:
            return f"let the key of `identity`, or of the SSH agent, in as {self.user}: nobody is asked for passwords"
        return f"ssh -p {self.port} {self.user}@{self.host}"


@dataclass(frozen=True, slots=True)
class Done:
    """A script that has ended.

    Attributes:
        code: Exit status.
        output: What it printed on both streams.
    """

    code: int
    output: str


def _quoted(path: Path) -> str:
    """A path as ssh_config(5) takes it: % begins a token there."""
    return '"{}"'.format(str(path.absolute()).replace("%", "%%"))


@contextlib.contextmanager
def _pipe(data: bytes) -> Iterator[IO[bytes]]:
    """A file in memory, to be read from its start."""
    with os.fdopen(os.memfd_create("stdin", os.MFD_CLOEXEC), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _started(command: Sequence[str], stdin: IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process and all that it starts; none is left."""
    with subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
