"""Mesos' master and agent as services of a host: who must prove a name to them, what the host's firewall must let in,
and the process that they become.
"""

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

#: Flags that have to be true where others than this host's reach a service, and flags that name what it then needs.
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
    """A master or an agent of this host.

    Attributes:
        kind: "master" or "agent".
        argv: Flags of mesos-master or mesos-agent, as --name=value; those of the environment, MESOS_NAME, come beside.
        binaries: Where Mesos' own programs are; None: this package's library is called.
    """

    kind: str
    argv: tuple[str, ...]
    binaries: Path | None = None

    def flags(self) -> dict[str, str]:
        """Flags by name.

        Raises:
            BadConfiguration: One is not of the form --name=value, or is not in this package's Mesos.
        """
        not_wired = {} if self.binaries else {"master": master, "agent": agent}[self.kind].NOT_WIRED
        try:
            return program.given(list(self.argv), not_wired)
        except CallFailed as error:
            raise BadConfiguration(str(error), remedy=f"mesos-gpu mesos {self.kind} --help") from None

    @property
    def ip(self) -> str:
        """Address that it listens on; "" for all of this host's."""
        return self.flags().get("ip", "")

    @property
    def port(self) -> int:
        """TCP port that it listens at.

        Raises:
            BadConfiguration: --port is no port.
        """
        port = self.flags().get("port", _PORTS[self.kind])
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadConfiguration(f"--port={port} is no TCP port", remedy="name one from 1 to 65535")
        return int(port)

    @property
    def reached(self) -> bool:
        """Whether other hosts reach it.

        Raises:
            BadConfiguration: --ip is no address.
        """
        try:
            return not self.ip or not ipaddress.ip_address(self.ip).is_loopback
        except ValueError:
            raise BadConfiguration(
                f"--ip={self.ip} is no address", remedy="name one of this host, as 10.0.0.5"
            ) from None

    def believes(self) -> list[str]:
        """Flags that are missing so that it asks everybody who they are."""
        flags = self.flags()
        missing = [f"--{name}" for name in _ASKS[self.kind] if flags.get(name) != "true"]
        return missing + [f"--{name}=…" for name in _NAMES[self.kind] if not flags.get(name)]

    def check_names(self) -> None:
        """Refuse to be open to other hosts.

        Raises:
            BadConfiguration: Whoever reaches it may do everything, or an address is none.
        """
        if self.reached and (missing := self.believes()):
            raise BadConfiguration(
                f"whoever reaches port {self.port} of this host would be believed: {', '.join(missing)} missing",
                remedy="`mesos-gpu install secrets DIRECTORY` writes what they name; or --ip=127.0.0.1 for this host "
                "alone; or --open where everybody is trusted",
            )

    def firewall(self) -> Iterator[str]:
        """What must reach it, and how nftables keeps others out; nothing for one that others do not reach."""
        if self.reached:
            yield f"TCP port {self.port} must be reached by {_WHO[self.kind]}, and by nobody else, as:"
            yield f"  nft add rule inet filter input tcp dport {self.port} ip saddr != NETWORK/BITS drop"
            if not self.binaries:
                yield "This Mesos is without TLS: what is sent there can be read, and changed, on the way."

    def beside(self) -> Iterator[str]:
        """What is said of a program of Mesos' own that PATH has and that nobody named: it is not run."""
        own = None if self.binaries else shutil.which(f"mesos-{self.kind}")
        if own:
            yield f"{own} is not run, but the Mesos of this package: --mesos-binaries {Path(own).parent} runs it."

    def command(self) -> list[str]:
        """What to execute.

        Raises:
            Unavailable: It is not there, or cannot be made.
            BadConfiguration: The agent's work directory is others' to change.
        """
        if self.binaries:
            binary = self.binaries / f"mesos-{self.kind}"
            if not os.access(binary, os.X_OK):
                raise Unavailable(
                    f"{binary} is no program", remedy="--mesos-binaries names the directory that has it"
                )
            return [str(binary), *self.argv]
        library = fetch.libmesos()
        return helpers.command(self.kind, [*self.argv, *self._of_agent(library)])

    def _of_agent(self, library: Path) -> Sequence[str]:
        """The agent's helpers are of this package."""
        flags = self.flags()
        if self.kind != "agent" or not flags.get("work_dir"):
            return ()
        if "launcher_dir" in flags:
            raise BadConfiguration(
                "--launcher_dir is this package's own", remedy="leave it out, or give --mesos-binaries"
            )
        work = Path(flags["work_dir"])
        work.mkdir(parents=True, exist_ok=True, mode=0o755)
        if work.stat().st_uid not in (0, os.geteuid()) or work.stat().st_mode & 0o022:
            raise BadConfiguration(
                f"{work} is others' to change, and programs that run as root are put there",
                remedy=f"chown root: {work} && chmod 755 {work}",
            )
        helpers.write(work / "libexec", library)
        return [f"--launcher_dir={work / 'libexec'}"]

    def meet(self, note: Callable[[str], None]) -> None:
        """See, beside a master with credentials of ZooKeeper, that nobody else may write where masters meet.

        That is done by a process of its own: ZooKeeper may answer only long after this master listens.

        Args:
            note: Is told there what was changed, or what is waited for.

        Raises:
            BadConfiguration: The flag is no address of ZooKeeper.
        """
        try:
            where = program.zookeeper(self.flags().get("zk", "")) if self.kind == "master" else None
        except CallFailed as error:
            raise BadConfiguration(str(error), remedy="zk://HOST:2181,HOST:2181/mesos") from None
        if where is not None and where.credentials:
            from mesos_gpu.libmesos import meeting  # kazoo is wanted here alone

            aside(lambda: meeting.own(where, note), note)

    def become(self, execute: Callable[[str, list[str]], object] = os.execv) -> None:
        """Become it: this process is replaced.

        Raises:
            Unavailable, BadConfiguration: As of `command`.
            OSError: It cannot be executed.
        """
        argv = self.command()
        execute(argv[0], argv)


def aside(do: Callable[[], None], note: Callable[[str], None]) -> None:
    """Do something in a process that nobody waits for, as the one that comes after `execv` would not.

    Args:
        do: Ends that process when it returns.
        note: Is told there why it failed.
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
