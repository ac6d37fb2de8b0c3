"""Built-in roles, which always exist."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.model.access.document import UNLIMITED, AccessDocument, Limits, Role

_SEES: Final = ("gpu:see", "node:see", "queue:see", "cluster:see", "service:see", "plan:see", "booking:see")
VIEWER: Final = Role("viewer", ("job:see", "app:see", "metrics:see", *_SEES))
USER: Final = Role(
    "user",
    (
        "job:run", "job:see:own", "job:read:own", "job:env:own", "job:output:own", "job:kill:own", "job:resize:own",
        "job:checkpoint:own", "job:keep:own", "job:exec:own",
        "app:see", "app:read", "app:output", "app:write", "app:env:own", "app:exec:own", "service:write",
        "token:see:own", "token:create:own", "token:revoke:own", *_SEES,
    ),
)  # fmt: skip
OPERATOR: Final = Role(
    "operator",
    (
        "job:see", "job:read", "job:kill", "job:keep", "job:resize",
        "app:see", "app:read", "gpu:*", "node:*", "task:*", "queue:*",
        "service:see", "plan:see", "cluster:see", "cluster:lead", "metrics:see", "audit:see", "access:see",
        "webhook:see", "webhook:write", "booking:see", "booking:write",
        "token:see:own", "token:create:own", "token:revoke:own",
    ),
    Limits(highest_priority=0),
)  # fmt: skip
ADMIN: Final = Role("admin", ("*",), UNLIMITED)
BUILT_IN: Final[Mapping[str, Role]] = {role.name: role for role in (VIEWER, USER, OPERATOR, ADMIN)}


def roles_of(document: AccessDocument) -> Mapping[str, Role]:
    """Return all roles by name, including built-in roles, which cannot be redefined."""
    return {**{role.name: role for role in document.roles}, **BUILT_IN}
