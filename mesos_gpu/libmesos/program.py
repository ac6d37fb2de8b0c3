"""What the master and the agent make of their flags before Mesos sees them.

Only the standard library is used, and little of it: these programs start bare.
"""

from __future__ import annotations

import os

from mesos_gpu.libmesos.cxx import CallFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

#: Flags that libprocess takes from its environment, as main.cpp hands them on.
_OF_LIBPROCESS: Final = ("ip", "port", "advertise_ip", "advertise_port")
_ZK, _FILE = "zk://", "file://"


class ZooKeeper:
    """zk://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PATH.

    Attributes:
        servers: As HOST:PORT,HOST:PORT.
        credentials: USER:PASSWORD; "" for none.
        path: Of the node below which a cluster has everything; with its slash.
    """

    def __init__(self, url: str) -> None:
        """Take a URL apart.

        Raises:
            CallFailed: It is no such URL.
        """
        rest, self._url = url.removeprefix(_ZK), url
        authority, slash, path = rest.partition("/")
        self.credentials, _, self.servers = authority.rpartition("@")
        self.path = slash + path
        if not url.startswith(_ZK) or not self.servers or len(self.path) < 2:
            raise CallFailed(f"--zk={url}: not of the form zk://HOST:PORT,HOST:PORT/PATH")

    def __str__(self) -> str:
        """The URL."""
        return self._url


def given(argv: list[str], not_wired: Mapping[str, str]) -> dict[str, str]:
    """Flags by name, also those of the environment, as MESOS_NAME; --name stands for true, and --no-name for false.

    Args:
        argv: --name=value each.
        not_wired: Flags whose code is not in the library; the one value that each may have, "" for none.

    Raises:
        CallFailed: One is no flag, or is not wired.
    """
    flags = {name[6:].lower(): value for name, value in os.environ.items() if name.startswith("MESOS_")}
    for argument in argv:
        if not argument.startswith("--"):
            raise CallFailed(f"{argument}: not of the form --name=value")
        name, equals, value = argument[2:].partition("=")
        negated = not equals and name.startswith("no-")
        flags[name[3:] if negated else name] = value if equals else str(not negated).lower()
    for name, only in not_wired.items():
        if flags.get(name, only).lower() != only.lower():
            may = f"it can only be {only}" if only else "leave it out"
            raise CallFailed(
                f"--{name}={flags[name]} is not in this Mesos: {may}, or run Mesos' own binaries"
            )
    return flags


def listen(flags: Mapping[str, str], port: int) -> None:
    """Tell libprocess where to listen and what to call itself. It must come before libprocess starts.

    Args:
        flags: As of `given`.
        port: That it listens at if no flag says.
    """
    os.environ.setdefault("LIBPROCESS_PORT", str(port))
    for name in _OF_LIBPROCESS:
        if flags.get(name):
            os.environ[f"LIBPROCESS_{name.upper()}"] = flags[name]


def zookeeper(value: str) -> ZooKeeper | None:
    """The flag --zk; None for "".

    Args:
        value: zk://…, or file://PATH of a file that holds it: nobody else then sees its password.

    Raises:
        CallFailed: The file cannot be read, or it is no such URL.
    """
    if value.startswith(_FILE):
        try:
            with open(value.removeprefix(_FILE)) as file:
                value = file.read().strip()
        except OSError as error:
            raise CallFailed(f"--zk={value}: {error.strerror}") from None
    return ZooKeeper(value) if value else None
