"""Credentials for Mesos' HTTP interfaces, from a file that only its owner can read."""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration

#: Environment variable of an agent with the file of its executors' credentials.
VARIABLE: Final = "MESOS_GPU_AGENT_CREDENTIALS"


@dataclass(frozen=True, slots=True)
class Credential:
    """A Mesos principal with its secret."""

    principal: str
    secret: str = field(repr=False)

    @property
    def header(self) -> str:
        """Value of the header `Authorization` (RFC 7617)."""
        return "Basic " + b64encode(f"{self.principal}:{self.secret}".encode()).decode()


def read(path: Path) -> Credential:
    """Read a credential file in Mesos' --credential format.

    The format is {"principal": …, "secret": …}, or both words in one line.

    Raises:
        BadConfiguration: The file cannot be read, is readable by others, is a link, or has another format.
    """
    credential = _parsed(private.read_text(path, "the credentials", links=False))
    if credential is None:
        raise BadConfiguration(
            f"the credentials in {path} cannot be used: no principal and secret",
            remedy='write {"principal": "NAME", "secret": "WORD"}',
        )
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
    return None if ":" in principal else Credential(principal, secret)  # RFC 7617: no colon in the principal
