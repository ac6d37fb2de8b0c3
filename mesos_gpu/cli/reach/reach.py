"""Where the scheduler is, whom to believe there, and what to show: of options, contexts, variables, a running `up`."""

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

_TRY_S = 2.0  # for a connection to one of several
TOKEN, TOKEN_FILE = "MESOS_GPU_TOKEN", "MESOS_GPU_TOKEN_FILE"
INSECURE = "MESOS_GPU_INSECURE_HTTP_TOKEN"
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
        renew: What gives the token where it has to be renewed now and then; None: `token` is all.
        context: Of which this is; "": of none.
        insecure: Whether a token may be sent where others read it.
        others: Addresses of other schedulers of the same cluster, to be tried where `url` does not answer.
        known_as: The address that logins are kept by: of several the one that was named first; "": `url`.
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
        """What proofs are kept by."""
        return origin_of(self.known_as or self.url)

    def turned(self) -> "Reach":
        """The next one of several, where this one does not answer."""
        if not self.others:
            return self
        return replace(self, url=self.others[0], others=(*self.others[1:], self.url))

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
        return is_loopback_host(self.host)

    @property
    def keeps_secrets(self) -> bool:
        """Whether a password or a token may be sent: nobody on the way reads it."""
        return self.is_tls or self.is_here


@dataclass(frozen=True, slots=True)
class Choice:
    """What options say of where the scheduler is; None: nothing.

    Attributes:
        url: Its address.
        context: Its name.
        insecure: Whether a token may be sent where others read it.
    """

    url: str | None = None
    context: str | None = None
    insecure: bool = False


def find_reach(choice: Choice | str | None = None, files: Files = Files(), *, shows: bool = True) -> Reach:
    """What options say, else the variables, else the current context, else the running `up`.

    Args:
        choice: Where the scheduler is; an address alone is one, too.
        files: Of certificates.
        shows: Whether the connection is to prove who asks; a login begins without.

    Raises:
        Unavailable, BadConfiguration, NotFound, Damaged: What `find_url` and `chosen` raise; or a token would be sent
            where others read it.
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
        _path(given if given is not None else of_context, variable)
        for given, of_context, variable in (
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

    In this order: --url (none) or --context, MESOS_GPU_URL (none), MESOS_GPU_CONTEXT, the running `up` of the directory
    that --home or MESOS_GPU_HOME names (none), and the current one.

    Raises:
        BadConfiguration, NotFound, Damaged: The files, the name, or both options.
    """
    if url and named:
        raise BadConfiguration("--url and --context both say where the scheduler is", remedy="leave one out")
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
    from mesos_gpu.cli.reach.contexts import load  # brings msgspec

    contexts = load()
    named = named or contexts.current
    return (named, contexts.find(named)) if named else None


def _answering(reach: Reach) -> Reach:
    """Begin with the first of several that somebody listens at; if there is none, with the first."""
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
    """See that a token may be sent.

    Raises:
        BadConfiguration: Others could read it on the way, and nobody has said that they may.
    """
    each = [reach, *(replace(reach, url=other) for other in reach.others)]
    if not (all(one.keeps_secrets for one in each) or reach.insecure):
        raise BadConfiguration(
            f"no token is sent to {reach.url}: it could be read on the way",
            remedy=f"use https://; or unset {TOKEN} and {TOKEN_FILE}, or log out, to ask without a name; or let others "
            "read it: --insecure-http-token",
        )


def _with_proof(reach: Reach) -> Reach:
    token, renew = _token_for(reach.url), None
    if not token and private.is_there(private.LOGINS):
        from mesos_gpu.cli.reach.logins import Renewed, find  # brings msgspec

        login = find(reach.context, reach.origin)
        renew = Renewed(*login) if login else None
    if token or renew:
        check_secrecy(reach)
    return replace(reach, token=token, renew=renew)


def _token_for(url: str) -> str:
    """What the variables say; where they name a scheduler, too, the token is for that one alone.

    Raises:
        BadConfiguration: A file has none, or others may read it.
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
