"""Where the scheduler is, whom to believe there, and what to show: of options, variables, and a running `up`."""

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mesos_gpu.adapters.proofs.secret_files import read_secret
from mesos_gpu.cli.locate import UNIX, find_url, running
from mesos_gpu.errors import BadConfiguration

TOKEN, TOKEN_FILE = "MESOS_GPU_TOKEN", "MESOS_GPU_TOKEN_FILE"
CACERT, CERT, KEY = "MESOS_GPU_CACERT", "MESOS_GPU_CERT", "MESOS_GPU_KEY"


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files as options name them; None: as the variables say.

    Attributes:
        cacert: Authorities that the scheduler's certificate may come from; "": those of this host.
        cert: The client's own certificate, if the scheduler wants one.
        key: Of that; "": it is in the same file.
    """

    cacert: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """A scheduler, and all that a connection to it needs.

    Attributes:
        url: Without a slash at the end.
        cacert: Authorities; None: those of this host.
        cert: What is shown; None: nothing.
        key: Of `cert`; None: in the same file.
        token: What proves who asks; "": nothing, or something else.
    """

    url: str
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)

    @property
    def socket(self) -> Path | None:
        """The Unix socket that it is reached by; None: by a network."""
        return Path(self.url.removeprefix(UNIX)) if self.url.startswith(UNIX) else None

    @property
    def host(self) -> str:
        """A name or an address."""
        return "localhost" if self.socket else urlsplit(self.url).hostname or ""

    @property
    def is_tls(self) -> bool:
        """Whether what is sent is read by the scheduler alone."""
        return self.url.startswith("https://")

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine: no proxy is between."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def keeps_secrets(self) -> bool:
        """Whether a password or a token may be sent: nobody on the way reads it."""
        return self.is_tls or self.is_here


def find_reach(url: str | None = None, files: Files = Files()) -> Reach:
    """What options say, else the variables, else the running `up`.

    Raises:
        Unavailable, BadConfiguration, Damaged: What `find_url` raises.
    """
    found_at = find_url(url)
    cacert, cert, key = (
        _path(given, variable)
        for given, variable in ((files.cacert, CACERT), (files.cert, CERT), (files.key, KEY))
    )
    if cacert is None and found_at.startswith("https://"):
        stack = running()
        if stack is not None and stack.url == found_at and stack.cacert:
            cacert = Path(stack.cacert)
    reach = Reach(found_at, cacert, cert, key, _token())
    if reach.token and not reach.keeps_secrets:
        raise BadConfiguration(
            f"the token is not sent to {found_at}: it could be read on the way",
            remedy=f"use https://, or unset {TOKEN} and {TOKEN_FILE}",
        )
    return reach


def _token() -> str:
    """What the variables say.

    Raises:
        BadConfiguration: A file has none, or others may read it.
    """
    token, file = os.environ.get(TOKEN, "").strip(), os.environ.get(TOKEN_FILE)
    return token if token or not file else read_secret(Path(file), "token")


def _path(given: str | None, variable: str) -> Path | None:
    text = os.environ.get(variable, "") if given is None else given
    return Path(text) if text else None
