"""Who sent a request."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Proof(Enum):
    """What a name was proved by."""

    OPEN = "open"  # nothing: this scheduler asks nobody who they are
    NONE = "none"  # nothing, where it is asked for
    SOCKET = "socket"  # the kernel's word for the peer of a Unix socket
    TOKEN = "token"  # one that this scheduler has issued
    PASSWORD = "password"  # HTTP basic, by a file of hashes
    OIDC = "oidc"  # a token of an OpenID Connect issuer
    CERTIFICATE = "certificate"  # of a client, by mutual TLS
    PROXY = "proxy"  # a header of a proxy that is trusted


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a proof is good for, of what its name may do; as the rights and patterns of a binding.

    Attributes:
        rights: Patterns of rights.
        queues: Patterns of queues.
        apps: Patterns of paths of apps.
    """

    rights: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] = ("/*",)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as it was proved.

    Attributes:
        name: "" for nobody, and where nobody is asked.
        groups: Of the name, as the proof says.
        proof: What proved it.
        address: Where the request came from; behind a trusted proxy, what that says. "" on a Unix socket.
        local_admin: Whether the kernel says that it is root, or the user that the scheduler runs as.
        narrowing: None: all that the name may do.
        until: When the proof ends, seconds since the epoch; None: it does not.
        proof_id: Which token or session it was; never the secret itself.
        session: Whether it came by a browser's session, which `proof` began.
        session_since: When that began, seconds since the epoch.
        began_with: Which token, if one began it.
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
        """Which token it goes back to; "": to none."""
        if self.proof is not Proof.TOKEN:
            return ""
        return self.began_with if self.session else self.proof_id

    @property
    def is_proved(self) -> bool:
        """Whether there is a name that something proves."""
        return bool(self.name) and self.proof not in (Proof.OPEN, Proof.NONE)

    @property
    def shown(self) -> str:
        """The name that people are shown."""
        return self.name or ("anybody" if self.proof is Proof.OPEN else "nobody")


NOBODY: Final = Caller()
ANYBODY: Final = Caller(proof=Proof.OPEN)
