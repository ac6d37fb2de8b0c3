"""Files of a Mesos master's host: the service and its flags, its directories, rotation of its log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.install import mesos_access
from mesos_gpu.install.agent import SECRETS
from mesos_gpu.install.files import HostFile, rotation, variables

SETTINGS: Final = "/etc/mesos-gpu/master.env"
#: Flags with which masters accept only authenticated clients; docs/security.md describes the files.
AUTHENTICATION: Final[Mapping[str, str]] = {
    **mesos_access.HTTP,
    "authenticate_frameworks": "true",
    "authenticate_agents": "true",
    "authenticate_http_frameworks": "true",
    "http_framework_authenticators": "basic",
    "credentials": f"{SECRETS}/master-credentials.json",
    "acls": f"file://{SECRETS}/master-acls.json",
}


@dataclass(frozen=True, slots=True)
class MasterHost:
    """Settings of a Mesos master's host.

    Attributes:
        ip: Address at which agents, frameworks and the other masters reach it.
        zk: ZooKeeper URL zk://HOST:PORT,…/PATH through which several masters elect a leader; "" for a single master.
        quorum: Majority of the masters; not used by a single master.
        authentication: Whether the master authenticates all clients.
        binary: Command of the master: mesos-master, or `mesos-gpu mesos master`.
        more: Additional flags, without dashes.
    """

    ip: str
    zk: str = ""
    quorum: int = 1
    authentication: bool = True
    binary: str = "/usr/sbin/mesos-master"
    more: Mapping[str, str] = field(default_factory=dict)


def flags(host: MasterHost) -> dict[str, str]:
    """Return all flags of the master."""
    return {
        "ip": host.ip,
        "hostname": host.ip,
        "work_dir": "/var/lib/mesos-master",
        "registry": "replicated_log",
        "fair_sharing_excluded_resource_names": "gpus",  # else frameworks with many GPUs are offered CPUs last
        **({"zk": host.zk, "quorum": str(host.quorum)} if host.zk else {}),
        **(AUTHENTICATION if host.authentication else {}),
        **host.more,
    }


def files(host: MasterHost) -> list[HostFile]:
    """Return the files of a master's host.

    Raises:
        BadConfiguration: A value cannot be written to an environment file.
    """
    settings = {f"MESOS_{name.upper()}": value for name, value in flags(host).items()}
    command = host.binary + ("" if host.authentication or "mesos-gpu" not in host.binary else " --open")
    return [
        HostFile("/usr/lib/systemd/system/mesos-gpu-master.service", _UNIT.replace("COMMAND", command)),
        HostFile(SETTINGS, variables(settings), 0o600),
        HostFile("/usr/lib/tmpfiles.d/mesos-gpu-master.conf", _DIRECTORIES),
        HostFile("/etc/logrotate.d/mesos-gpu-master", rotation("/var/log/mesos-gpu/master.log")),
    ]


STEPS: Final = (
    "systemd-tmpfiles --create",
    "systemctl daemon-reload && systemctl enable --now mesos-gpu-master",
)
_DIRECTORIES: Final = f"""\
d /var/lib/mesos-master 0700 root root
d /var/log/mesos-gpu 0750 root root
d /etc/mesos-gpu 0755 root root
d {SECRETS} 0700 root root
"""
#: A master that no longer leads exits; systemd starts it again at once, as a candidate.
_UNIT: Final = """\
[Unit]
Description=Mesos master of GPU hosts
Wants=network-online.target
After=network-online.target zookeeper.service

[Service]
Type=exec
EnvironmentFile=/etc/mesos-gpu/master.env
ExecStart=COMMAND
Restart=always
RestartSec=1
LimitNOFILE=65536
OOMScoreAdjust=-500
StandardOutput=append:/var/log/mesos-gpu/master.log
StandardError=append:/var/log/mesos-gpu/master.log

[Install]
WantedBy=multi-user.target
"""
