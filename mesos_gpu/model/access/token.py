"""Access tokens that this scheduler issues."""

from dataclasses import dataclass, field

from mesos_gpu.model.access.caller import Narrowing


@dataclass(frozen=True, slots=True)
class Token:
    """Stored part of an access token: a hash of its secret, which is shown once. Times are seconds since the epoch.

    Attributes:
        id: Public part of the token.
        name: Name that it proves.
        groups: Groups of the name when the token was created.
        salt: Salt of the hash, hexadecimal.
        digest: Hash of salt and secret, hexadecimal.
        created_at: Time of creation.
        expires_at: Time of expiry.
        narrowing: Restriction of the rights.
        comment: Purpose of the token.
        created_by: Name of its creator; creating tokens for others needs a right.
        made_with: Id of the token with which it was created, and with which it ends; "" for another proof.
        used_at: Last known use; None if never used.
        used_from: Address of the last known use.
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
