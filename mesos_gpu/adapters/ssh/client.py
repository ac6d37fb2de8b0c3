"""Execution of shell scripts as root on other hosts, through OpenSSH's client. Host keys must be known."""

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

MAX_BYTES: Final = 4 << 20  # output of a script
#: Exit status of ssh itself if it could not reach the host, or was refused.
_NOT_REACHED: Final = 255
#: Options that nothing can override: ssh uses the first value that it gets.
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
    """SSH connection settings of a host.

    Attributes:
        host: Name or address of the host.
        user: User there: root, or one that may run `sudo` without a password.
        port: TCP port of the server.
        identity: File of a private key; None to use keys of the SSH agent and ~/.ssh/config.
        known_hosts: File of the hosts' keys; None for the user's own.
        options: Additional options of ssh_config(5), by name.
    """

    host: str = ""
    user: str = "root"
    port: int = 22
    identity: Path | None = None
    known_hosts: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def command(self, script: str, arguments: Sequence[str] = ()) -> list[str]:
        """Return the local command that runs a script on the host.

        Args:
            script: Shell script (sh) to run as root.
            arguments: Arguments $1, $2, …; all users of both hosts may see script and arguments.
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
        """Return the options that name files."""
        options: dict[str, str] = {}
        if self.known_hosts:
            options |= {"UserKnownHostsFile": _quoted(self.known_hosts), "GlobalKnownHostsFile": "none"}
        if self.identity:
            options |= {"IdentityFile": _quoted(self.identity), "IdentitiesOnly": "yes"}
        return options

    def run(
        self, script: str, arguments: Sequence[str] = (), stdin: bytes = b"", *, timeout_s: float
    ) -> "Done":
        """Run a script on the host.

        Args:
            script: Shell script, as for `command`.
            arguments: Arguments, as for `command`.
            stdin: Standard input of the script, which other users cannot see.
            timeout_s: Seconds after which the script is abandoned.

        Raises:
            Unavailable: The host cannot be reached, its key is not known, or the script does not end in time.
        """
        if shutil.which("ssh") is None:
            raise Unavailable(
                "ssh is not installed on this machine", remedy="apt-get install -y openssh-client"
            )
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
            raise Unavailable(
                f"{self.host} prints more than {MAX_BYTES} bytes", remedy="look at what runs on the host"
            )
        if code == -signal.SIGKILL:
            raise Unavailable(
                f"{self.host}: the script did not end within {timeout_s:g} s; its output so far:\n{text[-2000:]}",
                remedy="look at what runs on the host, then try again",
            )
        if code == _NOT_REACHED:
            raise Unavailable(
                f"{self.host}, port {self.port}: {text.strip() or 'ssh failed'}", remedy=self._remedy(text)
            )
        return Done(code, text)

    def _remedy(self, text: str) -> str:
        """Return the remedy for an error text of ssh."""
        if "Host key verification failed" in text or "host key" in text:
            file = self.known_hosts or "~/.ssh/known_hosts"
            return f"check the host's key on its console (/etc/ssh/ssh_host_ed25519_key.pub), and add it to {file}"
        if "Permission denied" in text:
            return f"authorize the key of `identity`, or of the SSH agent, for {self.user}; passwords are not supported"
        return f"ssh -p {self.port} {self.user}@{self.host}"


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a script.

    Attributes:
        code: Exit status of the script.
        output: Standard output and error together.
    """

    code: int
    output: str


def _quoted(path: Path) -> str:
    """Return a path in the form of ssh_config(5), where % begins a token."""
    return '"{}"'.format(str(path.absolute()).replace("%", "%%"))


@contextlib.contextmanager
def _pipe(data: bytes) -> Iterator[IO[bytes]]:
    """Yield a file in memory with this content, positioned at its start."""
    with os.fdopen(os.memfd_create("stdin", os.MFD_CLOEXEC), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _started(command: Sequence[str], stdin: IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process, and kill it with all its children at the end."""
    with subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
