"""Files of a ZooKeeper server's host: its configuration, service and directory, rotation of its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.install.files import HostFile, rotation

JAR: Final = "/usr/share/java/zookeeper.jar"
SERVER: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
USER: Final = "zookeeper"  # created by Debian's package
_HOME: Final = "/etc/mesos-gpu/zookeeper"
_DATA: Final = "/var/lib/mesos-gpu-zookeeper"
#: tickTime: sessions last 2 to 20 ticks, and schedulers request 4 s.
_SETTINGS: Final[Mapping[str, str]] = {
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "dataDir": _DATA,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr,ruok",
    "autopurge.snapRetainCount": "5",
    "autopurge.purgeInterval": "24",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A member of a ZooKeeper ensemble.

    Attributes:
        ip: Address of the server.
        port: Port for clients; the next two are for its peers and for leader elections.
    """

    ip: str
    port: int = 2181

    @property
    def line(self) -> str:
        """Entry of this server in the configuration of all servers."""
        return f"{self.ip}:{self.port + 1}:{self.port + 2};{self.ip}:{self.port}"


def configuration(servers: Mapping[int, Server], settings: Mapping[str, object]) -> str:
    """Return the text of a zoo.cfg. `servers`: all members of the ensemble, by their numbers."""
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [f"server.{number}={server.line}" for number, server in sorted(servers.items())]
    return "".join(f"{line}\n" for line in lines)


def files(servers: Mapping[int, Server], number: int, heap_mib: int) -> list[HostFile]:
    """Return the files of a ZooKeeper server's host.

    Args:
        servers: Members of the ensemble by their permanent numbers.
        number: Number of this server.
        heap_mib: Java heap in MiB.
    """
    alone = {"standaloneEnabled": "false"} if len(servers) == 1 else {}  # so that it may get peers later
    return [
        HostFile(
            "/usr/lib/systemd/system/mesos-gpu-zookeeper.service", _UNIT.replace("HEAP", f"{heap_mib}m")
        ),
        HostFile(f"{_HOME}/zoo.cfg", configuration(servers, {**_SETTINGS, **alone})),
        HostFile(f"{_DATA}/myid", f"{number}\n"),
        HostFile("/usr/lib/tmpfiles.d/mesos-gpu-zookeeper.conf", _DIRECTORIES),
        HostFile("/etc/logrotate.d/mesos-gpu-zookeeper", rotation("/var/log/mesos-gpu/zookeeper.log")),
    ]


_DIRECTORIES: Final = f"""\
d {_DATA} 0750 {USER} {USER}
d /var/log/mesos-gpu 0750 root root
d /etc/mesos-gpu 0755 root root
"""
_UNIT: Final = f"""\
[Unit]
Description=ZooKeeper of Mesos masters and schedulers
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={USER}
ExecStart=/usr/bin/java -XmxHEAP -XX:+UseSerialGC -cp {_HOME}:{JAR} {SERVER} {_HOME}/zoo.cfg
Restart=always
RestartSec=1
LimitNOFILE=65536
OOMScoreAdjust=-500
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
StandardOutput=append:/var/log/mesos-gpu/zookeeper.log
StandardError=append:/var/log/mesos-gpu/zookeeper.log

[Install]
WantedBy=multi-user.target
"""
