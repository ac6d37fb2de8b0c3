"""The sender of a request, with its proof of identity."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Proof(Enum):
    """Means by which a name was proved."""

    OPEN = "open"  # nothing: the scheduler does not authenticate
    NONE = "none"  # nothing, although the scheduler authenticates
    SOCKET = "socket"  # credentials of a Unix socket's peer, from the kernel
    TOKEN = "token"  # a token that this scheduler issued
    PASSWORD = "password"  # HTTP basic, checked against a file of hashes
    OIDC = "oidc"  # a token of an OpenID Connect issuer
    CERTIFICATE = "certificate"  # client certificate of mutual TLS
    PROXY = "proxy"  # a header of a trusted proxy


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Restriction of a proof to some of the rights of its name, by the patterns of a binding.

    Attributes:
        rights: Patterns of permitted rights.
        queues: Patterns of queues to which the rights apply.
        apps: Patterns of app paths to which the rights apply.
    """

    rights: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] = ("/*",)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, as far as it is proved.

    Attributes:
        name: Proved name; "" if no name is proved, or if the scheduler does not authenticate.
        groups: Groups of the name, from the proof.
        proof: Means of proof.
        address: Origin of the request; behind a trusted proxy the one that the proxy reports. "" on a Unix socket.
        local_admin: Whether the kernel reports the peer as root, or as the user of the scheduler.
        narrowing: Restriction of the proof; None if it grants all rights of the name.
        until: Time at which the proof expires, seconds since the epoch; None if it does not expire.
        proof_id: Public id of the token or session; never the secret.
        session: Whether a browser session sent the request, which began with `proof`.
        session_since: Begin of the session, seconds since the epoch.
        began_with: Id of the token that began the session, if one did.
    """

    name: str = ""
    groups: frozenset[str] = frozenset()
    proof: Proof = Proof.NONE
    address: str = ""
    local_admin: bool = False
    narrowing: Narrowing | None = field(default=None)
    until: float | None = None
    proof_id: str = ""
    session: bool = False
    session_since: float = 0.0
    began_with: str = ""

    @property
    def token_id(self) -> str:
        """Id of the token that the request depends on, also through a session; "" if none."""
        if self.proof is not Proof.TOKEN:
            return ""
        return self.began_with if self.session else self.proof_id

    @property
    def is_proved(self) -> bool:
        """Whether a name is proved."""
        return bool(self.name) and self.proof not in (Proof.OPEN, Proof.NONE)

    @property
    def shown(self) -> str:
        """The name to show to people."""
        return self.name or ("anybody" if self.proof is Proof.OPEN else "nobody")


NOBODY: Final = Caller()
ANYBODY: Final = Caller(proof=Proof.OPEN)
