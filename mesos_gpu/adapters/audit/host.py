"""Audit log of a host for actions of root without the scheduler, with one writer at a time."""

import os
import pwd
import time
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.audit.directory import Directory
from mesos_gpu.adapters.audit.stream import Stream
from mesos_gpu.model.access.record import AuditRecord, Result

VARIABLE: Final = "MESOS_GPU_HOST_AUDIT"
DEFAULT: Final = Path("/var/log/mesos-gpu/audit")
MAX_BYTES: Final = 16 << 20
FILES: Final = 4
_WAIT_S: Final = 5.0
_NOBODY: Final = 2**32 - 1  # loginuid of processes without a login, such as those that init starts
#: File of the kernel's audit subsystem with the uid that logged in, which su and sudo do not change.
_LOGIN: Final = Path("/proc/self/loginuid")


def directory() -> Path:
    """Return the directory of this host's audit log."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def write(what: str, on: tuple[str, ...], result: Result, detail: str = "") -> None:
    """Write a record of a command, by the user who logged in, or else by the user that it runs as.

    Raises:
        BadConfiguration: The directory cannot be used.
        Conflict: Another process keeps it locked.
        OSError: The record cannot be written.
    """
    at = time.time()
    who, proof = _who()
    record = AuditRecord(at, what, result, who, proof, proved=True, address="host", on=on, detail=detail)
    path = directory()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with Directory(path, make=True) as opened:
        opened.lock(_WAIT_S)
        stream = Stream(opened, "changes", most_bytes=MAX_BYTES, files=FILES, reserve=0)
        try:
            stream.resume(at)
            stream.append([record])
            stream.sync()
        finally:
            stream.close()


def _who() -> tuple[str, str]:
    try:
        login = int(_LOGIN.read_text())
    except (OSError, ValueError):
        login = _NOBODY
    if login != _NOBODY:
        return _name(login), "login"
    return _name(os.getuid()), "uid"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
