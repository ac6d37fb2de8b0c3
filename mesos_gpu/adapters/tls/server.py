"""TLS context of a server, from files that are checked first."""

import os
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from mesos_gpu.adapters.files import private
from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.adapters.tls.trust import MODERN, load_authorities, load_certificate, unusable
from mesos_gpu.errors import BadConfiguration

_NOT_A_GROUP_S: Final = 0o027  # forbidden mode bits: a group may read the key, such as Debian's ssl-cert
_CHMOD: Final = (
    "give it to root or the scheduler's user, and chmod 600 (or 640, for a dedicated group); "
    "if others could read it, choose a new key"
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of a server's TLS.

    Attributes:
        certificate: PEM file with the server's certificate, followed by intermediate ones.
        key: Private key of the certificate, without a password, not readable by others.
        client_ca: PEM file of the authorities for clients' certificates.
        clients: Whether clients must show a certificate; with `client_ca`.
        crl: PEM file with lists of revoked certificates; None for none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    clients: Clients = Clients.NONE
    crl: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All given files."""
        return tuple(p for p in (self.certificate, self.key, self.client_ca, self.crl) if p is not None)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of the loaded files. Times in seconds since the epoch.

    Attributes:
        subject: Subject of the server's certificate (RFC 4514).
        names: DNS names and addresses of the certificate.
        digest: SHA-256 of the server's certificate, in hexadecimal digits.
        crl_until: Time when the first revocation list expires: then all clients' certificates are refused.
    """

    subject: str
    names: tuple[str, ...]
    not_before: float
    not_after: float
    digest: str = ""
    crl_until: float | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context, with the facts of its files.

    Each load creates a new context, so that sessions of an earlier one, perhaps of a revoked client, cannot be resumed.
    """

    context: ssl.SSLContext
    facts: Facts


def load(files: TlsFiles) -> Loaded:
    """Load the files.

    Raises:
        BadConfiguration: A file cannot be used; the error names it.
    """
    _check_private(files.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(MODERN)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, files.certificate, files.key)
    crl_until = _ask_clients(context, files) if files.client_ca is not None else None
    return Loaded(context, _facts(files.certificate, crl_until))


def _ask_clients(context: ssl.SSLContext, files: TlsFiles) -> float | None:
    assert files.client_ca is not None
    load_authorities(context, files.client_ca, "authorities of clients")
    context.verify_mode = ssl.CERT_REQUIRED if files.clients is Clients.REQUIRED else ssl.CERT_OPTIONAL
    # Resumed sessions would not be verified again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return None if files.crl is None else _refuse_revoked(context, files.client_ca, files.crl)


def _refuse_revoked(context: ssl.SSLContext, authorities: Path, path: Path) -> float | None:
    """Load revocation lists. Return the time until which all of them are valid."""
    lists = _lists(path)
    try:
        context.load_verify_locations(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        raise unusable(path, "lists of revoked certificates", error) from error
    # The authorities' own certificates can be checked only if each authority has a list.
    whole = {revoked.issuer for revoked in lists} >= {
        authority.subject for authority in _certificates(authorities)
    }
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN if whole else ssl.VERIFY_CRL_CHECK_LEAF
    ends = [revoked.next_update_utc for revoked in lists]
    return min((_epoch(end) for end in ends if end is not None), default=None)


def _lists(path: Path) -> list[x509.CertificateRevocationList]:
    begin, end = b"-----BEGIN X509 CRL-----", b"-----END X509 CRL-----"
    parts = [part.partition(end)[0] for part in _read(path).split(begin)[1:]]
    try:
        lists = [x509.load_pem_x509_crl(begin + part + end + b"\n") for part in parts]
    except ValueError as error:
        raise _not_pem(path, "a list of revoked certificates", error) from error
    if not lists:
        raise _not_pem(path, "a list of revoked certificates", None)
    return lists


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise _not_pem(path, "a certificate", error) from error


def _facts(path: Path, crl_until: float | None) -> Facts:
    own = _certificates(path)[0]
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names_ = [
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        ]
    except x509.ExtensionNotFound:
        names_ = []
    begin, until = _epoch(own.not_valid_before_utc), _epoch(own.not_valid_after_utc)
    digest = own.fingerprint(hashes.SHA256()).hex()
    return Facts(own.subject.rfc4514_string(), tuple(names_), begin, until, digest, crl_until)


def _epoch(moment: datetime) -> float:
    return moment.timestamp()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unusable(path, "it is not used", error) from error


def _not_pem(path: Path, what: str, error: ValueError | None) -> BadConfiguration:
    why = f" ({error})" if error else ""
    return BadConfiguration(f"{path}: the file does not contain {what}{why}", remedy="write it as PEM")


def _check_private(key: Path) -> None:
    """Check that the key can be read only by its owner and perhaps a group."""
    try:
        private.check(os.stat(key), _NOT_A_GROUP_S)
    except private.Exposed as error:
        raise BadConfiguration(f"{key}: the key is not used: {error.strerror}", remedy=_CHMOD) from error
    except OSError as error:
        raise unusable(key, "the key", error) from error
