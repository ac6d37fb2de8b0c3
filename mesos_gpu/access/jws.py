"""The header of a token that an issuer has signed (RFC 7515), read before anything of the token is believed. Pure."""

from base64 import urlsafe_b64decode
from binascii import Error
from dataclasses import dataclass
from typing import Final

import msgspec

from mesos_gpu.access.proofs import WrongProof

#: Never `none`, and never one whose secret would be a public key (HS256 and the like).
#: Ed25519 is what RFC 9864 calls EdDSA with that curve, the only one that is taken.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
MAX_LENGTH: Final = 16_384  # characters of a token
MAX_KEY_ID: Final = 256
#: Media types (`typ`) of what says who somebody is; a logout token or a proof of possession is none of them.
_TYPES: Final = ("", "jwt", "at+jwt", "application/jwt", "application/at+jwt")


@dataclass(frozen=True, slots=True)
class Header:
    """What a token says of its signature: not believed, but to choose among the issuer's keys. Keys and addresses of
    keys in it (`jwk`, `jku`, `x5c`, `x5u`) are not even read."""

    algorithm: str
    key_id: str | None


class _Said(msgspec.Struct):
    alg: str
    kid: str | None = None
    typ: str = ""
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def is_signed(text: str) -> bool:
    """Whether a text has the form of a signed token: three parts, the first of which begins a JSON object."""
    return text.startswith("ey") and text.count(".") == 2


def header_of(token: str, allowed: frozenset[str]) -> Header:
    """Read a header.

    Raises:
        WrongProof: It has no form that can be understood, or its algorithm is not one of the allowed.
    """
    if len(token) > MAX_LENGTH:
        raise WrongProof(f"the token has more than {MAX_LENGTH} characters", guessed=False)
    try:
        said = msgspec.json.decode(decoded(token.partition(".")[0]), type=_Said)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WrongProof("the token's header is not one of RFC 7515") from error
    if said.crit is not msgspec.UNSET:
        raise WrongProof("the token's header has extensions that are not understood here", guessed=False)
    if said.typ.lower() not in _TYPES:
        raise WrongProof("the token is not of a type that says who somebody is", guessed=False)
    if said.alg not in allowed or said.alg not in ALGORITHMS:
        raise WrongProof("the token is not signed by an algorithm that is taken here")
    if said.kid is not None and len(said.kid) > MAX_KEY_ID:
        raise WrongProof("the token's header is not one of RFC 7515")
    return Header(said.alg, said.kid)


def decoded(part: str) -> bytes:
    """What a part of a token is, of base64url without padding.

    Raises:
        ValueError: It is something else.
    """
    try:
        data = part.encode("ascii")
        if any(byte in b"+/=" for byte in data):
            raise ValueError("not base64url without padding")
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except (UnicodeEncodeError, Error) as error:
        raise ValueError("not base64url") from error
