"""Types of requests and answers about sessions and the caller's identity, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.access.caller import Proof

_MAX_LENGTH: Final = 16384


class SessionRequest(TypedDict, total=False):
    """Credentials: a name and a password, or a token of this scheduler or of its OpenID Connect issuer."""

    name: Annotated[str, says(maxLength=256)] | None
    password: Annotated[str, says(maxLength=72)] | None
    token: Annotated[str, says(maxLength=_MAX_LENGTH)] | None


class Session(TypedDict):
    """A browser's session; its cookie is in the header Set-Cookie."""

    name: str | None
    until: float | None


class HeldRight(TypedDict):
    """A right of the caller. `words`: what it permits."""

    name: str
    own: bool
    pattern: str | None
    queues: list[str]
    apps: list[str]
    words: str


class Narrowing(TypedDict):
    """Restriction of the caller's credentials: patterns of rights, queues and apps."""

    rights: list[str]
    queues: list[str]
    apps: list[str]


class WhoAmI(TypedDict):
    """The caller. `until`: when the credentials expire, seconds since the epoch."""

    name: Annotated[str | None, says(description="null: no credentials, or authentication is off")]
    groups: list[str]
    proof: Annotated[str, one_of(*Proof)]
    proof_id: Annotated[str | None, says(description="id of the token or session; not secret")]
    address: Annotated[str | None, says(description="null: a Unix socket")]
    session: Annotated[
        bool, says(description="whether the request belongs to a browser's session, which `proof` began")
    ]
    until: float | None
    local_admin: Annotated[
        bool, says(description="root on the scheduler's host, or the scheduler's own user")
    ]
    unix_user: Annotated[str | None, says(description="user that the caller's jobs run as")]
    roles: list[str]
    rights: list[HeldRight]
    narrowing: Narrowing | None
    proofs: Annotated[
        list[str],
        says(description="accepted kinds of credentials in their order; empty: authentication is off"),
    ]
    csrf_token: Annotated[
        str | None,
        says(description="token that changing requests of a session send as X-CSRF-Token"),
    ]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/whoami"): Operation("show_caller", "Show the caller and its rights", {200: WhoAmI}),
    ("POST", "/v1/session"): Operation(
        "begin_session",
        "Log in and begin a browser's session",
        {201: Session},
        (409, 429),
        body=SessionRequest,
        example={"name": "ann", "password": "correct horse battery staple"},
    ),
    ("DELETE", "/v1/session"): Operation("end_session", "Log out and end the session", {200: Session}),
}
