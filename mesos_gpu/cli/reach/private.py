"""Files of the user that nobody else may read: contexts and logins."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private as files
from mesos_gpu.errors import BadConfiguration

CONFIG: Final = "MESOS_GPU_CONFIG"
CONTEXTS: Final = "contexts.json"
LOGINS: Final = "logins.json"


def config_home() -> Path:
    """MESOS_GPU_CONFIG, else the user's directory for settings."""
    named = os.environ.get(CONFIG)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_dir("mesos-gpu"))


def is_there(name: str) -> bool:
    """Whether the user has a file of that name, whatever is in it."""
    return os.path.lexists(config_home() / name)


def read(path: Path) -> bytes | None:
    """What is in a file; None: it is not there.

    Raises:
        BadConfiguration: It cannot be read; or another user owns it, or others may read or change it.
    """
    try:
        return files.read(path, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error


def write(path: Path, data: bytes) -> None:
    """Put this in a file's place, in one step; only its owner may read it.

    Raises:
        BadConfiguration: It cannot be written.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        files.write(path, data)
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error


@contextmanager
def locked() -> Iterator[None]:
    """While it lasts, no other command of this user changes these files.

    Raises:
        BadConfiguration: The directory cannot be written.
    """
    path = config_home() / "lock"
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration(f"{path} is not used: {why}", remedy=f"run: chmod 600 {path}; or remove it")
