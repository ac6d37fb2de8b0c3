"""Tokens that this scheduler issues."""

from dataclasses import dataclass, field

from mesos_gpu.model.access.caller import Narrowing


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept: what proves it is a hash of a secret that was shown once. Times: seconds since the epoch.

    Attributes:
        id: Public part.
        name: Whom it proves.
        groups: Of that name when it was made.
        salt: Of the hash, hexadecimal.
        digest: Of salt and secret, hexadecimal.
        created_at: When it was made.
        expires_at: From when on it proves nothing.
        narrowing: What it is good for.
        comment: What it is for.
        created_by: Who made it; another one's tokens are for those who may.
        made_with: Id of the token that it was made with, and ends with; "": another proof.
        used_at: Last use that is known; None: never.
        used_from: Address of that use.
    """

    id: str
    name: str
    salt: str = field(repr=False)
    digest: str = field(repr=False)
    created_at: float
    expires_at: float
    groups: tuple[str, ...] = ()
    narrowing: Narrowing = field(default_factory=Narrowing)
    comment: str = ""
    created_by: str = ""
    made_with: str = ""
    used_at: float | None = None
    used_from: str = ""
