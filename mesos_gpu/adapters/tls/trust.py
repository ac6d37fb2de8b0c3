"""TLS as a client: whom to believe, and what to show. There is no way to believe everybody."""

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
#: The other side ended the connection in a handshake. Which of the two it is depends on the version of OpenSSL.
ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
#: The reasons of OpenSSL's for an answer that is no TLS.
PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


@dataclass(frozen=True, slots=True)
class Trust:
    """Attributes:
    cacert: File of PEM certificates of authorities; None: those of this host.
    cert: The client's own certificate; None: it has none to show.
    key: Of `cert`; None: the same file.
    """

    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None


def client_context(trust: Trust) -> ssl.SSLContext:
    """Verifies chain and name; TLS 1.2 or later.

    Raises:
        BadConfiguration: A file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies, names as well
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(MODERN)
    if trust.cacert is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, trust.cacert, "authorities")
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # who is named is believed, also below a root
    if trust.cert is not None:
        load_certificate(context, trust.cert, trust.key or trust.cert)
    elif trust.key is not None:
        raise BadConfiguration(
            f"{trust.key}: a key without a certificate", remedy="name the certificate, too"
        )
    return context


def load_authorities(context: ssl.SSLContext, path: Path, what: str) -> None:
    """Take the authorities of a file.

    Raises:
        BadConfiguration: It cannot be read, or has none.
    """
    before = context.cert_store_stats()["x509"]
    try:
        context.load_verify_locations(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        raise unusable(path, what, error) from error
    if context.cert_store_stats()["x509"] == before:
        raise BadConfiguration(
            f"{path}: no certificates of {what} are in it", remedy="name a file of PEM certificates"
        )


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Take a certificate, the chain behind it, and its key.

    Raises:
        BadConfiguration: One cannot be read, the key is encrypted, or the two do not belong together.
    """
    try:
        context.load_cert_chain(certificate, key, password=partial(_refuse_to_ask, key))
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) and key == certificate and b"PRIVATE KEY-" not in key.read_bytes():
            remedy = "name the file of its key, too (--key, MESOS_GPU_KEY)"
            raise BadConfiguration(f"{certificate} has no key", remedy=remedy) from error
        raise unusable(certificate, f"certificate with the key {key}", error) from error


def unusable(path: Path, what: str, error: OSError) -> BadConfiguration:
    """What is wrong with a file, in words."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            why, remedy = "they do not belong together", "name the key that the certificate was made for"
        else:
            why, remedy = f"not PEM that can be read ({error.reason or error})", "write it as PEM"
    else:
        why, remedy = error.strerror or repr(error), "name files that this user can read"
    return BadConfiguration(f"{path}: {what}: {why}", remedy=remedy)


def _refuse_to_ask(key: Path) -> str:
    """Else OpenSSL asks at the terminal, and waits."""
    raise BadConfiguration(
        f"{key}: the key is encrypted, and nobody can be asked for its password",
        remedy=f"decrypt it into a file that only its owner may read: openssl pkey -in {key} -out NEW",
    )
