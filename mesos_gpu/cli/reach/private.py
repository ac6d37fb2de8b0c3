"""Private files of the user: contexts and logins."""

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
    """Return MESOS_GPU_CONFIG, else the user's directory for settings."""
    named = os.environ.get(CONFIG)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_dir("mesos-gpu"))


def is_there(name: str) -> bool:
    """Return whether the user has a file of this name, whatever its contents."""
    return os.path.lexists(config_home() / name)


def read(path: Path) -> bytes | None:
    """Return the contents of a file; None if it does not exist.

    Raises:
        BadConfiguration: The file cannot be read, or other users own, can read or can change it.
    """
    try:
        return files.read(path, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically; only its owner can read it.

    Raises:
        BadConfiguration: The file cannot be written.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        files.write(path, data)
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error


@contextmanager
def locked() -> Iterator[None]:
    """Lock these files against other commands of this user, while the body runs.

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
    return BadConfiguration(
        f"{path} cannot be used: {why}", remedy=f"run: chmod 600 {path}; or remove the file"
    )
