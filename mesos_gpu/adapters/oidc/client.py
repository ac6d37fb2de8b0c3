"""Registration of the scheduler and the command line as clients of an OpenID issuer."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

SCOPES: Final = ("openid", "profile", "email")


class TokenKind(Enum):
    """Kind of token that the command line sends to the scheduler."""

    ID = "id_token"
    ACCESS = "access_token"


@dataclass(frozen=True, slots=True)
class Client:
    """Clients of an issuer that this scheduler uses.

    Attributes:
        id: Client id of the scheduler, for logins in a browser.
        secret: Secret of that client; "" for a public client.
        cli_id: Client id of the command line: a public client that may use device logins.
        scopes: Scopes to request.
        shows: Kind of token that the command line sends.
    """

    id: str
    secret: str = field(default="", repr=False)
    cli_id: str = ""
    scopes: tuple[str, ...] = SCOPES
    shows: TokenKind = TokenKind.ID
