"""HPKE by the package cryptography, for both sides."""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def new_key() -> bytes:
    """Generate a private key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(private: bytes) -> bytes:
    """Return the public key of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def encrypt(body: bytes, public: bytes, info: bytes) -> bytes:
    """Encrypt `body` to a public key, for the purpose `info`.

    Raises:
        ValueError: The public key is invalid.
    """
    return _SUITE.encrypt(body, X25519PublicKey.from_public_bytes(public), info)


def decrypt(sealed: bytes, private: bytes, info: bytes) -> bytes:
    """Decrypt a message to a private key, for the purpose `info`.

    Raises:
        ValueError: The message was encrypted to another key, or for another purpose, or was changed.
    """
    try:
        return _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(private), info)
    except InvalidTag as error:
        raise ValueError("its tag is wrong") from error
