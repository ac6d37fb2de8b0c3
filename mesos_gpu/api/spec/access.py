"""What /v1 takes and answers about who may do what, and about tokens: as types, and its operations."""

from collections.abc import Mapping
from typing import Annotated, Final, NotRequired, TypedDict

from mesos_gpu.access.rights import BY_NAME, Scope
from mesos_gpu.api.spec.job_fields import Count, like
from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.access.document import Shared
from mesos_gpu.model.jobs.fields import QUEUE, USER
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY
from mesos_gpu.wire.access import document, fields
from mesos_gpu.wire.access import token as tokens

_CONFLICT: Final = 409
_RIGHTS: Final = "as `job:run`, `job:kill:own`, `app:write:/shop/*`, `gpu:*`, `*`"

_Pattern = Annotated[str, says(minLength=1, maxLength=fields.MAX_PATTERN)]
_Name = Annotated[str, says(minLength=1, maxLength=fields.MAX_NAME_LENGTH)]
_Names = Annotated[list[_Name], says(maxItems=document.MAX_WHO, uniqueItems=True)]
_Rights = Annotated[list[_Pattern], says(maxItems=fields.MAX_RIGHTS, uniqueItems=True, description=_RIGHTS)]
_Patterns = Annotated[list[_Pattern], says(maxItems=fields.MAX_PATTERNS, uniqueItems=True)]
_Priority = Annotated[int, says(minimum=-HIGHEST_PRIORITY, maximum=HIGHEST_PRIORITY)]
_Comment = Annotated[str, says(maxLength=fields.MAX_COMMENT)]
_Line = Annotated[str, says(maxLength=fields.MAX_PATTERN)]
_Version = Annotated[int, says(minimum=0, maximum=document.MAX_VERSION)]
_RoleName = Annotated[str, like(document.ROLE_NAME)]
_Queue = Annotated[str, like(QUEUE)]
_Shared = Annotated[list[Annotated[str, one_of(*Shared)]], says(description="of each other's jobs")]
_User = Annotated[str, like(USER)]


# --- requests


class LimitsRequest(TypedDict, total=False):
    """What jobs and apps of who has the role may ask for. Of several roles, each field's widest counts."""

    users: Annotated[list[_Pattern], says(maxItems=fields.MAX_PATTERNS, description="Unix users")] | None
    images: _Patterns | None
    volumes: (
        Annotated[list[str], says(maxItems=fields.MAX_PATTERNS, description="directories; *: all")] | None
    )
    highest_priority: _Priority | None
    must_be_preemptible: bool | None


class RoleRequest(TypedDict):
    """Rights by a name."""

    name: _RoleName
    rights: _Rights
    limits: NotRequired[LimitsRequest | None]


class BindingRequest(TypedDict, total=False):
    """Who has which roles, for which queues and apps (without them: all). Names are exact, `*` is everybody who has
    one."""

    names: _Names | None
    groups: _Names | None
    roles: Annotated[list[str], says(maxItems=document.MAX_ROLES, uniqueItems=True)]
    queues: _Patterns | None
    apps: _Patterns | None


class AccessRequest(TypedDict, total=False):
    """Who may do what, as a whole. `version` is the one that was read; `at` and `by` are not looked at."""

    version: _Version | None
    at: float | None
    by: str | None
    comment: _Comment | None
    roles: Annotated[list[RoleRequest], says(maxItems=document.MAX_ROLES)] | None
    bindings: Annotated[list[BindingRequest], says(maxItems=document.MAX_BINDINGS)] | None
    unix_users: Annotated[dict[_Name, _User], says(maxProperties=document.MAX_ENTRIES)] | None
    shares: Annotated[dict[_Queue, _Shared], says(maxProperties=document.MAX_ENTRIES)] | None


class AccessCheckRequest(TypedDict):
    """A question whether a name (without it: who asks) may do something; without queue, app, owner and `about`: for
    all of the cluster."""

    right: Annotated[str, says(enum=[*BY_NAME])]
    name: NotRequired[_Name | None]
    groups: NotRequired[Annotated[list[_Name], says(maxItems=fields.MAX_PATTERNS, uniqueItems=True)] | None]
    queue: NotRequired[_Line | None]
    app: NotRequired[_Line | None]
    owner: NotRequired[_Line | None]
    about: NotRequired[
        Annotated[str, says(maxLength=fields.MAX_PATTERN, description="as a secret's path")] | None
    ]


class TokenRequest(TypedDict, total=False):
    """A token that is asked for. Without rights, queues and apps it is good for what the proof of who asks is."""

    name: Annotated[str, says(maxLength=fields.MAX_NAME_LENGTH, description="default: who asks")] | None
    groups: Annotated[list[_Name], says(maxItems=tokens.MAX_GROUPS, uniqueItems=True)] | None
    rights: (
        Annotated[
            list[_Pattern],
            says(minItems=1, maxItems=fields.MAX_RIGHTS, uniqueItems=True, description=_RIGHTS),
        ]
        | None
    )
    queues: Annotated[list[_Pattern], says(minItems=1, maxItems=fields.MAX_PATTERNS, uniqueItems=True)] | None
    apps: Annotated[list[_Pattern], says(minItems=1, maxItems=fields.MAX_PATTERNS, uniqueItems=True)] | None
    lifetime_s: Annotated[float, says(minimum=tokens.MIN_S, description="default: 30 days")] | None
    comment: _Comment | None


