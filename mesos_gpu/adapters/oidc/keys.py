"""Public keys of an issuer (RFC 7517), and verification of signatures."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from mesos_gpu.access.jws import ALGORITHMS, MAX_KEY_ID, Header
from mesos_gpu.adapters.oidc.fetching import IssuerError

MAX_KEYS: Final = 64
MIN_BITS, MAX_BITS = 2048, 8192  # of RSA
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA: Final = frozenset(name for name in ALGORITHMS if name[:2] in ("RS", "PS"))
_ED25519: Final = frozenset({"EdDSA", "Ed25519"})
_READERS: Final[Mapping[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class Key:
    """A key for signatures.

    Attributes:
        key_id: Id at the issuer; None if the key has none.
        algorithms: Algorithms for which it may be used.
        public: The public key itself.
        thumbprint: Digest of the key, independent of its id.
    """

    key_id: str | None
    algorithms: frozenset[str]
    public: PublicKey
    thumbprint: str

    def signed(self, token: str, algorithm: str) -> bytes | None:
        """Return the payload of a token; None if this key did not sign it."""
        try:
            payload: bytes = _JWS.decode(token, self.public, algorithms=[algorithm])
        except jwt.InvalidTokenError:
            return None
        return payload


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of an issuer."""

    each: tuple[Key, ...]

    def find(self, header: Header) -> Key | None:
        """Return the key that a header names, or else the only key for its algorithm; None without a match."""
        fit = [key for key in self.each if header.algorithm in key.algorithms]
        if header.key_id is not None:
            fit = [key for key in fit if key.key_id == header.key_id]
        return fit[0] if len(fit) == 1 else None

    def has(self, thumbprint: str) -> bool:
        """Return whether a key is still among these."""
        return any(key.thumbprint == thumbprint for key in self.each)


_JWS: Final = jwt.PyJWS(algorithms=list(ALGORITHMS))
_JWS.register_algorithm("Ed25519", OKPAlgorithm())  # `parse` drops keys of other curves


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse(body: bytes) -> Keys:
    """Parse an issuer's keys; keys for other purposes than signatures, and weak keys, are dropped.

    Raises:
        IssuerError: The document is no list of keys, or no key remains.
    """
    try:
        entries = msgspec.json.decode(body, type=_Document).keys
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise IssuerError("the issuer's key document is invalid", remedy="check the issuer") from error
    if len(entries) > MAX_KEYS:
        raise IssuerError(f"the issuer has more than {MAX_KEYS} keys", remedy="check the issuer")
    keys = tuple(_distinct(key for entry in entries if (key := _key(entry)) is not None))
    if not keys:
        raise IssuerError("the issuer has no key of a supported kind and strength", remedy="check the issuer")
    return Keys(keys)


def _distinct(keys: Iterable[Key]) -> list[Key]:
    return list({(key.key_id, key.thumbprint): key for key in keys}.values())


def _key(entry: Mapping[str, Any]) -> Key | None:
    """Return the key of an entry (JWK); None if it is not usable for signatures."""
    reader, key_id, use, operations = (entry.get(name) for name in ("kty", "kid", "use", "key_ops"))
    if not isinstance(reader, str) or reader not in _READERS or use not in (None, "sig") or "d" in entry:
        return None
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID):
        return None
    try:
        public = _READERS[reader].from_jwk(dict(entry))
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    algorithms = _algorithms(public)
    if entry.get("alg") is not None:
        algorithms &= {entry["alg"]} if isinstance(entry["alg"], str) else set()
    return Key(key_id, algorithms, public, _thumbprint(public)) if algorithms else None


def _algorithms(public: object) -> frozenset[str]:
    """Return the algorithms for which a key is strong enough; empty if none."""
    if isinstance(public, RSAPublicKey):
        is_good = MIN_BITS <= public.key_size <= MAX_BITS and public.public_numbers().e < 1 << 33
        return _RSA if is_good else frozenset()
    if isinstance(public, EllipticCurvePublicKey):
        algorithm = _CURVES.get(public.curve.name)
        return frozenset({algorithm}) if algorithm else frozenset()
    return _ED25519 if isinstance(public, Ed25519PublicKey) else frozenset()


def _thumbprint(public: PublicKey) -> str:
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()[:16]
