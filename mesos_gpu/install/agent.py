"""Files of a GPU host besides Mesos: the agent's service and flags, its directories, rotation of its log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.install.files import HostFile, of_service

CGROUPS: Final = ("v1", "v2")
SECRETS: Final = "/etc/mesos-gpu/secrets"
_CONTAINERS: Final = "filesystem/linux,docker/runtime,linux/nnp,namespaces/ipc"
#: Mesos 1.11 supports cgroup v1 only. On a host with cgroup v2 the executors limit devices, ports, memory and CPUs of
#: tasks.
ISOLATION: Final[Mapping[str, Mapping[str, str]]] = {
    "v1": {
        "launcher": "linux",
        "isolation": f"cgroups/cpu,cgroups/mem,cgroups/pids,cgroups/devices,{_CONTAINERS}",
        "image_providers": "docker",
    },
    "v2": {
        "launcher": "posix",
        "isolation": "posix/cpu,posix/mem,filesystem/posix",
        "systemd_enable_support": "false",
    },
}
#: Flags with which agents accept only authenticated clients; docs/security.md describes the files.
AUTHENTICATION: Final[Mapping[str, str]] = {
    "credential": f"{SECRETS}/agent-of-master.json",
    "authenticate_http_readonly": "true",
    "authenticate_http_readwrite": "true",
    "http_credentials": f"{SECRETS}/http-credentials.json",
    "acls": f"file://{SECRETS}/agent-acls.json",
}
#: Flags with which the agent gives each executor a token that proves in which container it runs.
TOKENS: Final[Mapping[str, str]] = {
    "http_authenticators": "basic,jwt",
    "authenticate_http_executors": "true",
    "jwt_secret_key": f"{SECRETS}/executors-key",
}


@dataclass(frozen=True, slots=True)
class AgentHost:
    """Settings of a Mesos agent's host.

    Attributes:
        master: Master as mesos-agent takes it: HOST:PORT or zk://….
        gpus: GPUs of the host.
        cgroups: Cgroup version, one of `CGROUPS`.
        authentication: Whether the agent authenticates all clients.
        tokens: Whether it gives executors tokens, which needs a Mesos built with OpenSSL.
        binary: Command that starts mesos-agent.
        ports: First and last port for tasks, below the kernel's ephemeral ports.
        environment: Variables of executors, MESOS_GPU_…, as docs/hosts.md lists them.
        ip: Address at which masters and the scheduler reach it; "" for that of the host's name.
        more: Additional flags, without dashes.
    """

    master: str
    gpus: int
    cgroups: str
    authentication: bool = True
    tokens: bool = False
    binary: str = "/usr/sbin/mesos-agent"
    ports: tuple[int, int] = (31000, 32000)
    environment: Mapping[str, str] = field(default_factory=dict)
    ip: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


def flags(host: AgentHost) -> dict[str, str]:
    """Return all flags of the agent. The isolator gpu/nvidia is not among them: executors assign GPUs themselves."""
    own = {"MESOS_GPU_ISOLATION": "cgroup1" if host.cgroups == "v1" else "cgroup2"}
    if host.authentication:
        own["MESOS_GPU_AGENT_CREDENTIALS"] = f"{SECRETS}/executors.json"
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "master": host.master,
        **({"ip": host.ip, "hostname": host.ip} if host.ip else {}),
        "work_dir": "/var/lib/mesos",
        "runtime_dir": "/run/mesos",
        "resources": f"gpus:{host.gpus};ports:[{host.ports[0]}-{host.ports[1]}]",
        **ISOLATION[host.cgroups],
        "switch_user": "true",
        "executor_environment_variables": json.dumps({"PATH": path, **own, **host.environment}),
        "executor_registration_timeout": "2mins",  # the first start on a host fetches and unpacks
        "recover": "reconnect",
        **(AUTHENTICATION if host.authentication else {}),
        **(TOKENS if host.authentication and host.tokens else {}),
        **host.more,
    }


def files(host: AgentHost) -> list[HostFile]:
    """Return the files of an agent's host.

    Raises:
        BadConfiguration: A value cannot be written to an environment file.
    """
    settings = {f"MESOS_{name.upper()}": value for name, value in flags(host).items()}
    return of_service("agent", _UNIT.replace("BINARY", host.binary), settings, _DIRECTORIES)


STEPS: Final = (
    "systemd-tmpfiles --create",
    "systemctl daemon-reload && systemctl enable --now mesos-gpu-agent",
    "mesos-gpu doctor        # or: python3 -IS mesos-gpu-executor.pyz doctor",
)
_DIRECTORIES: Final = f"""\
d /var/lib/mesos 0755 root root
d /var/lib/mesos/meta 0700 root root
d /var/lib/mesos-gpu 0700 root root
d /var/log/mesos-gpu 0750 root root
d /etc/mesos-gpu 0755 root root
d {SECRETS} 0700 root root
"""
#: KillMode: tasks outlive a restart of their agent. Delegate: systemd must not change their cgroups.
_UNIT: Final = """\
[Unit]
Description=Mesos agent of a GPU host
Wants=network-online.target
After=network-online.target systemd-modules-load.service

[Service]
Type=exec
EnvironmentFile=/etc/mesos-gpu/agent.env
ExecStart=BINARY
Restart=always
RestartSec=5
KillMode=process
Delegate=yes
LimitNOFILE=65536
TasksMax=infinity
OOMScoreAdjust=-500
StandardOutput=append:/var/log/mesos-gpu/agent.log
StandardError=append:/var/log/mesos-gpu/agent.log

[Install]
WantedBy=multi-user.target
"""
