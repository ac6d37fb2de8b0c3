"""Checks of an issuer's claims, and the name and groups that they prove; pure functions.

Implements OpenID Connect Core 1.0, section 3.1.3.7, and RFC 9068, section 4, as far as they apply. The caller must have
verified the signature.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.access.proofs import WrongProof, may_be_name

MAX_GROUPS: Final = 256
MAX_AUDIENCES: Final = 32
SKEW_S: Final = 60.0
MAX_S: Final = 86_400.0
_SETTINGS: Final = "compare the token with the scheduler's --oidc options"

Claims = Mapping[str, object]


class NameClaim(Enum):
    """Claim that has the name."""

    USERNAME = "preferred_username"
    EMAIL = "email"  # only if the issuer has verified it
    SUBJECT = "sub"


@dataclass(frozen=True, slots=True)
class Rules:
    """Conditions on claims, and rules to derive name and groups.

    Attributes:
        issuer: Required value of `iss`, compared character by character.
        audiences: Accepted values of `aud`.
        parties: Additional clients to which tokens may have been issued (`azp`).
        name: Claim that has the name.
        name_prefix: Prefix of resulting names, which keeps them distinct from names of other proofs.
        groups: Claim that has the groups; "" for no groups.
        groups_prefix: Prefix of resulting groups.
        required: Required values of further claims.
        skew_s: Tolerated difference of the issuer's clock.
        longest_s: Longest accepted lifetime of a token, from its issue.
    """

    issuer: str
    audiences: frozenset[str]
    parties: frozenset[str] = frozenset()
    name: NameClaim = NameClaim.USERNAME
    name_prefix: str = ""
    groups: str = "groups"
    groups_prefix: str = ""
    required: Mapping[str, str] = field(default_factory=dict)
    skew_s: float = SKEW_S
    longest_s: float = MAX_S


@dataclass(frozen=True, slots=True)
class ProvedIdentity:
    """Name and groups that claims prove.

    Attributes:
        name: Name with the prefix.
        groups: Groups with their prefix.
        until: Time of expiry, including the tolerance, seconds since the epoch.
    """

    name: str
    groups: frozenset[str]
    until: float


def judge(claims: Claims, rules: Rules, now: float) -> ProvedIdentity:
    """Return the name, groups and expiry that claims prove at a time in seconds since the epoch.

    Raises:
        WrongProof: The claims prove nothing, for the first reason found. It does not count as a guess, as the issuer
                has signed the claims.
    """
    _check_issuer(claims, rules)
    _check_audience(claims, rules)
    until = _check_times(claims, rules, now)
    _check_required(claims, rules)
    return ProvedIdentity(_name_of(claims, rules), _groups_of(claims, rules), until)


def claimed(claims: Claims, rules: Rules) -> str:
    """Return the name that claims would prove, for display if they are refused; "" without such a name."""
    value = claims.get(rules.name.value)
    return rules.name_prefix + value if isinstance(value, str) else ""


def _wrong(what: str, *, remedy: str = _SETTINGS) -> WrongProof:
    return WrongProof(what, guessed=False, remedy=remedy)


def _check_issuer(claims: Claims, rules: Rules) -> None:
    if claims.get("iss") != rules.issuer:
        raise _wrong("the token has another issuer (iss)")


def _check_audience(claims: Claims, rules: Rules) -> None:
    audiences = _texts(claims.get("aud"), MAX_AUDIENCES)
    if not audiences or rules.audiences.isdisjoint(audiences):
        raise _wrong("the token is for another audience (aud)")
    party = claims.get("azp")
    if party is None and len(audiences) > 1 and not rules.audiences.issuperset(audiences):
        raise _wrong(
            "the token is for several audiences, but does not say which of them it was issued to (azp)"
        )
    accepted = rules.audiences | rules.parties
    if party is not None and not (isinstance(party, str) and party in accepted):
        raise _wrong("the token was issued to a client that is not accepted here (azp)")


def _check_times(claims: Claims, rules: Rules, now: float) -> float:
    issued, expires = _time_of(claims, "iat"), _time_of(claims, "exp")
    begins = _time_of(claims, "nbf") if "nbf" in claims else issued
    if expires - issued > rules.longest_s:
        raise _wrong(f"the token is valid for longer than the allowed {rules.longest_s:g} s")
    if max(begins, issued) > now + rules.skew_s:
        raise _wrong(
            "the token is not valid yet", remedy="compare the clocks of the issuer and the scheduler"
        )
    until = expires + rules.skew_s
    if now >= until:
        raise _wrong("the token has expired", remedy="log in again: mesos-gpu login")
    return until


def _time_of(claims: Claims, name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(f"the token has no number as time in its claim {name}")
    if not math.isfinite(value) or not 0 <= value < 1e11:
        raise _wrong(f"the token has an impossible time in its claim {name}")
    return float(value)


def _check_required(claims: Claims, rules: Rules) -> None:
    for name, value in rules.required.items():
        if claims.get(name) != value:
            raise _wrong(f"the token does not have the required value in its claim {name}")


def _name_of(claims: Claims, rules: Rules) -> str:
    claim = rules.name.value
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise _wrong(
            f"the token has no name in its claim {claim}",
            remedy=f"have the issuer add {claim} to the token itself, or choose another claim with --oidc-name-claim",
        )
    if rules.name is NameClaim.EMAIL and claims.get("email_verified") is not True:
        raise _wrong("the issuer has not verified the token's email address")
    name = rules.name_prefix + value
    if not may_be_name(value) or not may_be_name(name):
        raise _wrong(f"the token's claim {claim} has no valid name")
    return name


def _groups_of(claims: Claims, rules: Rules) -> frozenset[str]:
    if not rules.groups or claims.get(rules.groups) is None:
        return frozenset()
    groups = _texts(claims[rules.groups], MAX_GROUPS)
    if groups is None:
        raise _wrong(
            f"the token's claim {rules.groups} is not a list of up to {MAX_GROUPS} names",
            remedy="have the issuer list only the groups that are used here",
        )
    named = [rules.groups_prefix + group for group in groups]
    if not all(may_be_name(group) for group in named):
        raise _wrong(f"the token's claim {rules.groups} has an invalid group name")
    return frozenset(named)


def _texts(value: object, most: int) -> list[str] | None:
    """Return a text, or a list of at most `most` texts, as a list; None for any other value."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or len(value) > most:
        return None
    texts = [item for item in value if isinstance(item, str)]
    return texts if len(texts) == len(value) else None
