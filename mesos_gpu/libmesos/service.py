"""Mesos' master and agent as services of a host: authentication of their clients, firewall hints, and execution."""

import ipaddress
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration, MesosGpuError, Unavailable
from mesos_gpu.libmesos import agent, fetch, helpers, master, program
from mesos_gpu.libmesos.cxx import CallFailed

#: Flags that must be true if other hosts can reach a service.
_ASKS: Final[Mapping[str, tuple[str, ...]]] = {
    "master": (
        "authenticate_agents",
        "authenticate_frameworks",
        "authenticate_http_frameworks",
        "authenticate_http_readonly",
        "authenticate_http_readwrite",
    ),
    "agent": ("authenticate_http_readonly", "authenticate_http_readwrite"),
}
#: Flags that must name files with credentials and access lists in that case.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "master": ("acls", "credentials"),
    "agent": ("acls", "credential", "http_credentials"),
}
_PORTS: Final[Mapping[str, str]] = {"master": "5050", "agent": "5051"}
_WHO: Final[Mapping[str, str]] = {
    "master": "masters, agents, the scheduler and people",
    "agent": "masters and the scheduler",
}


@dataclass(frozen=True, slots=True)
class Service:
    """A Mesos master or agent of this host.

    Attributes:
        kind: Kind of service, "master" or "agent".
        argv: Flags of mesos-master or mesos-agent of the form --name=value; the environment (MESOS_NAME) may add more.
        binaries: Directory of Mesos' own programs; None to use this package's library.
    """

    kind: str
    argv: tuple[str, ...]
    binaries: Path | None = None

    def flags(self) -> dict[str, str]:
        """Return flags by name.

        Raises:
            BadConfiguration: A flag is not of the form --name=value, or is not supported by this package's Mesos.
        """
        not_wired = {} if self.binaries else {"master": master, "agent": agent}[self.kind].NOT_WIRED
        try:
            return program.given(list(self.argv), not_wired)
        except CallFailed as error:
            raise BadConfiguration(str(error), remedy=f"mesos-gpu mesos {self.kind} --help") from None

    @property
    def ip(self) -> str:
        """Address on which the service listens; "" for all addresses of this host."""
        return self.flags().get("ip", "")

    @property
    def port(self) -> int:
        """TCP port at which the service listens.

        Raises:
            BadConfiguration: --port is not a port number.
        """
        port = self.flags().get("port", _PORTS[self.kind])
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadConfiguration(f"--port={port} is not a TCP port", remedy="use a number from 1 to 65535")
        return int(port)

    @property
    def reached(self) -> bool:
        """Whether other hosts can reach the service.

        Raises:
            BadConfiguration: --ip is not an IP address.
        """
        try:
            return not self.ip or not ipaddress.ip_address(self.ip).is_loopback
        except ValueError:
            raise BadConfiguration(
                f"--ip={self.ip} is not an IP address", remedy="use an address of this host, such as 10.0.0.5"
            ) from None

    def believes(self) -> list[str]:
        """Return the flags that are missing for the authentication of all clients."""
        flags = self.flags()
        missing = [f"--{name}" for name in _ASKS[self.kind] if flags.get(name) != "true"]
        return missing + [f"--{name}=…" for name in _NAMES[self.kind] if not flags.get(name)]

    def check_names(self) -> None:
        """Refuse to serve other hosts without authentication.

        Raises:
            BadConfiguration: Any client that reaches the service could do everything, or an address is invalid.
        """
        if self.reached and (missing := self.believes()):
            raise BadConfiguration(
                f"any client that reaches port {self.port} would have full access: {', '.join(missing)} missing",
                remedy="`mesos-gpu install secrets DIRECTORY` writes these files; or --ip=127.0.0.1 for this "
                "host only; or --open if all clients are trusted",
            )

    def firewall(self) -> Iterator[str]:
        """Yield hints on which clients must reach the service, and on nftables rules against others; none if local."""
        if self.reached:
            yield f"TCP port {self.port} must be reachable by {_WHO[self.kind]} only, for example with:"
            yield f"  nft add rule inet filter input tcp dport {self.port} ip saddr != NETWORK/BITS drop"
            if not self.binaries:
                yield "This Mesos has no TLS: traffic can be read and changed on the network."

    def beside(self) -> Iterator[str]:
        """Yield a hint about a program of Mesos itself in PATH that is not used."""
        own = None if self.binaries else shutil.which(f"mesos-{self.kind}")
        if own:
            yield f"{own} is not used: this package has its own Mesos; --mesos-binaries {Path(own).parent} selects it."

    def command(self) -> list[str]:
        """Return the command to execute.

        Raises:
            Unavailable: The program is missing, or cannot be prepared.
            BadConfiguration: Other users may change the agent's work directory.
        """
        if self.binaries:
            binary = self.binaries / f"mesos-{self.kind}"
            if not os.access(binary, os.X_OK):
                raise Unavailable(
                    f"{binary} is not an executable program",
                    remedy="--mesos-binaries must name its directory",
                )
            return [str(binary), *self.argv]
        library = fetch.libmesos()
        return helpers.command(self.kind, [*self.argv, *self._of_agent(library)])

    def _of_agent(self, library: Path) -> Sequence[str]:
        """Write this package's helpers for an agent, and return the flag that names their directory."""
        flags = self.flags()
        if self.kind != "agent" or not flags.get("work_dir"):
            return ()
        if "launcher_dir" in flags:
            raise BadConfiguration(
                "--launcher_dir is set by this package", remedy="remove it, or give --mesos-binaries"
            )
        work = Path(flags["work_dir"])
        work.mkdir(parents=True, exist_ok=True, mode=0o755)
        if work.stat().st_uid not in (0, os.geteuid()) or work.stat().st_mode & 0o022:
            raise BadConfiguration(
                f"other users may change {work}, which will contain programs that run as root",
                remedy=f"chown root: {work} && chmod 755 {work}",
            )
        helpers.write(work / "libexec", library)
        return [f"--launcher_dir={work / 'libexec'}"]

    def meet(self, note: Callable[[str], None]) -> None:
        """Ensure, for a master with ZooKeeper credentials, that only masters may write to the node where they meet.

        A separate process does this: ZooKeeper may answer only long after this master listens.

        Args:
            note: Callback, in that process, for messages about changes and waiting.

        Raises:
            BadConfiguration: --zk is not a ZooKeeper URL.
        """
        try:
            where = program.zookeeper(self.flags().get("zk", "")) if self.kind == "master" else None
        except CallFailed as error:
            raise BadConfiguration(str(error), remedy="zk://HOST:2181,HOST:2181/mesos") from None
        if where is not None and where.credentials:
            from mesos_gpu.libmesos import meeting  # imports kazoo, which is needed here only

            aside(lambda: meeting.own(where, note), note)

    def become(self, execute: Callable[[str, list[str]], object] = os.execv) -> None:
        """Replace this process by the service.

        Raises:
            Unavailable, BadConfiguration: See `command`.
            OSError: The program cannot be executed.
        """
        argv = self.command()
        execute(argv[0], argv)


def aside(do: Callable[[], None], note: Callable[[str], None]) -> None:
    """Run a function in a detached process, because this process will be replaced and never reap a child.

    Args:
        do: Function to run; the process ends when it returns.
        note: Callback, in that process, for the reason of a failure.
    """
    if child := os.fork():
        os.waitpid(child, 0)
        return
    status = 1
    try:
        if not os.fork():
            do()
        status = 0
    except MesosGpuError as error:
        note(f"{error.what}: {error.remedy}")
    finally:
        os._exit(status)
