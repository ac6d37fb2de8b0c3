"""Catalogue of all rights.

A right is written `KIND:VERB`, such as `job:kill`. In a role it may end with `:own` (only own objects), or a pattern of
objects, such as `app:write:/shop/*` and `secret:use:team/*`; `job:*` is all rights of a kind, `*` is all rights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

OWN: Final = "own"


class Scope(Enum):
    """Kind of object that a right is for, which decides how bindings narrow it."""

    JOB = "job"  # a job, by its queue and owner
    APP = "app"  # an app, by its path and owner
    TOKEN = "token"  # a token, by the name that it proves
    NAME = "name"  # an object named by a path with slashes, such as secret team/db; narrowed by patterns
    QUEUE = "queue"  # a queue, by its path
    VIEW = "view"  # a view of the cluster, granted by any binding that has the right
    CLUSTER = "cluster"  # the whole cluster, granted only by bindings and proofs for all queues and all apps


@dataclass(frozen=True, slots=True, eq=False)
class Right:
    """A right with a description. Each right is a single object, compared by identity, as decisions look it up
    often."""

    name: str
    scope: Scope
    allows: str

    @property
    def has_own(self) -> bool:
        """Whether the right may be restricted by `:own`."""
        return self.scope in (Scope.JOB, Scope.APP, Scope.TOKEN)

    @property
    def has_pattern(self) -> bool:
        """Whether the right may be restricted by a pattern."""
        return self.scope in (Scope.APP, Scope.NAME, Scope.JOB)


_JOB, _APP, _VIEW, _CLUSTER = Scope.JOB, Scope.APP, Scope.VIEW, Scope.CLUSTER
JOB_RUN: Final = Right("job:run", _JOB, "submit jobs to a queue")
JOB_SEE: Final = Right("job:see", _JOB, "see jobs: their names, owners, states, resources")
JOB_READ: Final = Right("job:read", _JOB, "see what jobs run: commands, images, volumes, labels, messages")
JOB_ENV: Final = Right("job:env", _JOB, "see the values of jobs' environments")
JOB_OUTPUT: Final = Right("job:output", _JOB, "read what jobs print")
JOB_KILL: Final = Right("job:kill", _JOB, "end jobs")
JOB_RESIZE: Final = Right("job:resize", _JOB, "change the shares of running jobs")
JOB_CHECKPOINT: Final = Right("job:checkpoint", _JOB, "report checkpoints of running jobs")
JOB_KEEP: Final = Right("job:keep", _JOB, "protect jobs from being ended for idle GPUs, for a while")
JOB_CONTROL: Final = Right(
    "job:control", _JOB, "run jobs that reach control ports of the cluster, if the operator allows it"
)
JOB_EXEC: Final = Right("job:exec", _JOB, "run commands in running jobs, and copy their files")
APP_SEE: Final = Right("app:see", _APP, "see apps: their names, owners, states, resources")
APP_READ: Final = Right("app:read", _APP, "see what apps run: commands, images, volumes, labels, messages")
APP_ENV: Final = Right("app:env", _APP, "see the values of apps' environments")
APP_OUTPUT: Final = Right("app:output", _APP, "read what apps print")
APP_WRITE: Final = Right(
    "app:write", _APP, "create, change, scale, restart and delete apps, and end their tasks"
)
APP_EXEC: Final = Right("app:exec", _APP, "run commands in running apps, and copy their files")
APP_CONTROL: Final = Right(
    "app:control", _APP, "run apps that reach control ports of the cluster, if the operator allows it"
)
SERVICE_SEE: Final = Right("service:see", _VIEW, "see services and how their traffic is split")
SERVICE_WRITE: Final = Right("service:write", _APP, "change services of the apps")
GPU_SEE: Final = Right("gpu:see", _VIEW, "see GPUs, and which job holds each")
GPU_DRAIN: Final = Right("gpu:drain", _CLUSTER, "take GPUs out of scheduling, and back")
GPU_RESET: Final = Right("gpu:reset", _CLUSTER, "reset GPUs")
NODE_SEE: Final = Right("node:see", _VIEW, "see nodes")
NODE_DRAIN: Final = Right("node:drain", _CLUSTER, "take nodes out of scheduling, and back")
TASK_SEE: Final = Right("task:see", _CLUSTER, "see tasks that the scheduler's state does not know")
TASK_WRITE: Final = Right(
    "task:write", _CLUSTER, "adopt or end tasks that the scheduler's state does not know"
)
QUEUE_SEE: Final = Right("queue:see", Scope.QUEUE, "see queues: their guarantees, limits and use")
QUEUE_WRITE: Final = Right("queue:write", _CLUSTER, "change queues")
PLAN_SEE: Final = Right("plan:see", _VIEW, "compute plans of moves")
CLUSTER_SEE: Final = Right("cluster:see", _VIEW, "see the state of the scheduler")
CLUSTER_LEAD: Final = Right("cluster:lead", _CLUSTER, "make another scheduler the leader")
METRICS_SEE: Final = Right("metrics:see", _VIEW, "read metrics")
ACCESS_SEE: Final = Right("access:see", _CLUSTER, "read roles and bindings, and what a name may do")
ACCESS_WRITE: Final = Right("access:write", _CLUSTER, "change roles and bindings")
TOKEN_SEE: Final = Right("token:see", Scope.TOKEN, "list tokens")
TOKEN_CREATE: Final = Right("token:create", Scope.TOKEN, "create tokens")
TOKEN_REVOKE: Final = Right("token:revoke", Scope.TOKEN, "revoke tokens")
AUDIT_SEE: Final = Right("audit:see", _CLUSTER, "read the audit log")
BOOKING_SEE: Final = Right("booking:see", Scope.QUEUE, "see bookings of queues")
BOOKING_WRITE: Final = Right("booking:write", Scope.QUEUE, "book GPUs for queues, move and cancel bookings")
WEBHOOK_SEE: Final = Right("webhook:see", _CLUSTER, "see webhooks, and events that could not be sent")
WEBHOOK_WRITE: Final = Right("webhook:write", _CLUSTER, "create, change, test and delete webhooks")
SECRET_USE: Final = Right("secret:use", Scope.NAME, "use secrets in jobs and apps")

#: All rights, in the order of their definitions above.
RIGHTS: Final = tuple(right for right in tuple(globals().values()) if isinstance(right, Right))
BY_NAME: Final[Mapping[str, Right]] = {right.name: right for right in RIGHTS}
KINDS: Final = frozenset(name.partition(":")[0] for name in BY_NAME)


@dataclass(frozen=True, slots=True)
class Granted:
    """Rights in one line of a role, with their restriction.

    Attributes:
        rights: Rights that the line names.
        own: Whether only own objects are included.
        pattern: Pattern of objects; "" for all.
    """

    rights: frozenset[Right]
    own: bool = False
    pattern: str = ""


def parse(text: str) -> Granted:
    """Parse one line of a role's rights.

    Raises:
        ValueError: The right does not exist, or cannot be restricted like that; the message says what is possible.
    """
    if text == "*":
        return Granted(frozenset(RIGHTS))
    kind, _, rest = text.partition(":")
    verb, _, narrowed = rest.partition(":")
    if kind not in KINDS:
        raise ValueError(f"{text!r}: no right has the kind {kind!r}; use one of {', '.join(sorted(KINDS))}")
    rights = frozenset(
        right
        for right in RIGHTS
        if right.name == f"{kind}:{verb}" or (verb == "*" and right.name.startswith(f"{kind}:"))
    )
    if not rights:
        verbs = ", ".join(name for name in BY_NAME if name.startswith(f"{kind}:"))
        raise ValueError(f"{text!r}: there is no such right; use one of {verbs}")
    if narrowed == OWN and all(right.has_own for right in rights):
        return Granted(rights, own=True)
    if narrowed not in ("", OWN) and ":" not in narrowed and all(right.has_pattern for right in rights):
        return Granted(rights, pattern=narrowed)
    if narrowed or text.count(":") > 1:
        raise ValueError(f"{text!r}: {kind}:{verb} cannot be restricted by {narrowed!r}; leave that out")
    return Granted(rights)