# --- answers


class Limits(TypedDict):
    """What jobs and apps of who has the role may ask for."""

    users: list[str]
    images: list[str]
    volumes: list[str]
    highest_priority: int
    must_be_preemptible: bool


class Role(TypedDict):
    """Rights by a name."""

    name: str
    rights: list[str]
    limits: Limits


class Binding(TypedDict):
    """Who has which roles, for which queues and apps."""

    names: list[str]
    groups: list[str]
    roles: list[str]
    queues: list[str]
    apps: list[str]


class Access(TypedDict):
    """Who may do what. `warnings` only after a change."""

    version: Count
    at: float | None
    by: str
    comment: str
    roles: list[Role]
    bindings: list[Binding]
    unix_users: dict[str, str]
    shares: dict[str, list[str]]
    warnings: NotRequired[list[str]]


class AccessVersion(TypedDict):
    """A version of it, in short."""

    version: Count
    at: float
    by: str
    comment: str
    roles: Annotated[int, says(minimum=0, description="how many")]
    bindings: Annotated[int, says(minimum=0, description="how many")]


class AccessVersions(TypedDict):
    """Versions that are kept, the newest first."""

    versions: list[AccessVersion]


class AccessReason(TypedDict):
    """Why something is allowed; `binding`: its place in the document."""

    binding: int | None
    role: str | None
    reason: str


class AccessCheck(TypedDict):
    """Whether something is allowed, by what; or what is missing, and who can give it."""

    name: str
    right: str
    allowed: bool
    by: list[AccessReason]
    missing: str | None
    remedy: str | None


class Right(TypedDict):
    """A right; `own` and `pattern`: whether it may be narrowed so."""

    name: str
    allows: str
    scope: Annotated[str, one_of(*Scope)]
    own: bool
    pattern: bool


class AccessRights(TypedDict):
    """All rights, and the roles that are always there."""

    rights: list[Right]
    roles: list[Role]


class Token(TypedDict):
    """A token, without what proves it. `made_with`: the token that it ends with."""

    id: str
    name: str
    groups: list[str]
    rights: list[str]
    queues: list[str]
    apps: list[str]
    comment: str
    created_at: float
    created_by: str
    made_with: str | None
    expires_at: float
    used_at: float | None
    used_from: str | None


class Tokens(TypedDict):
    """Tokens that one may see, the newest first."""

    tokens: list[Token]


class TokenMade(TypedDict):
    """A new token. `secret` is what proves it: it is never shown again."""

    secret: str
    token: Token
    warnings: list[str]


_EXAMPLE: Final = {
    "version": 0,
    "comment": "the first",
    "roles": [{"name": "shop", "rights": ["app:write:/shop/*"], "limits": {"images": ["registry.corp/*"]}}],
    "bindings": [
        {"names": ["ann"], "roles": ["admin"]},
        {"groups": ["ml"], "roles": ["user"], "queues": ["research"], "apps": ["/research/*"]},
    ],
    "shares": {"research": ["jobs"]},
}
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/access"): Operation("show_access", "Who may do what", {200: Access}),
    ("PUT", "/v1/access"): Operation(
        "put_access",
        "Change who may do what, as a whole; 409: another version was read, or nobody could change it again",
        {200: Access},
        (_CONFLICT,),
        query=(
            in_query(
                "force",
                {"type": "boolean", "default": False},
                "even if nobody but root on the scheduler's host could change it again",
            ),
        ),
        body=AccessRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/access/versions"): Operation(
        "list_access_versions", "Its latest versions", {200: AccessVersions}
    ),
    ("GET", "/v1/access/versions/{version}"): Operation("show_access_version", "As it was", {200: Access}),
    ("POST", "/v1/access/check"): Operation(
        "check_access",
        "Whether a name may do something, and why",
        {200: AccessCheck},
        body=AccessCheckRequest,
        example={"name": "ann", "right": "job:kill", "queue": "research", "owner": "bob"},
    ),
    ("GET", "/v1/access/rights"): Operation("list_rights", "All rights that there are", {200: AccessRights}),
    ("GET", "/v1/tokens"): Operation(
        "list_tokens",
        "Tokens that one may see",
        {200: Tokens},
        query=(in_query("name", {"type": "string"}, "of this name alone"),),
    ),
    ("POST", "/v1/tokens"): Operation(
        "create_token",
        "Make a token; its secret is in the answer, and nowhere else",
        {201: TokenMade},
        (_CONFLICT, 429),
        body=TokenRequest,
        example={"name": "ann", "rights": ["job:*"], "queues": ["research"], "comment": "for CI"},
    ),
    ("GET", "/v1/tokens/{id}"): Operation("show_token", "A token", {200: Token}),
    ("DELETE", "/v1/tokens/{id}"): Operation(
        "revoke_token", "Let a token, and those that were made with it, prove nothing any more", {200: Token}
    ),
}
