"""What an issuer knows this scheduler as."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

SCOPES: Final = ("openid", "profile", "email")


class Shows(Enum):
    """Which of an issuer's tokens the command line shows to the scheduler."""

    ID = "id_token"
    ACCESS = "access_token"


@dataclass(frozen=True, slots=True)
class Client:
    """A client of an issuer.

    Attributes:
        id: Of the scheduler, for browsers.
        secret: Of that; "": it is a public client.
        cli_id: Of the command line: a public client that may log in by device.
        scopes: What is asked for.
        shows: What the command line sends then.
    """

    id: str
    secret: str = field(default="", repr=False)
    cli_id: str = ""
    scopes: tuple[str, ...] = SCOPES
    shows: Shows = Shows.ID
