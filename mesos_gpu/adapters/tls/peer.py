"""Whom a connection has proved to come from: the certificate that the handshake has verified."""

import ssl
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

_TLS: Final = "tls"  # of scope["extensions"], as ASGI's TLS extension names it
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "domainComponent": "DC",
    "userId": "UID",
    "emailAddress": "emailAddress",
    "serialNumber": "serialNumber",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A verified client.

    Attributes:
        subject: The distinguished name, as RFC 4514 writes it, the most specific part first.
        common_names: Of the subject, as they are.
        dns, uris, emails: Subject alternative names.
        issuer: Like `subject`, of who signed.
        serial: Hexadecimal.
        not_after: End of its validity, in seconds since the epoch.
    """

    subject: str
    common_names: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    issuer: str = ""
    serial: str = ""
    not_after: float = 0.0


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> Peer | None:
    """Who is at the other end; None: without TLS, or without a certificate that was verified."""
    if connection is None or connection.context.verify_mode is ssl.CERT_NONE:
        return None
    told = connection.getpeercert()
    return peer_from(told) if told else None


def extension(peer: Peer) -> dict[str, dict[object, object]]:
    """What an ASGI scope says of a verified client, as its `extensions`."""
    return {_TLS: {"client_cert_name": peer.subject, "peer": peer}}


def peer_in(scope: MutableMapping[str, Any]) -> Peer | None:
    """Who has proved, by a certificate, to send this request; None: nobody."""
    peer = scope.get("extensions", {}).get(_TLS, {}).get("peer")
    return peer if isinstance(peer, Peer) else None


def peer_from(told: Mapping[str, Any]) -> Peer:
    """What `getpeercert` says of a certificate."""
    names: dict[str, list[str]] = {}
    for kind, name in told.get("subjectAltName", ()):
        names.setdefault(kind, []).append(str(name))
    return Peer(
        subject=_dn(told.get("subject", ())),
        common_names=tuple(v for rdn in told.get("subject", ()) for k, v in rdn if k == "commonName"),
        dns=tuple(names.get("DNS", ())),
        uris=tuple(names.get("URI", ())),
        emails=tuple(names.get("email", ())),
        issuer=_dn(told.get("issuer", ())),
        serial=str(told.get("serialNumber", "")),
        not_after=float(ssl.cert_time_to_seconds(told["notAfter"])) if "notAfter" in told else 0.0,
    )


def _dn(parts: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ",".join("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in rdn) for rdn in reversed(parts))


def _escaped(value: str) -> str:
    """RFC 4514, section 2.4: so that no value reads as further parts."""
    text = "".join(f"\\{c}" if c in '"+,;<>\\=' else f"\\{ord(c):02x}" if ord(c) < 0x20 else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and not text.endswith("\\ ") else text
