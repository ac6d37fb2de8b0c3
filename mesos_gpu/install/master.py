"""What a host of a Mesos master needs: the service and its flags, its directories, rotation of its log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.install import mesos_access
from mesos_gpu.install.agent import SECRETS
from mesos_gpu.install.files import HostFile, rotation, variables

SETTINGS: Final = "/etc/mesos-gpu/master.env"
#: Masters then believe nobody without name and secret; what is in these files: docs/security.md.
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
    """A host, as its operator describes it.

    Attributes:
        ip: At which agents, frameworks and the other masters reach it.
        zk: zk://HOST:PORT,…/PATH, where several masters elect one; "": it is the only one.
        quorum: More than half of the masters; not used by the only one.
        authentication: Whether the master asks everybody who they are.
        binary: Command of the master: mesos-master, or `mesos-gpu mesos master`.
        more: Further flags, without dashes.
    """

    ip: str
    zk: str = ""
    quorum: int = 1
    authentication: bool = True
    binary: str = "/usr/sbin/mesos-master"
    more: Mapping[str, str] = field(default_factory=dict)


def flags(host: MasterHost) -> dict[str, str]:
    """All flags of its master."""
    return {
        "ip": host.ip,
        "hostname": host.ip,
        "work_dir": "/var/lib/mesos-master",
        "registry": "replicated_log",
        "fair_sharing_excluded_resource_names": "gpus",  # else who has many is offered processors last
        **({"zk": host.zk, "quorum": str(host.quorum)} if host.zk else {}),
        **(AUTHENTICATION if host.authentication else {}),
        **host.more,
    }


def files(host: MasterHost) -> list[HostFile]:
    """What the host gets.

    Raises:
        BadConfiguration: A value cannot stand in a file of variables.
    """
    given = {f"MESOS_{name.upper()}": value for name, value in flags(host).items()}
    command = host.binary + ("" if host.authentication or "mesos-gpu" not in host.binary else " --open")
    return [
        HostFile("/usr/lib/systemd/system/mesos-gpu-master.service", _UNIT.replace("COMMAND", command)),
        HostFile(SETTINGS, variables(given), 0o600),
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
#: A master that no longer leads ends itself, to begin anew: always, and at once.
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
