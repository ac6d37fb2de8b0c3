"""Proofs of identity in a request: parsing of headers, order of proofs, and the address of the client."""

import binascii
import ipaddress
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.caller import Caller, Proof

#: Default order of precedence of proofs.
ORDER: Final = (
    Proof.TOKEN,
    Proof.PASSWORD,
    Proof.CERTIFICATE,
    Proof.PROXY,
    Proof.OIDC,
    Proof.SOCKET,
)
MAX_NAME: Final = 256  # characters of a name that a proof may give
_DCOS: Final = "token="  # `Authorization: token=…`, the form of DC/OS and of Marathon clients for it
_REMEDY: Final = "log in again (mesos-gpu login), or send valid credentials"
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


class WrongProof(MesosGpuError):
    """A request has a wrong proof; it is refused whatever other proofs it has.

    Args:
        reason: Reason in words, such as "the token has expired". It is sent to the caller, so it must contain neither a
            secret nor help to guess one.
        claimed: Name that it would prove, for display as unproved only; "" if not known.
        guessed: Whether it may be a guess at a secret, so that it counts against its address and the name.
        remedy: Advice to the user.
        retry_s: Seconds until the next proof is checked, after too many wrong ones; else 0.
    """

    exit_code, http_status = 77, 401

    def __init__(
        self, reason: str, claimed: str = "", *, guessed: bool = True, remedy: str = _REMEDY, retry_s: int = 0
    ) -> None:
        super().__init__(reason, remedy=remedy)
        self.claimed, self.guessed, self.retry_s = claimed[:MAX_NAME], guessed, retry_s
        if retry_s:
            self.http_status = 429


@dataclass(frozen=True, slots=True)
class Authorization:
    """Authorization header (RFC 9110, section 11.6.2): the scheme in lower case, and the rest."""

    scheme: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NameAndPassword:
    """Credentials of HTTP basic authentication (RFC 7617)."""

    name: str
    password: str = field(repr=False)


def authorization(values: Sequence[str]) -> Authorization | None:
    """Parse the Authorization header, of which a request may have at most one.

    Raises:
        WrongProof: There are several headers, or the header is malformed.
    """
    if not values:
        return None
    if len(values) > 1:
        raise WrongProof("there are several Authorization headers", guessed=False, remedy="send only one")
    text = values[0].strip()
    if text.lower().startswith(_DCOS):
        text = f"bearer {text[len(_DCOS) :]}"
    scheme, _, value = text.partition(" ")
    value = value.strip()
    if not scheme or not value:
        raise WrongProof("the Authorization header has no credentials", guessed=False)
    return Authorization(scheme.lower(), value)


def basic(value: str) -> NameAndPassword:
    """Parse the credentials after `Basic`.

    Raises:
        WrongProof: The text is not base64 of UTF-8 with a colon.
    """
    try:
        name, colon, password = b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise WrongProof(
            "the Authorization header is not valid HTTP basic authentication (RFC 7617)", guessed=False
        )
    return NameAndPassword(name, password)


def may_be_name(text: str) -> bool:
    """Return whether a text is acceptable as a proved name: printable, trimmed, and not too long."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and text == text.strip()


def order(text: str) -> tuple[Proof, ...]:
    """Parse an order of proofs such as `token,password`, each at most once; "none" switches authentication off.

    Raises:
        ValueError: The text has another form.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["none"]:
        return ()
    proofs = {proof.value: proof for proof in ORDER}
    for word in words:
        if word not in proofs:
            raise ValueError(f"{word!r} is not one of {', '.join(proofs)}; none can only be given alone")
    if len(set(words)) < len(words):
        raise ValueError(f"{text!r} names a proof twice")
    return tuple(proofs[word] for word in words)


def first(by: Sequence[Proof], callers: Iterable[Caller]) -> Caller | None:
    """Return the caller whose proof comes first in an order; None without callers."""
    return min(callers, key=lambda caller: by.index(caller.proof), default=None)


def is_listed(address: str, networks: Networks) -> bool:
    """Return whether an address is in one of the networks; an IPv4 address may be mapped to IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


def forwarded_from(peer: str, headers: Sequence[str], trusted: Networks) -> str:
    """Return the address a request came from: that of X-Forwarded-For as far as trusted proxies have written it.

    Each proxy appends the address of its peer at the right. From there, entries are trusted as long as their writer is;
    entries that the client wrote itself stand left of these.

    Args:
        peer: Address of the peer of the connection; "" for a trusted proxy on a Unix socket.
        headers: X-Forwarded-For headers, in their order.
        trusted: Addresses of trusted proxies.
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
