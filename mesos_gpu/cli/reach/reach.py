"""Connection to the scheduler: address, TLS files and credentials from options, contexts, variables or `up`."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mesos_gpu.adapters.files.private import read_secret
from mesos_gpu.cli.locate import UNIX, find_url, normal_urls, running
from mesos_gpu.cli.reach import private
from mesos_gpu.cli.reach.origins import origin_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.addresses import is_loopback_host

if TYPE_CHECKING:
    from mesos_gpu.cli.reach.contexts import Context

CONTEXT: Final = "MESOS_GPU_CONTEXT"

_TRY_S = 2.0  # timeout of a connection attempt to one of several schedulers
TOKEN, TOKEN_FILE = "MESOS_GPU_TOKEN", "MESOS_GPU_TOKEN_FILE"
INSECURE = "MESOS_GPU_INSECURE_HTTP_TOKEN"
CACERT, CERT, KEY = "MESOS_GPU_CACERT", "MESOS_GPU_CERT", "MESOS_GPU_KEY"


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files given by options; None to use the environment variables.

    Attributes:
        cacert: Authorities trusted for the scheduler's certificate; "" for those of this host.
        cert: Certificate of the client.
        key: Key of `cert`; "" if it is in the file of `cert`.
    """

    cacert: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """A scheduler, and all that a connection to it needs.

    Attributes:
        url: Address without a trailing slash.
        cacert: Trusted authorities; None for those of this host.
        cert: Client certificate; None for none.
        key: Key of `cert`; None if it is in the file of `cert`.
        token: Token of the caller; "" for other credentials or none.
        renew: Function that returns a renewed token; None if `token` needs no renewal.
        context: Name of the context; "" without one.
        insecure: Whether a token may be sent unencrypted.
        others: Addresses of other schedulers of the cluster, tried if `url` does not answer.
        known_as: Address that logins are stored for: the first of several; "" for `url`.
    """

    url: str
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)
    renew: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    context: str = ""
    insecure: bool = False
    others: tuple[str, ...] = ()
    known_as: str = ""

    @property
    def origin(self) -> str:
        """Origin that credentials are stored for."""
        return origin_of(self.known_as or self.url)

    def turned(self) -> "Reach":
        """Return the connection to the next of several schedulers."""
        if not self.others:
            return self
        return replace(self, url=self.others[0], others=(*self.others[1:], self.url))

    @property
    def socket(self) -> Path | None:
        """Unix socket of the scheduler; None for a network address."""
        return Path(self.url.removeprefix(UNIX)) if self.url.startswith(UNIX) else None

    @property
    def host(self) -> str:
        """Host name or address."""
        return "localhost" if self.socket else urlsplit(self.url).hostname or ""

    @property
    def is_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.url.startswith("https://")

    @property
    def is_here(self) -> bool:
        """Whether the scheduler is on this machine, so that no proxy is used."""
        return is_loopback_host(self.host)

    @property
    def keeps_secrets(self) -> bool:
        """Whether secrets may be sent: the connection is encrypted, or does not leave this machine."""
        return self.is_tls or self.is_here


@dataclass(frozen=True, slots=True)
class Choice:
    """Options that choose the scheduler; None if not given.

    Attributes:
        url: Address of the scheduler.
        context: Name of the context.
        insecure: Whether a token may be sent unencrypted.
    """

    url: str | None = None
    context: str | None = None
    insecure: bool = False


