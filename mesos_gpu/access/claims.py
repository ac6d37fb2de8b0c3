"""What an issuer's claims must say before they prove a name, and which name and groups they prove. Pure.

OpenID Connect Core 1.0, section 3.1.3.7, and RFC 9068, section 4, as far as the scheduler is concerned: the signature
has been verified before.
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
_SETTINGS: Final = "see what the scheduler's --oidc options ask for"

Claims = Mapping[str, object]


class NameClaim(Enum):
    """Which claim is the name."""

    USERNAME = "preferred_username"
    EMAIL = "email"  # if the issuer has verified it
    SUBJECT = "sub"


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of claims.

    Attributes:
        issuer: `iss`, compared as it is written.
        audiences: Of which `aud` has one.
        parties: Clients that tokens may have been issued to (`azp`).
        name: Which claim is the name.
        name_prefix: What the name has before it here, so that the issuer can give no name of another proof.
        groups: Which claim has the groups; "": none.
        groups_prefix: What each group has before it here.
        required: Claims and the value that each must have.
        skew_s: How far the issuer's clock may be from ours.
        longest_s: How long a token may live, from when it was issued.
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
class Proved:
    """What claims prove.

    Attributes:
        name: With its prefix.
        groups: With theirs.
        until: Seconds since the epoch, with the skew.
    """

    name: str
    groups: frozenset[str]
    until: float


def judge(claims: Claims, rules: Rules, now: float) -> Proved:
    """What claims prove at a time (seconds since the epoch).

    Raises:
        WrongProof: Nothing: the first reason. None is counted as a guess: the issuer has signed them.
    """
    _check_issuer(claims, rules)
    _check_audience(claims, rules)
    until = _check_times(claims, rules, now)
    _check_required(claims, rules)
    return Proved(_name_of(claims, rules), _groups_of(claims, rules), until)


def claimed(claims: Claims, rules: Rules) -> str:
    """The name that claims would prove, to be shown where they prove none; "": there is no such."""
    value = claims.get(rules.name.value)
    return rules.name_prefix + value if isinstance(value, str) else ""


def _wrong(what: str, *, remedy: str = _SETTINGS) -> WrongProof:
    return WrongProof(what, guessed=False, remedy=remedy)


def _check_issuer(claims: Claims, rules: Rules) -> None:
    if claims.get("iss") != rules.issuer:
        raise _wrong("the token is of another issuer")


def _check_audience(claims: Claims, rules: Rules) -> None:
    audiences = _texts(claims.get("aud"), MAX_AUDIENCES)
    if not audiences or rules.audiences.isdisjoint(audiences):
        raise _wrong("the token is for another audience")
    party = claims.get("azp")
    if party is None and len(audiences) > 1 and not rules.audiences.issuperset(audiences):
        raise _wrong("the token is for several audiences, and does not say which it was issued to (azp)")
    known = rules.audiences | rules.parties
    if party is not None and not (isinstance(party, str) and party in known):
        raise _wrong("the token was issued to a client that is not taken here (azp)")


def _check_times(claims: Claims, rules: Rules, now: float) -> float:
    issued, expires = _time_of(claims, "iat"), _time_of(claims, "exp")
    begins = _time_of(claims, "nbf") if "nbf" in claims else issued
    if expires - issued > rules.longest_s:
        raise _wrong(f"the token lives longer than the {rules.longest_s:g} s that are allowed here")
    if max(begins, issued) > now + rules.skew_s:
        raise _wrong(
            "the token is not valid yet", remedy="look at the clocks of the issuer and the scheduler"
        )
    until = expires + rules.skew_s
    if now >= until:
        raise _wrong("the token has expired", remedy="log in again: mesos-gpu login")
    return until


def _time_of(claims: Claims, name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(f"the token does not say when, as a number ({name})")
    if not math.isfinite(value) or not 0 <= value < 1e11:
        raise _wrong(f"the token names a time that cannot be ({name})")
    return float(value)


def _check_required(claims: Claims, rules: Rules) -> None:
    for name, value in rules.required.items():
        if claims.get(name) != value:
            raise _wrong(f"the token lacks what is asked for in its claim {name}")


def _name_of(claims: Claims, rules: Rules) -> str:
    claim = rules.name.value
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise _wrong(
            f"the token has no name in its claim {claim}",
            remedy=f"have the issuer put {claim} into the token itself, or name another claim: --oidc-name-claim",
        )
    if rules.name is NameClaim.EMAIL and claims.get("email_verified") is not True:
        raise _wrong("the issuer has not verified the token's email address")
    name = rules.name_prefix + value
    if not may_be_name(value) or not may_be_name(name):
        raise _wrong(f"what the token has in its claim {claim} cannot be a name here")
    return name


def _groups_of(claims: Claims, rules: Rules) -> frozenset[str]:
    if not rules.groups or claims.get(rules.groups) is None:
        return frozenset()
    groups = _texts(claims[rules.groups], MAX_GROUPS)
    if groups is None:
        raise _wrong(
            f"the token's claim {rules.groups} is not a list of up to {MAX_GROUPS} names",
            remedy="have the issuer list fewer groups, those alone that are used here",
        )
    named = [rules.groups_prefix + group for group in groups]
    if not all(may_be_name(each) for each in named):
        raise _wrong(f"the token's claim {rules.groups} has what cannot be the name of a group")
    return frozenset(named)


def _texts(value: object, most: int) -> list[str] | None:
    """A text, or a list of up to so many, as a list; None: it is something else."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or len(value) > most:
        return None
    texts = [each for each in value if isinstance(each, str)]
    return texts if len(texts) == len(value) else None
