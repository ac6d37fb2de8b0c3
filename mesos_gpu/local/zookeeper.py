"""Servers of ZooKeeper, from Debian's package, through which several masters or schedulers elect a leader."""

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Unavailable
from mesos_gpu.install import zookeeper as installed
from mesos_gpu.local.network import Host
from mesos_gpu.local.processes import Process

JAR: Final = Path(installed.JAR)
#: Successive ports of a server: for clients, for its peers, for elections.
PORTS: Final = 3
#: A session ends when its client was silent for 2 to 20 ticks, as the client requests.
_TICK_MS: Final = 500
_JAVA: Final = ("java", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class ZooKeeper(Process):
    """A server of a ZooKeeper ensemble.

    Args:
        directory: Directory of the server in the cluster's.
        number: Number in the ensemble, from 1.
        ip: Address on which it listens.
        port: First of the `PORTS` successive ports.
        host: Host on which it runs; None for this machine itself.
    """

    def __init__(self, directory: Path, number: int, ip: str, port: int, host: Host | None = None) -> None:
        super().__init__("zookeeper", directory, ip, port, {}, host)
        self._number, self._peers = number, [self]

    def join(self, peers: Sequence["ZooKeeper"]) -> None:
        """Set the members of the ensemble, including this server."""
        self._peers = list(peers)

    def _command(self) -> list[str]:
        """Return the command of a server whose data lasts as long as the cluster."""
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        settings = {
            "tickTime": _TICK_MS, "initLimit": 20, "syncLimit": 10, "dataDir": data, "maxClientCnxns": 0,
            "admin.enableServer": "false", "4lw.commands.whitelist": "srvr",
        }  # fmt: skip
        servers = {n: installed.Server(peer.ip, peer.port) for n, peer in enumerate(self._peers, 1)}
        own = self.directory / "zoo.cfg"
        own.write_text(installed.configuration(servers, settings))
        java = [*_JAVA, "-cp", f"{self.directory}:{JAR}", installed.SERVER, str(own)]
        return ["sh", "-c", 'read -r go || exit 1; exec "$@"', "sh", *java]

    def ready(self) -> bool:
        """Return whether the server leads or follows, so that there is a quorum."""
        with socket.create_connection((self.ip, self.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        return b"Mode: " in answer


def check() -> None:
    """Check that ZooKeeper is installed.

    Raises:
        Unavailable: ZooKeeper or Java is missing.
    """
    if not JAR.exists() or shutil.which("java") is None:
        raise Unavailable("no ZooKeeper", remedy="apt-get install -y zookeeper default-jre-headless")


def url(servers: Sequence[ZooKeeper], path: str = "mesos", proof: str = "") -> str:
    """Return the URL zk://HOST:PORT,…/PATH of servers. `proof`: USER:PASSWORD; "" for none."""
    who = f"{proof}@" if proof else ""
    return f"zk://{who}{','.join(f'{server.ip}:{server.port}' for server in servers)}/{path}"