def find_reach(choice: Choice | str | None = None, files: Files = Files(), *, shows: bool = True) -> Reach:
    """Return the connection given by options, else variables, else the current context, else the running `up`.

    Args:
        choice: Options that choose the scheduler, or its address.
        files: Files of certificates from options.
        shows: Whether to include credentials; a login needs none.

    Raises:
        Unavailable, BadConfiguration, NotFound, Damaged: See `find_url` and `chosen`; or a token would be sent
            unencrypted.
    """
    choice = choice if isinstance(choice, Choice) else Choice(choice)
    in_use = chosen(choice.url, choice.context)
    if in_use is not None:
        name, context = in_use
        own = Files(context.cacert, context.cert, context.key)
        found_at, insecure = normal_urls(context.url), context.insecure_http_token
    else:
        name, own, insecure, found_at = "", Files(), False, find_url(choice.url)
    first, *others = found_at.split(",")
    cacert, cert, key = (
        _path(given if given is not None else context_file, variable)
        for given, context_file, variable in (
            (files.cacert, own.cacert, CACERT),
            (files.cert, own.cert, CERT),
            (files.key, own.key, KEY),
        )
    )
    if cacert is None and first.startswith("https://"):
        stack = running()
        if stack is not None and stack.url == first and stack.cacert:
            cacert = Path(stack.cacert)
    insecure = insecure or choice.insecure or os.environ.get(INSECURE) == "1"
    reach = Reach(first, cacert, cert, key, context=name, insecure=insecure)
    if others:
        reach = _answering(replace(reach, others=tuple(others), known_as=first))
    return _with_proof(reach) if shows else reach


def chosen(url: str | None, named: str | None) -> "tuple[str, Context] | None":
    """Return the name of the context in use, and the context; None if an address is used.

    Precedence: --url (no context), --context, MESOS_GPU_URL (no context), MESOS_GPU_CONTEXT, the running `up` of the
    directory of --home or MESOS_GPU_HOME (no context), the current context.

    Raises:
        BadConfiguration, NotFound, Damaged: Both options are given, the name is unknown, or the file is invalid.
    """
    if url and named:
        raise BadConfiguration("--url and --context both choose a scheduler", remedy="remove one of them")
    if url:
        return None
    if not named:
        if os.environ.get("MESOS_GPU_URL"):
            return None
        named = os.environ.get(CONTEXT)
        if not named and os.environ.get("MESOS_GPU_HOME") and running():
            return None
    if not named and not private.is_there(private.CONTEXTS):
        return None
    from mesos_gpu.cli.reach.contexts import load  # imports msgspec

    contexts = load()
    named = named or contexts.current
    return (named, contexts.find(named)) if named else None


def _answering(reach: Reach) -> Reach:
    """Return the first of several schedulers that accepts a connection; the first one if none does."""
    tried = reach
    for _ in range(len(reach.others) + 1):
        parts = urlsplit(tried.url)
        try:
            port = parts.port or (443 if tried.is_tls else 80)
            socket.create_connection((tried.host, port), _TRY_S).close()
        except OSError:
            tried = tried.turned()
        else:
            return tried
    return reach


def check_secrecy(reach: Reach) -> None:
    """Check that a token may be sent.

    Raises:
        BadConfiguration: The token would be sent unencrypted, which is not permitted.
    """
    connections = [reach, *(replace(reach, url=other) for other in reach.others)]
    if not (all(connection.keeps_secrets for connection in connections) or reach.insecure):
        raise BadConfiguration(
            f"no token is sent to {reach.url}, because it could be read on the network",
            remedy=f"use https://; or unset {TOKEN} and {TOKEN_FILE}, or log out, to continue without a token; or "
            "accept "
            "the risk: --insecure-http-token",
        )


def _with_proof(reach: Reach) -> Reach:
    token, renew = _token_for(reach.url), None
    if not token and private.is_there(private.LOGINS):
        from mesos_gpu.cli.reach.logins import Renewed, find  # imports msgspec

        login = find(reach.context, reach.origin)
        renew = Renewed(*login) if login else None
    if token or renew:
        check_secrecy(reach)
    return replace(reach, token=token, renew=renew)


def _token_for(url: str) -> str:
    """Return the token of environment variables; with MESOS_GPU_URL it applies to that scheduler only.

    Raises:
        BadConfiguration: The token file is empty or missing, or other users can read it.
    """
    token, file = os.environ.get(TOKEN, "").strip(), os.environ.get(TOKEN_FILE)
    if not (token or file):
        return ""
    if os.environ.get("MESOS_GPU_URL") and origin_of(url) not in map(origin_of, find_url().split(",")):
        return ""
    return token if token or not file else read_secret(Path(file), "token")


def _path(given: str | None, variable: str) -> Path | None:
    text = os.environ.get(variable, "") if given is None else given
    return Path(text) if text else None
