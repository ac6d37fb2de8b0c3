"""Authorization by an agent: its access control lists, and the tokens by which its executors authenticate.

The tokens are JSON Web Tokens that Mesos signs with HMAC-SHA256 of OpenSSL 1.0, which the library lacks: Python's
implementation replaces it.
"""

from __future__ import annotations

import ctypes

from mesos_gpu.libmesos.cxx import (
    HMAC_SLOT,
    SHA256_SLOT,
    SOME,
    STRING,
    CallFailed,
    Mesos,
    P,
    string,
    zeros,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_FILE: Final = "file://"
_GENERATOR: Final = "_ZN5mesos14authentication8executor18JWTSecretGeneratorC1ERK" + STRING
_DIGEST: Final = "sha256"
#: unsigned char* HMAC(const EVP_MD*, const void* key, int, const unsigned char* d, size_t, unsigned char*, unsigned*)
_HMAC: Final = ctypes.CFUNCTYPE(P, P, P, ctypes.c_int, P, ctypes.c_size_t, P, P)


def authorizer(lib: Mesos, acls: str) -> int:
    """Create an Authorizer* for access control lists, and install it for libprocess' own endpoints; null without lists.

    Args:
        lib: Loaded library of Mesos.
        acls: Lists as JSON, or file:///PATH of a file with them.

    Raises:
        CallFailed: The lists are invalid.
    """
    if not acls:
        return 0
    if acls.startswith(_FILE):
        with open(acls[len(_FILE) :]) as file:
            acls = file.read()
    # flags::parse<ACLs>(const string&) -> Try<ACLs>: the lists are at offset 8
    parsed = zeros(4096)
    lib[f"_ZN5flags5parseIN5mesos4ACLsEEE3TryIT_5ErrorERK{STRING}"](P(parsed), string(acls))
    if ctypes.c_int.from_address(parsed).value != SOME:
        raise CallFailed("--acls is not a JSON object of access control lists")
    authorizer = lib.attempt("_ZN5mesos10Authorizer6createERKNS_4ACLsE", P(parsed + 8))
    lib.set_authorization(authorizer)
    return authorizer


def tokens(lib: Mesos, path: str) -> int:
    """Create a SecretGenerator* that signs executors' tokens with the key in a file; null without a path.

    Raises:
        CallFailed: The file cannot be read, or is empty.
    """
    if not path:
        return 0
    try:
        with open(path) as file:
            key = file.read()
    except OSError as error:
        raise CallFailed(f"--jwt_secret_key: {error}") from None
    if not key:
        raise CallFailed(f"--jwt_secret_key: {path} is empty")
    lib.fill({HMAC_SLOT: _HMAC(_hmac), SHA256_SLOT: ctypes.CFUNCTYPE(P)(lambda: 1)})
    return lib.new(_GENERATOR, string(key), size=256)


def _hmac(_kind: int, key: int, key_size: int, text: int, text_size: int, out: int, out_size: int) -> int:
    """Compute an HMAC in place of OpenSSL's HMAC(); called from libprocess' threads."""
    import hmac

    digest = hmac.digest(
        ctypes.string_at(key, key_size), ctypes.string_at(text, text_size) if text_size else b"", _DIGEST
    )
    ctypes.memmove(out, digest, len(digest))
    ctypes.c_uint.from_address(out_size).value = len(digest)
    return out
