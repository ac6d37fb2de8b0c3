"""Servers of ZooKeeper, from Debian's package: what several masters, and several schedulers, elect a leader with."""

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
#: In a row: for clients, for its peers, for their elections.
PORTS: Final = 3
#: A session ends when its client was not heard for that long: from 2 to 20 ticks, as the client asks.
_TICK_MS: Final = 500
_JAVA: Final = ("java", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class ZooKeeper(Process):
    """A server of an ensemble."""

    def __init__(self, directory: Path, number: int, ip: str, port: int, host: Host | None = None) -> None:
        """Nothing runs yet. `number`: from 1, its own in the ensemble."""
        super().__init__("zookeeper", directory, ip, port, {}, host)
        self._number, self._peers = number, [self]

    def join(self, peers: Sequence["ZooKeeper"]) -> None:
        """Be one of these."""
        self._peers = list(peers)

    def _command(self) -> list[str]:
        """A server whose data lasts as long as the cluster."""
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
        """Whether it leads or follows: it has a quorum."""
        with socket.create_connection((self.ip, self.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        return b"Mode: " in answer


def check() -> None:
    """See that ZooKeeper is here.

    Raises:
        Unavailable: It is not.
    """
    if not JAR.exists() or shutil.which("java") is None:
        raise Unavailable("no ZooKeeper", remedy="apt-get install -y zookeeper default-jre-headless")


def url(servers: Sequence[ZooKeeper], path: str = "mesos", proof: str = "") -> str:
    """Where masters, or others, meet: zk://HOST:PORT,…/PATH. `proof`: USER:PASSWORD; "": none."""
    who = f"{proof}@" if proof else ""
    return f"zk://{who}{','.join(f'{each.ip}:{each.port}' for each in servers)}/{path}"
