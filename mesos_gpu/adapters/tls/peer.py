"""Identity of a TLS client: the certificate that the handshake has verified."""

import ssl
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

_TLS: Final = "tls"  # key in scope["extensions"], given by ASGI's TLS extension
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
        subject: Distinguished name in the form of RFC 4514, the most specific part first.
        common_names: Common names of the subject.
        dns, uris, emails: Subject alternative names.
        issuer: Distinguished name of the authority, in the form of `subject`.
        serial: Serial number in hexadecimal digits.
        not_after: End of the validity, in seconds since the epoch.
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
    """Return the client of a connection; None without TLS, or without a verified certificate."""
    if connection is None or connection.context.verify_mode is ssl.CERT_NONE:
        return None
    certificate = connection.getpeercert()
    return peer_from(certificate) if certificate else None


def extension(peer: Peer) -> dict[str, dict[object, object]]:
    """Return a client as `extensions` of an ASGI scope."""
    return {_TLS: {"client_cert_name": peer.subject, "peer": peer}}


def peer_in(scope: MutableMapping[str, Any]) -> Peer | None:
    """Return the verified client of a request; None if it has no certificate."""
    peer = scope.get("extensions", {}).get(_TLS, {}).get("peer")
    return peer if isinstance(peer, Peer) else None


def peer_from(certificate: Mapping[str, Any]) -> Peer:
    """Return the client of a certificate in the form of `getpeercert`."""
    names: dict[str, list[str]] = {}
    for kind, name in certificate.get("subjectAltName", ()):
        names.setdefault(kind, []).append(str(name))
    return Peer(
        subject=_dn(certificate.get("subject", ())),
        common_names=tuple(v for rdn in certificate.get("subject", ()) for k, v in rdn if k == "commonName"),
        dns=tuple(names.get("DNS", ())),
        uris=tuple(names.get("URI", ())),
        emails=tuple(names.get("email", ())),
        issuer=_dn(certificate.get("issuer", ())),
        serial=str(certificate.get("serialNumber", "")),
        not_after=float(ssl.cert_time_to_seconds(certificate["notAfter"]))
        if "notAfter" in certificate
        else 0.0,
    )


def _dn(parts: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ",".join("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in rdn) for rdn in reversed(parts))


def _escaped(value: str) -> str:
    """Return a value in the form of RFC 4514, section 2.4, so that it cannot be read as several parts."""
    text = "".join(f"\\{c}" if c in '"+,;<>\\=' else f"\\{ord(c):02x}" if ord(c) < 0x20 else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and not text.endswith("\\ ") else text
