"""Credentials for Mesos' HTTP interfaces, from a file that only its owner can read."""

import json
import os
import stat
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from mesos_gpu.errors import BadConfiguration

#: Of an agent's environment: the file whose credentials its executors have for it.
VARIABLE = "MESOS_GPU_AGENT_CREDENTIALS"


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
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(65536)
    except OSError as error:
        raise _wrong(path, f"{error.strerror}", "name a file that can be read") from error
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (0, os.geteuid()):
        what = (
            f"mode {stat.S_IMODE(status.st_mode):04o}, owner {status.st_uid}: others may have read the secret"
        )
        raise _wrong(path, what, f"chown {os.geteuid()} {path}; chmod 600 {path}; and choose a new secret")
    credential = _parsed(text)
    if credential is None:
        raise _wrong(path, "no principal and secret", 'write {"principal": "NAME", "secret": "WORD"}')
    return credential


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


def _wrong(path: Path, what: str, remedy: str) -> BadConfiguration:
    return BadConfiguration(f"the credentials in {path} are not used: {what}", remedy=remedy)
