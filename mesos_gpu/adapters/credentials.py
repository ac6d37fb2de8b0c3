"""Credentials for Mesos' HTTP interfaces, from a file that only its owner can read."""

import errno
import json
import os
import stat
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from mesos_gpu.errors import BadConfiguration

#: Of an agent's environment: the file whose credentials its executors have for it.
VARIABLE = "MESOS_GPU_AGENT_CREDENTIALS"

MOST_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Credential:
    """Who, and by which word."""

    principal: str
    secret: str = field(repr=False)

    @property
    def header(self) -> str:
        """The value of `Authorization` (RFC 7617)."""
        return "Basic " + b64encode(f"{self.principal}:{self.secret}".encode()).decode()


def read(path: Path) -> Credential:
    """A file as Mesos has it for --credential: {"principal": …, "secret": …}, or both words in one line.

    Raises:
        BadConfiguration: It cannot be read, others than its owner can, or it says something else.
    """
    text = _private(path, "the credentials")
    credential = _parsed(text)
    if credential is None:
        remedy = 'write {"principal": "NAME", "secret": "WORD"}'
        raise _wrong(path, "the credentials", "no principal and secret", remedy)
    return credential


def read_secret(path: Path) -> str:
    """A secret alone in a file, without the blanks around it.

    Raises:
        BadConfiguration: As of `read`.
    """
    secret = _private(path, "the secret").strip()
    if not secret:
        raise _wrong(path, "the secret", "the file is empty", "write the secret into it")
    return secret


def _private(path: Path, content: str) -> str:
    """The text of a regular file that nobody but its owner can have read: who may follow a link, or wait at a FIFO, is
    told by its owner what to read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, encoding="utf-8", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(MOST_BYTES) if stat.S_ISREG(status.st_mode) else ""
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else f"{error.strerror}"
        raise _wrong(path, content, why, "name a file that can be read, not a link to it") from error
    if not stat.S_ISREG(status.st_mode):
        raise _wrong(path, content, "it is no regular file", "name a regular file")
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (0, os.geteuid()):
        what = (
            f"mode {stat.S_IMODE(status.st_mode):04o}, owner {status.st_uid}: others may have read the secret"
        )
        remedy = f"chown {os.geteuid()} {path}; chmod 600 {path}; and choose a new secret"
        raise _wrong(path, content, what, remedy)
    return text


def _parsed(text: str) -> Credential | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        words = text.split()
        value = dict(zip(("principal", "secret"), words, strict=True)) if len(words) == 2 else None
    if not isinstance(value, dict):
        return None
    principal, secret = value.get("principal"), value.get("secret")
    if not (isinstance(principal, str) and isinstance(secret, str) and principal and secret):
        return None
    return None if ":" in principal else Credential(principal, secret)  # RFC 7617: no colon in the first


def _wrong(path: Path, content: str, what: str, remedy: str) -> BadConfiguration:
    verb = "is" if content.endswith("secret") else "are"
    return BadConfiguration(f"{content} in {path} {verb} not used: {what}", remedy=remedy)
