"""Files of a host with path and mode, printed or written below a directory."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mesos_gpu.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file of a host.

    Attributes:
        path: Absolute path on the host.
        text: Content of the file.
        mode: Permission bits of the file.
    """

    path: str
    text: str
    mode: int = 0o644

    @property
    def is_settings(self) -> bool:
        """Whether the file has settings of one host, and differs between hosts."""
        return self.path.endswith(".env")


def of_service(
    name: str, unit: str, settings: dict[str, str], directories: str, *more: HostFile
) -> list[HostFile]:
    """Return the files of a service: systemd unit, settings, `more`, directories, log rotation.

    Args:
        name: Name of the service without the prefix `mesos-gpu-`.
        unit: Text of the systemd unit.
        settings: Environment variables of the service.
        directories: Directories in the syntax of tmpfiles.d(5).
        more: Additional files of this service.

    Raises:
        BadConfiguration: A setting cannot be written to an environment file.
    """
    full = f"mesos-gpu-{name}"
    return [
        HostFile(f"/usr/lib/systemd/system/{full}.service", unit),
        HostFile(f"/etc/mesos-gpu/{name}.env", variables(settings), 0o600),
        *more,
        HostFile(f"/usr/lib/tmpfiles.d/{full}.conf", directories),
        HostFile(f"/etc/logrotate.d/{full}", rotation(f"/var/log/mesos-gpu/{name}.log")),
    ]


def of_boot(name: str, what: str, command: str) -> HostFile:
    """Return a systemd unit that runs a command once at each start of a host.

    Args:
        name: Name of the unit without the prefix `mesos-gpu-`.
        what: Description of the unit.
        command: Command in one line.
    """
    return HostFile(
        f"/usr/lib/systemd/system/mesos-gpu-{name}.service",
        f"[Unit]\nDescription={what}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n\n"
        "[Install]\nWantedBy=multi-user.target\n",
    )


def printed(files: Iterable[HostFile], steps: Iterable[str]) -> str:
    """Return the texts of all files, each after a line with path, mode and owner; then the commands to run."""
    parts = [f"# {file.path}  ({file.mode:04o} root:root)\n{file.text}" for file in files]
    return "\n".join([*parts, "# Then, as root:\n" + "".join(f"{step}\n" for step in steps)])


def written(files: Iterable[HostFile], root: Path) -> list[Path]:
    """Write the files below a directory, and return their paths.

    Args:
        files: Files to write.
        root: Directory below which they go; it is created if missing.

    Raises:
        BadConfiguration: A file exists already; it may hold settings of the operator.
        OSError: A file cannot be written.
    """
    targets = {root / file.path.lstrip("/"): file for file in files}
    if there := [str(path) for path in targets if os.path.lexists(path)]:
        raise BadConfiguration(f"{', '.join(there)}: already there", remedy="give an empty directory")
    for path, file in targets.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode)
        with os.fdopen(handle, "w") as opened:
            os.fchmod(handle, file.mode)  # by handle, as the path may name another file by now
            opened.write(file.text)
    return list(targets)


def variables(values: dict[str, str]) -> str:
    """Return an environment file for systemd, with each value between single quotes.

    Raises:
        BadConfiguration: A value has a single quote or a line break.
    """
    for name, value in values.items():
        if "'" in value or "\n" in value:
            raise BadConfiguration(
                f"{name}: {value!r} has a single quote or a line break", remedy="remove it from the value"
            )
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def rotation(log: str) -> str:
    """Return a logrotate configuration for a log that a service keeps open."""
    return (
        f"{log} {{\n    weekly\n    rotate 8\n    maxsize 100M\n    compress\n    delaycompress\n"
        "    missingok\n    notifempty\n    copytruncate\n}\n"
    )
