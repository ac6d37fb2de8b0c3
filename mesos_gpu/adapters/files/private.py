"""Private files: opened once, and accepted only if others could not have read or changed them."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration

READABLE: Final = 0o077  # mode bits by which others could have read or changed a file
WRITABLE: Final = 0o022  # mode bits by which others could have changed a file
_MAX_BYTES: Final = 1 << 20


class Exposed(PermissionError):
    """A file that other users may have read or changed, or that belongs to neither root nor this user."""


def check(status: os.stat_result, forbidden: int = READABLE) -> None:
    """Check that a file belongs to root or this user, and has none of the `forbidden` mode bits.

    Raises:
        Exposed: The check failed; `strerror` has mode and owner.
    """
    mode = stat.S_IMODE(status.st_mode)
    if mode & forbidden or status.st_uid not in (0, os.geteuid()):
        used = "changed" if forbidden == WRITABLE else "read"
        raise Exposed(errno.EPERM, f"mode {mode:04o}, owner {status.st_uid}: others may have {used} it")


def read(path: Path, *, links: bool = True, forbidden: int = READABLE, most_bytes: int = _MAX_BYTES) -> bytes:
    """Return the content of a regular file that passes `check`, at most `most_bytes`.

    Args:
        path: Path of the file.
        links: Whether `path` itself may be a symbolic link; not if others may have chosen its target.
        forbidden: Mode bits, as for `check`.
        most_bytes: Number of bytes after which reading stops.

    Raises:
        Exposed: The file does not pass the check.
        OSError: The file cannot be read, or is not a regular file; a FIFO is not waited for.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        opened = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise OSError(errno.ELOOP, "it is a symbolic link") from error
        raise
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        check(status, forbidden)
        with open(opened, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(opened)


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically; only its owner may read it.

    Raises:
        OSError: The file cannot be written; its former content is unchanged.
    """
    from secrets import token_hex  # imported here, as it would slow each start of an executor

    part = path.with_name(f".{path.name}.{token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_secret(path: Path, what: str, *, links: bool = True) -> str:
    """Return the only line of a file, without surrounding white space.

    Args:
        path: Path of the file.
        what: Description of the secret for messages, such as "token".
        links: Whether `path` may be a symbolic link, as for `read`.

    Raises:
        BadConfiguration: The file cannot be read, is empty or has several lines; or others may have read it.
    """
    text = read_text(path, f"the {what}", links=links).strip()
    if not text or not text.isprintable():
        raise BadConfiguration(f"{path} has no {what}", remedy=f"write one line with the {what} into it")
    return text


def read_text(path: Path, what: str, *, links: bool = True) -> str:
    """Return the text of a private file, with any number of lines.

    Raises:
        BadConfiguration: The file cannot be read, or others may have read it.
    """
    try:
        return read(path, links=links).decode(errors="replace")
    except OSError as error:
        raise BadConfiguration(
            f"{what} in {path} cannot be used: {error.strerror}", remedy=remedy_of(path, error)
        ) from error


def remedy_of(path: Path, error: OSError) -> str:
    """Return the remedy for a file that could not be read."""
    if isinstance(error, Exposed):
        return f"chown {os.geteuid()} {path}; chmod 600 {path}; and choose a new secret: others may have it"
    return "give a regular file that this user can read"
