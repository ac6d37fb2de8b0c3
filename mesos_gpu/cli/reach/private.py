"""Files of the user that nobody else may read: contexts and logins."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

from mesos_gpu.errors import BadConfiguration

CONFIG: Final = "MESOS_GPU_CONFIG"
_MOST: Final = 1 << 20  # bytes
_OTHERS: Final = 0o077


def config_home() -> Path:
    """MESOS_GPU_CONFIG, else the user's directory for settings."""
    named = os.environ.get(CONFIG)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_dir("mesos-gpu"))


def read(path: Path) -> bytes | None:
    """What is in a file; None: it is not there.

    Raises:
        BadConfiguration: It cannot be read; or another user owns it, or others may read or change it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or repr(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "it is no file")
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & _OTHERS:
            what = f"mode {stat.S_IMODE(status.st_mode):04o}, owner {status.st_uid}: others may have read it"
            raise _unusable(path, what)
        return file.read(_MOST)


def write(path: Path, data: bytes) -> None:
    """Put this in a file's place, in one step; only its owner may read it.

    Raises:
        BadConfiguration: It cannot be written.
    """
    part = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
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
    return BadConfiguration(f"{path} is not used: {why}", remedy=f"mend it (chmod 600 {path}), or remove it")
