"""Where the scheduler is: what the user names, else what a running `mesos-gpu up` has written down."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import BadConfiguration, Damaged, Unavailable

UNIX: Final = "unix:"  # before the path of a socket
SYSTEM_SOCKET: Final = Path("/run/mesos-gpu/api.sock")  # of a scheduler that is a service of this host
REMEDY: Final = (
    "start one with `mesos-gpu up`, or name one with --url, MESOS_GPU_URL or `mesos-gpu context use NAME`"
)


@dataclass(frozen=True, slots=True)
class Running:
    """A running `mesos-gpu up`, as its file says. `started_at` is seconds since the epoch."""

    url: str
    pid: int
    started_at: float
    start_ticks: int  # field 22 of /proc/PID/stat: a process id is used again, both together are not
    cacert: str | None = None  # file of its certificate's authorities; None: those of this host
    socket: str | None = None  # where the kernel says who asks; None: nobody is asked


def state_home() -> Path:
    """MESOS_GPU_HOME, else the user's directory for state."""
    named = os.environ.get("MESOS_GPU_HOME")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_state_dir("mesos-gpu"))


def up_file() -> Path:
    """Where `mesos-gpu up` says that it runs: `Running` as one JSON object."""
    return state_home() / "up.json"


def running() -> Running | None:
    """The `mesos-gpu up` that runs now; None if none does, also if one has left its file behind.

    Raises:
        Damaged: The file is not what `up` writes.
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
        raise Damaged(f"{path} is not what `mesos-gpu up` writes ({err!r})", remedy="remove it") from err
    return stack if start_ticks(stack.pid) == stack.start_ticks else None


def find_url(named: str | None = None) -> str:
    """The scheduler's address, without a slash at the end; or several, as of `normal_urls`.

    It is `named`, else MESOS_GPU_URL, else that of the running `up`, else the socket of a service of this host.

    Raises:
        Unavailable: None of the three is there.
        BadConfiguration: MESOS_GPU_URL is not an address.
        Damaged: The file of `up` is not what it writes.
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
    raise Unavailable("no mesos-gpu scheduler runs here", remedy=REMEDY)


def _is_service(path: Path) -> bool:
    """Whether a socket is there, and only root can have put it there: no other user's answers are believed."""
    try:
        directory = path.parent.lstat()
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
    return is_socket and directory.st_uid == 0 and not directory.st_mode & 0o022


def normal_urls(value: str) -> str:
    """Addresses of several schedulers of a cluster, as `normal_url` has each, with commas between them; or one.

    Raises:
        ValueError: One is none, or they are not all reached in the same way.
    """
    urls = [normal_url(each) for each in value.split(",")]
    ways = sorted({each.partition(":")[0] for each in urls})
    if len(ways) > 1 or (len(urls) > 1 and ways == ["unix"]):
        raise ValueError(
            f"{value!r}: several schedulers are all reached by http, or all by https, not by {', '.join(ways)}"
        )
    return ",".join(dict.fromkeys(urls))


def normal_url(value: str) -> str:
    """An address with its scheme, without a slash at the end; or `unix:/PATH`.

    Raises:
        ValueError: It is none.
    """
    if value.strip().startswith(f"{UNIX}/"):
        return f"{UNIX}{Path(value.strip().removeprefix(UNIX))}"
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in url
    except ValueError:  # a port that is no number
        good = False
    if not good or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is not an address, as http://127.0.0.1:8080")
    return url.rstrip("/")
