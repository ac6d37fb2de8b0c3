"""Files that a host gets: where, whose, with which mode, and how they are printed or written below a directory."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mesos_gpu.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file.

    Attributes:
        path: Absolute.
        text: All of it.
        mode: Of its permissions.
    """

    path: str
    text: str
    mode: int = 0o644

    @property
    def is_settings(self) -> bool:
        """Whether it is of one host, and not the same on all."""
        return self.path.endswith(".env")


def of_service(
    name: str, unit: str, settings: dict[str, str], directories: str, *more: HostFile
) -> list[HostFile]:
    """What a service of ours needs: systemd's unit, its settings, `more`, directories, rotation of its log.

    Args:
        name: Without the `mesos-gpu-` before it.
        unit: All of the unit's text.
        settings: The variables of its environment.
        directories: As of tmpfiles.d(5).
        more: What only this one has.

    Raises:
        BadConfiguration: A setting cannot stand in a file of variables.
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
    """A unit of systemd that does something once at each start of a host.

    Args:
        name: Without the `mesos-gpu-` before it.
        what: That it does.
        command: Of one line.
    """
    return HostFile(
        f"/usr/lib/systemd/system/mesos-gpu-{name}.service",
        f"[Unit]\nDescription={what}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n\n"
        "[Install]\nWantedBy=multi-user.target\n",
    )


def printed(files: Iterable[HostFile], steps: Iterable[str]) -> str:
    """All files one after the other, each below a line of its path, mode and owner; then the commands to run."""
    parts = [f"# {file.path}  ({file.mode:04o} root:root)\n{file.text}" for file in files]
    return "\n".join([*parts, "# Then, as root:\n" + "".join(f"{step}\n" for step in steps)])


def written(files: Iterable[HostFile], root: Path) -> list[Path]:
    """Write the files below a directory, as a package has them.

    Args:
        files: What is to be there.
        root: The directory; it is made if need be.

    Raises:
        BadConfiguration: One is there already: it may hold settings of the operator's.
        OSError: One cannot be written.
    """
    targets = {root / file.path.lstrip("/"): file for file in files}
    if there := [str(path) for path in targets if os.path.lexists(path)]:
        raise BadConfiguration(f"{', '.join(there)}: already there", remedy="name an empty directory")
    for path, file in targets.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode)
        with os.fdopen(handle, "w") as opened:
            os.fchmod(handle, file.mode)  # of this file, whatever has its name by now
            opened.write(file.text)
    return list(targets)


def variables(values: dict[str, str]) -> str:
    """A file of variables as systemd reads it: each value between single quotes.

    Raises:
        BadConfiguration: A value has what cannot stand there.
    """
    for name, value in values.items():
        if "'" in value or "\n" in value:
            raise BadConfiguration(f"{name}: {value!r} has a quote or ends a line", remedy="leave that out")
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def rotation(log: str) -> str:
    """What logrotate does with a log that a service holds open."""
    return (
        f"{log} {{\n    weekly\n    rotate 8\n    maxsize 100M\n    compress\n    delaycompress\n"
        "    missingok\n    notifempty\n    copytruncate\n}\n"
    )
