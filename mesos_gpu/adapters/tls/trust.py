"""TLS contexts of clients: trusted authorities, and an own certificate. Verification cannot be turned off."""

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration

#: Ciphers of TLS 1.2 with forward secrecy and AEAD; those of 1.3 all have both.
MODERN: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM"

#: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
OTHER_NAME: Final = frozenset({62, 64})
#: Errors when the other side ends the connection in a handshake; which of them depends on the version of OpenSSL.
ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
#: OpenSSL's reasons for an answer that is not TLS.
PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


@dataclass(frozen=True, slots=True)
class Trust:
    """Trusted authorities and own certificate of a TLS client.

    Attributes:
        cacert: PEM file of trusted authorities; None for those of this host.
        cert: PEM file of the client's own certificate; None if it has none.
        key: PEM file of the key of `cert`; None if the key is in that file.
    """

    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None


def client_context(trust: Trust) -> ssl.SSLContext:
    """Return a context that verifies chain and name, with TLS 1.2 or later.

    Raises:
        BadConfiguration: A file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name by default
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(MODERN)
    if trust.cacert is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, trust.cacert, "authorities")
        # A listed certificate is trusted also if it is not a root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trust.cert is not None:
        load_certificate(context, trust.cert, trust.key or trust.cert)
    elif trust.key is not None:
        raise BadConfiguration(
            f"{trust.key}: a key without a certificate", remedy="give the certificate, too"
        )
    return context


def load_authorities(context: ssl.SSLContext, path: Path, what: str) -> None:
    """Load the authorities of a file.

    Raises:
        BadConfiguration: The file cannot be read, or has no certificates.
    """
    before = context.cert_store_stats()["x509"]
    try:
        context.load_verify_locations(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        raise unusable(path, what, error) from error
    if context.cert_store_stats()["x509"] == before:
        raise BadConfiguration(
            f"{path}: the file has no certificates of {what}", remedy="give a file of PEM certificates"
        )


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a certificate, its chain and its key.

    Raises:
        BadConfiguration: A file cannot be read, the key is encrypted, or certificate and key do not match.
    """
    try:
        context.load_cert_chain(certificate, key, password=partial(_refuse_to_ask, key))
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) and key == certificate and b"PRIVATE KEY-" not in key.read_bytes():
            remedy = "give the file of its key, too (--key, MESOS_GPU_KEY)"
            raise BadConfiguration(f"{certificate} has no key", remedy=remedy) from error
        raise unusable(certificate, f"certificate with the key {key}", error) from error


def unusable(path: Path, what: str, error: OSError) -> BadConfiguration:
    """Return the error for a file that cannot be used."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            why, remedy = "certificate and key do not match", "give the key of this certificate"
        else:
            why, remedy = f"not readable as PEM ({error.reason or error})", "write it as PEM"
    else:
        why, remedy = error.strerror or repr(error), "give files that this user can read"
    return BadConfiguration(f"{path}: {what}: {why}", remedy=remedy)


def _refuse_to_ask(key: Path) -> str:
    """Raise an error instead of OpenSSL's prompt for a password at the terminal."""
    raise BadConfiguration(
        f"{key}: the key is encrypted, and its password cannot be entered here",
        remedy=f"decrypt it into a file that only its owner may read: openssl pkey -in {key} -out NEW",
    )
