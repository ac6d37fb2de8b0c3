"""Files of the scheduler's host: its service and settings, its system user, rotation of its log."""

from typing import Final

from mesos_gpu.install.files import HostFile, of_service

USER: Final = "mesos-gpu"
SYSUSERS: Final = f'u {USER} - "Scheduler of mesos_gpu"'
OPTIONS: Final = "MESOS_GPU_SCHEDULER_OPTIONS"  # systemd splits it into words


def files(
    master: str,
    program: str,
    archive: str | None,
    options: str = "",
    ha: str | None = None,
    ha_url: str | None = None,
) -> list[HostFile]:
    """Return the files of a scheduler's host.

    Args:
        master: Value of `mesos-gpu scheduler --master`.
        program: Path of `mesos-gpu`.
        archive: Value of `--executor-archive`; None if agents have the package.
        ha: Value of `--ha` for one of several schedulers; None for a single scheduler.
        ha_url: Value of `--ha-url`; None for the address on which it listens.
        options: Additional options of `mesos-gpu scheduler`, separated by blanks.

    Raises:
        BadConfiguration: A value cannot be written to an environment file.
    """
    settings = {
        "MESOS_GPU_MASTER": master,
        "MESOS_GPU_STATE": "/var/lib/mesos-gpu-scheduler/state.sqlite",
        "MESOS_GPU_JOURNAL": "/var/lib/mesos-gpu-scheduler/journal",
        **({"MESOS_GPU_EXECUTOR_ARCHIVE": archive} if archive else {}),
        **({"MESOS_GPU_HA": ha} if ha else {}),
        **({"MESOS_GPU_HA_URL": ha_url} if ha_url else {}),
        OPTIONS: options,
    }
    user = HostFile("/usr/lib/sysusers.d/mesos-gpu-scheduler.conf", f"{SYSUSERS}\n")
    return of_service("scheduler", _UNIT.replace("PROGRAM", program), settings, _DIRECTORIES, user)


STEPS: Final = (
    "systemd-sysusers && systemd-tmpfiles --create",
    "systemctl daemon-reload && systemctl enable --now mesos-gpu-scheduler",
    "mesos-gpu --url http://127.0.0.1:8080 status",
)
_DIRECTORIES: Final = "d /var/log/mesos-gpu 0750 root root\nd /etc/mesos-gpu 0755 root root\n"
#: --user: executors run as root, whichever user the scheduler has. Exit statuses 2 and 78: a restart does not correct
#: wrong options and settings. 75: another scheduler leads now; after a restart this one is on standby.
_UNIT: Final = f"""\
[Unit]
Description=Scheduler of mesos_gpu
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={USER}
EnvironmentFile=/etc/mesos-gpu/scheduler.env
ExecStart=PROGRAM scheduler --user root --user-pool 60000-60999 ${OPTIONS}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 78
StateDirectory=mesos-gpu-scheduler
StateDirectoryMode=0700
RuntimeDirectory=mesos-gpu
UMask=0077
LimitNOFILE=65536
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
StandardOutput=append:/var/log/mesos-gpu/scheduler.log
StandardError=append:/var/log/mesos-gpu/scheduler.log

[Install]
WantedBy=multi-user.target
"""
