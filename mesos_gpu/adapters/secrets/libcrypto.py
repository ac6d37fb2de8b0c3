"""A host's side of HPKE by the libcrypto of its Python, if the package cryptography is not installed.

The suite is that of `envelope`: X25519, HKDF-SHA256, ChaCha20-Poly1305, mode "base" (RFC 9180, sections 4.1, 5.1 and
6.1). All cryptographic operations are done by OpenSSL 3 and Python's hmac; this module only combines them.
"""

import contextlib
import ctypes
import hmac
import os
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from typing import Final

from mesos_gpu.errors import Unavailable

KEY_BYTES: Final = 32  # of private and public keys, and of the key at the start of a message
TAG_BYTES: Final = 16
_X25519: Final = 1034  # NID_X25519, openssl/obj_mac.h
_SET_TAG: Final = 0x11  # EVP_CTRL_AEAD_SET_TAG, openssl/evp.h
_KEM, _SUITE = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"  # RFC 9180, section 7
_FUNCTIONS: Final = {
    "EVP_PKEY_new_raw_private_key": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "EVP_PKEY_new_raw_public_key": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "EVP_PKEY_get_raw_public_key": (c_int, [c_void_p, c_char_p, POINTER(c_size_t)]),
    "EVP_PKEY_free": (None, [c_void_p]),
    "EVP_PKEY_CTX_new": (c_void_p, [c_void_p, c_void_p]),
    "EVP_PKEY_CTX_free": (None, [c_void_p]),
    "EVP_PKEY_derive_init": (c_int, [c_void_p]),
    "EVP_PKEY_derive_set_peer": (c_int, [c_void_p, c_void_p]),
    "EVP_PKEY_derive": (c_int, [c_void_p, c_char_p, POINTER(c_size_t)]),
    "EVP_chacha20_poly1305": (c_void_p, []),
    "EVP_CIPHER_CTX_new": (c_void_p, []),
    "EVP_CIPHER_CTX_free": (None, [c_void_p]),
    "EVP_CIPHER_CTX_ctrl": (c_int, [c_void_p, c_int, c_int, c_char_p]),
    "EVP_DecryptInit_ex": (c_int, [c_void_p, c_void_p, c_void_p, c_char_p, c_char_p]),
    "EVP_DecryptUpdate": (c_int, [c_void_p, c_char_p, POINTER(c_int), c_char_p, c_int]),
    "EVP_DecryptFinal_ex": (c_int, [c_void_p, c_char_p, POINTER(c_int)]),
}


class Refused(ValueError):
    """A key or a message is invalid."""


def new_key() -> bytes:
    """Generate a private key."""
    _library()
    return os.urandom(KEY_BYTES)


def public_of(private: bytes) -> bytes:
    """Return the public key of a private key.

    Raises:
        Unavailable: There is no OpenSSL 3.
        Refused: The private key is invalid.
    """
    library, length = _library(), c_size_t(KEY_BYTES)
    public = ctypes.create_string_buffer(KEY_BYTES)
    with _key("private", private) as key:
        if library.EVP_PKEY_get_raw_public_key(key, public, byref(length)) != 1:
            raise Refused("OpenSSL cannot derive its public key")
    return public.raw


def decrypt(sealed: bytes, private: bytes, info: bytes) -> bytes:
    """Decrypt a message.

    Args:
        sealed: Ephemeral public key, followed by the encrypted data.
        private: Private key of this host.
        info: Purpose of the message.

    Raises:
        Unavailable: There is no OpenSSL 3.
        Refused: The message was encrypted to another key, or for another purpose, or was changed.
    """
    theirs, body = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    if len(body) < TAG_BYTES:
        raise Refused("too short for an encrypted message")
    agreed = _extract(_KEM, b"", b"eae_prk", _exchanged(private, theirs))
    shared = _expand(_KEM, agreed, b"shared_secret", theirs + public_of(private), 32)
    context = b"\0" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
    secret = _extract(_SUITE, shared, b"secret", b"")
    key, nonce = (
        _expand(_SUITE, secret, label, context, length)
        for label, length in ((b"key", 32), (b"base_nonce", 12))
    )
    return _opened(body[:-TAG_BYTES], body[-TAG_BYTES:], key, nonce)


def _extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """Return HKDF's expansion to at most one block of SHA-256."""
    text = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, text + b"\x01", "sha256")[:length]


def _exchanged(private: bytes, public: bytes) -> bytes:
    """Return the X25519 shared secret. OpenSSL refuses points of small order, as RFC 9180 requires in section 7.1.4."""
    library, length = _library(), c_size_t(KEY_BYTES)
    secret = ctypes.create_string_buffer(KEY_BYTES)
    with _key("private", private) as mine, _key("public", public) as theirs:
        context = library.EVP_PKEY_CTX_new(mine, None)
        try:
            done = (
                context
                and library.EVP_PKEY_derive_init(context) == 1
                and library.EVP_PKEY_derive_set_peer(context, theirs) == 1
                and library.EVP_PKEY_derive(context, secret, byref(length)) == 1
            )
        finally:
            library.EVP_PKEY_CTX_free(context)
    if not done or length.value != KEY_BYTES:
        raise Refused("the message does not begin with a valid key")
    return secret.raw


def _opened(body: bytes, tag: bytes, key: bytes, nonce: bytes) -> bytes:
    """Decrypt by ChaCha20-Poly1305; nothing is returned unless the tag is right."""
    library, length = _library(), c_int(0)
    plain = ctypes.create_string_buffer(len(body) + 1)
    context = library.EVP_CIPHER_CTX_new()
    try:
        done = (
            context
            and library.EVP_DecryptInit_ex(context, library.EVP_chacha20_poly1305(), None, key, nonce) == 1
            and library.EVP_CIPHER_CTX_ctrl(context, _SET_TAG, len(tag), tag) == 1
            and library.EVP_DecryptUpdate(context, plain, byref(length), body, len(body)) == 1
            and library.EVP_DecryptFinal_ex(context, None, byref(c_int(0))) == 1
        )
    finally:
        library.EVP_CIPHER_CTX_free(context)
    if not done or length.value != len(body):
        raise Refused("it was encrypted to another key, or for another purpose, or was changed")
    return plain.raw[: length.value]


@contextlib.contextmanager
def _key(kind: str, raw: bytes) -> Iterator[int]:
    library = _library()
    make = getattr(library, f"EVP_PKEY_new_raw_{kind}_key")
    key = make(_X25519, None, raw, len(raw)) if len(raw) == KEY_BYTES else None
    if not key:
        raise Refused(f"not a {kind} key of X25519")
    try:
        yield key
    finally:
        library.EVP_PKEY_free(key)


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcrypto.so.3")
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise Unavailable(
            f"secrets cannot be decrypted on this host, without the package cryptography and OpenSSL 3: {error}",
            remedy="install libssl3, or the package cryptography for the executors' Python",
        ) from error
    return library
