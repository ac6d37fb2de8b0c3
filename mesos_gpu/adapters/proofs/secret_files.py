"""Files with a secret, which nobody but their owner may read."""

import os
import stat
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration

_MOST: Final = 1 << 16  # bytes


def read_secret(path: Path, what: str) -> str:
    """The one line of a file, as it is but for white space around it; `what` it is, for who reads what is wrong.

    Raises:
        BadConfiguration: It cannot be read, is empty or has several lines; or others than its owner may read it.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MOST).strip()
    except OSError as error:
        raise BadConfiguration(
            f"the {what} in {path} is not used: {error.strerror}", remedy="name a file that can be read"
        ) from error
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 or status.st_uid not in (0, os.geteuid()):
        raise BadConfiguration(
            f"the {what} in {path} is not used: mode {mode:04o}, owner {status.st_uid}: others may have read it",
            remedy=f"chmod 600 {path}, and choose a new one",
        )
    if not text or not text.isprintable():
        raise BadConfiguration(f"{path} has no {what}", remedy=f"write one line with the {what} into it")
    return text
