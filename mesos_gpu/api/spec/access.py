"""Types of requests and answers about rights and tokens, and their operations."""

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
_Shared = Annotated[
    list[Annotated[str, one_of(*Shared)]],
    says(description="what users of the queue may see of each other's jobs"),
]
_User = Annotated[str, like(USER)]


# --- requests


class LimitsRequest(TypedDict, total=False):
    """Limits of jobs and apps for users with a role. With several roles, the widest value of each field applies."""

    users: Annotated[list[_Pattern], says(maxItems=fields.MAX_PATTERNS, description="Unix users")] | None
    images: _Patterns | None
    volumes: (
        Annotated[list[str], says(maxItems=fields.MAX_PATTERNS, description="directories; *: all")] | None
    )
    highest_priority: _Priority | None
    must_be_preemptible: bool | None


class RoleRequest(TypedDict):
    """A role: a name for a set of rights."""

    name: _RoleName
    rights: _Rights
    limits: NotRequired[LimitsRequest | None]


class BindingRequest(TypedDict, total=False):
    """Assignment of roles to names and groups, for queues and apps (for all if left out). Names are exact; `*`
    stands for every authenticated user.
    """

    names: _Names | None
    groups: _Names | None
    roles: Annotated[list[str], says(maxItems=document.MAX_ROLES, uniqueItems=True)]
    queues: _Patterns | None
    apps: _Patterns | None


class AccessRequest(TypedDict, total=False):
    """The whole access document: who may do what. `version` is the version that was read; `at` and `by` are ignored."""

    version: _Version | None
    at: float | None
    by: str | None
    comment: _Comment | None
    roles: Annotated[list[RoleRequest], says(maxItems=document.MAX_ROLES)] | None
    bindings: Annotated[list[BindingRequest], says(maxItems=document.MAX_BINDINGS)] | None
    unix_users: Annotated[dict[_Name, _User], says(maxProperties=document.MAX_ENTRIES)] | None
    shares: Annotated[dict[_Queue, _Shared], says(maxProperties=document.MAX_ENTRIES)] | None


class AccessCheckRequest(TypedDict):
    """A question whether a name (default: the caller) may do something. Without queue, app, owner and `about` it is
    about the whole cluster.
    """

    right: Annotated[str, says(enum=[*BY_NAME])]
    name: NotRequired[_Name | None]
    groups: NotRequired[Annotated[list[_Name], says(maxItems=fields.MAX_PATTERNS, uniqueItems=True)] | None]
    queue: NotRequired[_Line | None]
    app: NotRequired[_Line | None]
    owner: NotRequired[_Line | None]
    about: NotRequired[
        Annotated[
            str,
            says(maxLength=fields.MAX_PATTERN, description="name of the resource, such as a secret's path"),
        ]
        | None
    ]


class TokenRequest(TypedDict, total=False):
    """A new token. Without rights, queues and apps it permits what the caller's own credentials permit."""

    name: Annotated[str, says(maxLength=fields.MAX_NAME_LENGTH, description="default: the caller")] | None
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
    """Limits of jobs and apps for users with a role."""

    users: list[str]
    images: list[str]
    volumes: list[str]
    highest_priority: int
    must_be_preemptible: bool


class Role(TypedDict):
    """A role: a name for a set of rights."""

    name: str
    rights: list[str]
    limits: Limits


class Binding(TypedDict):
    """Assignment of roles to names and groups, for queues and apps."""

    names: list[str]
    groups: list[str]
    roles: list[str]
    queues: list[str]
    apps: list[str]


class Access(TypedDict):
    """The access document: who may do what. `warnings` exist only after a change."""

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
    """Summary of a version of the access document."""

    version: Count
    at: float
    by: str
    comment: str
    roles: Annotated[int, says(minimum=0, description="number of roles")]
    bindings: Annotated[int, says(minimum=0, description="number of bindings")]


class AccessVersions(TypedDict):
    """The stored versions of the access document, the newest first."""

    versions: list[AccessVersion]


class AccessReason(TypedDict):
    """A reason why something is allowed. `binding`: its index in the document; null if it comes from elsewhere."""

    binding: int | None
    role: str | None
    reason: str


class AccessCheck(TypedDict):
    """Whether something is allowed, and by what; or what is missing, and who can grant it."""

    name: str
    right: str
    allowed: bool
    by: list[AccessReason]
    missing: str | None
    remedy: str | None


class Right(TypedDict):
    """A right. `own` and `pattern`: whether it can be narrowed to own resources, or by a pattern."""

    name: str
    allows: str
    scope: Annotated[str, one_of(*Scope)]
    own: bool
    pattern: bool


class AccessRights(TypedDict):
    """All rights, and the built-in roles."""

    rights: list[Right]
    roles: list[Role]


class Token(TypedDict):
    """A token without its secret. `made_with`: the token that created it, and with which it ends."""

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
    """The visible tokens, the newest first."""

    tokens: list[Token]


class TokenMade(TypedDict):
    """A new token. `secret` is what a request sends to use it; it is never shown again."""

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
    ("GET", "/v1/access"): Operation("show_access", "Show who may do what", {200: Access}),
    ("PUT", "/v1/access"): Operation(
        "put_access",
        "Replace the access document; 409: it changed since it was read, or no one could change it again",
        {200: Access},
        (_CONFLICT,),
        query=(
            in_query(
                "force",
                {"type": "boolean", "default": False},
                "change it even if only root on the scheduler's host could change it again",
            ),
        ),
        body=AccessRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/access/versions"): Operation(
        "list_access_versions", "List the latest versions of the access document", {200: AccessVersions}
    ),
    ("GET", "/v1/access/versions/{version}"): Operation(
        "show_access_version", "Show a version of the access document", {200: Access}
    ),
    ("POST", "/v1/access/check"): Operation(
        "check_access",
        "Check whether a name may do something, and why",
        {200: AccessCheck},
        body=AccessCheckRequest,
        example={"name": "ann", "right": "job:kill", "queue": "research", "owner": "bob"},
    ),
    ("GET", "/v1/access/rights"): Operation(
        "list_rights", "List all rights and built-in roles", {200: AccessRights}
    ),
    ("GET", "/v1/tokens"): Operation(
        "list_tokens",
        "List the tokens that the caller may see",
        {200: Tokens},
        query=(in_query("name", {"type": "string"}, "only tokens of this name"),),
    ),
    ("POST", "/v1/tokens"): Operation(
        "create_token",
        "Create a token; its secret is in this answer only",
        {201: TokenMade},
        (_CONFLICT, 429),
        body=TokenRequest,
        example={"name": "ann", "rights": ["job:*"], "queues": ["research"], "comment": "for CI"},
    ),
    ("GET", "/v1/tokens/{id}"): Operation("show_token", "Show a token", {200: Token}),
    ("DELETE", "/v1/tokens/{id}"): Operation(
        "revoke_token", "Revoke a token, and the tokens that were created with it", {200: Token}
    ),
}
