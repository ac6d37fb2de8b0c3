"""Address of the scheduler: given by the user, or recorded by a running `mesos-gpu up`."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import BadConfiguration, Damaged, Unavailable

UNIX: Final = "unix:"  # prefix of a socket's path
SYSTEM_SOCKET: Final = Path("/run/mesos-gpu/api.sock")  # socket of a scheduler that is a service of this host
REMEDY: Final = (
    "start one with `mesos-gpu up`, or give its address with --url, MESOS_GPU_URL or "
    "`mesos-gpu context use NAME`"
)


@dataclass(frozen=True, slots=True)
class Running:
    """A running `mesos-gpu up`, from its file. `started_at` is in seconds since the epoch."""

    url: str
    pid: int
    started_at: float
    # Field 22 of /proc/PID/stat: identifies the process together with its pid, which may be reused.
    start_ticks: int
    cacert: str | None = None  # file of its certificate's authorities; None for those of this host
    socket: str | None = None  # Unix socket that identifies callers; None without authentication


def state_home() -> Path:
    """Return MESOS_GPU_HOME, else the user's directory for state."""
    named = os.environ.get("MESOS_GPU_HOME")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_state_dir("mesos-gpu"))


def up_file() -> Path:
    """Return the file in which `mesos-gpu up` records `Running` as one JSON object."""
    return state_home() / "up.json"


def running() -> Running | None:
    """Return the running `mesos-gpu up`; None if none runs, even if its file was left behind.

    Raises:
        Damaged: The file was not written by `up`.
    """
    path = up_file()
    try:
        value = json.loads(path.read_text())
        stack = Running(
            url=normal_url(str(value["url"])),
            pid=int(value["pid"]),
            started_at=float(value["started_at"]),
            start_ticks=int(value["start_ticks"]),
            cacert=None if value.get("cacert") is None else str(value["cacert"]),
            socket=None if value.get("socket") is None else str(value["socket"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as err:
        raise Damaged(
            f"{path} is not a valid file of `mesos-gpu up` ({err!r})", remedy="remove this file"
        ) from err
    return stack if start_ticks(stack.pid) == stack.start_ticks else None


def find_url(named: str | None = None) -> str:
    """Return the scheduler's address without a trailing slash, or several as from `normal_urls`.

    Sources in order: `named`, MESOS_GPU_URL, the running `up`, the socket of a service of this host.

    Raises:
        Unavailable: No source has an address.
        BadConfiguration: MESOS_GPU_URL is not an address.
        Damaged: The file of `up` is invalid.
    """
    if named:
        return named
    variable = os.environ.get("MESOS_GPU_URL")
    if variable:
        try:
            return normal_urls(variable)
        except ValueError as err:
            raise BadConfiguration(f"MESOS_GPU_URL: {err}", remedy="correct it, or unset it") from err
    stack = running()
    if stack is not None:
        return f"{UNIX}{stack.socket}" if stack.socket else stack.url
    if _is_service(SYSTEM_SOCKET):
        return f"{UNIX}{SYSTEM_SOCKET}"
    raise Unavailable(
        "no mesos-gpu scheduler runs on this host, and no other one is configured", remedy=REMEDY
    )


def _is_service(path: Path) -> bool:
    """Return whether a socket exists that only root can have created; answers of other users' sockets are not
    trusted."""
    try:
        directory = path.parent.lstat()
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
    return is_socket and directory.st_uid == 0 and not directory.st_mode & 0o022


def normal_urls(value: str) -> str:
    """Return comma-separated addresses of a cluster's schedulers in the form of `normal_url`; one is enough.

    Raises:
        ValueError: An address is invalid, or the addresses use different transports.
    """
    urls = [normal_url(part) for part in value.split(",")]
    ways = sorted({url.partition(":")[0] for url in urls})
    if len(ways) > 1 or (len(urls) > 1 and ways == ["unix"]):
        raise ValueError(
            f"{value!r}: several schedulers must all use http, or all https, not {', '.join(ways)}"
        )
    return ",".join(dict.fromkeys(urls))


def normal_url(value: str) -> str:
    """Return an address with its scheme and without a trailing slash, or `unix:/PATH`.

    Raises:
        ValueError: The value is not an address.
    """
    if value.strip().startswith(f"{UNIX}/"):
        return f"{UNIX}{Path(value.strip().removeprefix(UNIX))}"
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in url
    except ValueError:  # the port is not a number
        good = False
    if not good or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is not an address, for example http://127.0.0.1:8080")
    return url.rstrip("/")
