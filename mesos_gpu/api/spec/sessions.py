"""What /v1 takes and answers about who asks, as types, and its operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.access.caller import Proof

_MAX_LENGTH: Final = 16384


class SessionRequest(TypedDict, total=False):
    """A name and a password, or a token: of this scheduler, or of the issuer that it believes."""

    name: Annotated[str, says(maxLength=256)] | None
    password: Annotated[str, says(maxLength=72)] | None
    token: Annotated[str, says(maxLength=_MAX_LENGTH)] | None


class Session(TypedDict):
    """A browser's session, whose cookie is in the answer's Set-Cookie."""

    name: str | None
    until: float | None


class HeldRight(TypedDict):
    """A right as somebody has it; in words: what that allows."""

    name: str
    own: bool
    pattern: str | None
    queues: list[str]
    apps: list[str]
    words: str


class Narrowing(TypedDict):
    """What a proof is good for, of what its name may do: patterns."""

    rights: list[str]
    queues: list[str]
    apps: list[str]


class WhoAmI(TypedDict):
    """Who asks. `until`: when the proof ends, seconds since the epoch."""

    name: Annotated[str | None, says(description="null: nobody, or nobody is asked")]
    groups: list[str]
    proof: Annotated[str, one_of(*Proof)]
    proof_id: Annotated[str | None, says(description="which token or session; it proves nothing itself")]
    address: Annotated[str | None, says(description="null: a Unix socket")]
    session: Annotated[bool, says(description="whether it is a browser's session, which the proof began")]
    until: float | None
    local_admin: Annotated[
        bool, says(description="root on the scheduler's host, or the scheduler's own user")
    ]
    unix_user: Annotated[str | None, says(description="that its jobs run as")]
    roles: list[str]
    rights: list[HeldRight]
    narrowing: Narrowing | None
    proofs: Annotated[
        list[str], says(description="kinds that are taken, in their order; none: nobody is asked")
    ]
    csrf_token: Annotated[
        str | None,
        says(description="of a session: requests that change something have it as X-CSRF-Token"),
    ]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/whoami"): Operation("show_caller", "Who asks, and what that name may do", {200: WhoAmI}),
    ("POST", "/v1/session"): Operation(
        "begin_session",
        "Log in: begin a browser's session",
        {201: Session},
        (409, 429),
        body=SessionRequest,
        example={"name": "ann", "password": "correct horse battery staple"},
    ),
    ("DELETE", "/v1/session"): Operation("end_session", "Log out", {200: Session}),
}
