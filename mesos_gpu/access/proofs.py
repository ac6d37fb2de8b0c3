"""Proofs of a name that a request may show: what its headers say, in which order proofs count, and whose word wins."""

import binascii
import ipaddress
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.caller import Caller, Proof

#: The order in which proofs count where an operator names none.
ORDER: Final = (
    Proof.TOKEN,
    Proof.PASSWORD,
    Proof.CERTIFICATE,
    Proof.PROXY,
    Proof.OIDC,
    Proof.SOCKET,
)
MAX_NAME: Final = 256  # characters of a name that a proof may give
_DCOS: Final = "token="  # `Authorization: token=…`, as DC/OS has it, and Marathon's clients for it
_REMEDY: Final = "log in again (mesos-gpu login), or send a proof that is right"
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


class WrongProof(MesosGpuError):
    """A request shows a proof, and it is wrong: it is refused, whatever else it shows."""

    exit_code, http_status = 77, 401

    def __init__(
        self, reason: str, claimed: str = "", *, guessed: bool = True, remedy: str = _REMEDY, retry_s: int = 0
    ) -> None:
        """The reason is told to who asks: no secret, and nothing that helps to guess one, belongs into it.

        Args:
            reason: What is wrong, as "the token has expired".
            claimed: The name that it would prove; "": that is not known. It is what the request says: not to be
                believed, and to be shown only as such.
            guessed: Whether it may be a guess at a secret: then it counts against its address and the name.
            remedy: What to do.
            retry_s: Above 0: there were too many wrong ones, and none is looked at for so many seconds.
        """
        super().__init__(reason, remedy=remedy)
        self.claimed, self.guessed, self.retry_s = claimed[:MAX_NAME], guessed, retry_s
        if retry_s:
            self.http_status = 429


@dataclass(frozen=True, slots=True)
class Authorization:
    """The header of that name (RFC 9110, section 11.6.2): a scheme in lower case, and what follows it."""

    scheme: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NameAndPassword:
    """What HTTP basic carries (RFC 7617)."""

    name: str
    password: str = field(repr=False)


def authorization(values: Sequence[str]) -> Authorization | None:
    """Read the header, of which a request has at most one.

    Raises:
        WrongProof: There are several, or it has no such form.
    """
    if not values:
        return None
    if len(values) > 1:
        raise WrongProof("there are several Authorization headers", guessed=False, remedy="send one")
    text = values[0].strip()
    if text.lower().startswith(_DCOS):
        text = f"bearer {text[len(_DCOS) :]}"
    scheme, _, value = text.partition(" ")
    value = value.strip()
    if not scheme or not value:
        raise WrongProof("the Authorization header has no proof in it", guessed=False)
    return Authorization(scheme.lower(), value)


def basic(value: str) -> NameAndPassword:
    """What follows `Basic`.

    Raises:
        WrongProof: It is not base64 of UTF-8 with a colon.
    """
    try:
        name, colon, password = b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise WrongProof("the Authorization header is not HTTP basic as RFC 7617 has it", guessed=False)
    return NameAndPassword(name, password)


def may_be_name(text: str) -> bool:
    """Whether a proof may give this name: something that can be shown, and no longer than names are."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and text == text.strip()


def order(text: str) -> tuple[Proof, ...]:
    """`token,password,…`, each at most once; "none" alone: nobody is asked who they are.

    Raises:
        ValueError: Something else.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["none"]:
        return ()
    known = {proof.value: proof for proof in ORDER}
    for word in words:
        if word not in known:
            raise ValueError(f"{word!r} is none of {', '.join(known)}, and none stands alone")
    if len(set(words)) < len(words):
        raise ValueError(f"{text!r} names a proof twice")
    return tuple(known[word] for word in words)


def first(by: Sequence[Proof], callers: Iterable[Caller]) -> Caller | None:
    """Whose proof comes first in an order; None: there is none."""
    return min(callers, key=lambda caller: by.index(caller.proof), default=None)


def is_listed(address: str, networks: Networks) -> bool:
    """Whether an address is of one of the networks; an IPv4 address may be written as IPv6 maps it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


def forwarded_from(peer: str, headers: Sequence[str], trusted: Networks) -> str:
    """Where a request came from: what X-Forwarded-For says, as far as trusted proxies have written it.

    Each proxy adds whom it got the request from, at the right; from there hops are believed as long as who wrote
    them is trusted. What a client wrote itself stands left of that.

    Args:
        peer: The address at the other end of the connection; "": a trusted proxy on a Unix socket.
        headers: All headers of that name, in their order.
        trusted: Addresses of proxies.
    """
    hops = [hop.strip() for header in headers for hop in header.split(",")]
    sender = peer
    while hops and (not sender or is_listed(sender, trusted)):
        hop = _address(hops.pop())
        if hop is None:
            return sender
        sender = hop
    return sender


def _address(hop: str) -> str | None:
    text = hop.strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
