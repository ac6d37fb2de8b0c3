"""All rights that there are.

A right is written `KIND:VERB`, as `job:kill`. In a role it may end in `:own` (only what is one's own), or in a pattern
of what it is good for, as `app:write:/shop/*` and `secret:use:team/*`; `job:*` is all of a kind, `*` is everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

OWN: Final = "own"


class Scope(Enum):
    """What a right is asked for, and by what a binding narrows it."""

    JOB = "job"  # a job: by its queue and its owner
    APP = "app"  # an app: by its path and its owner
    TOKEN = "token"  # by the name that it proves
    NAME = "name"  # a path with slashes
    QUEUE = "queue"  # a queue: by its path
    VIEW = "view"  # of the cluster, which any binding that has it gives
    CLUSTER = "cluster"  # all of it: only bindings and proofs for all queues and all apps give it


@dataclass(frozen=True, slots=True, eq=False)
class Right:
    """A right, and in words what it allows. There is one object of each: looked up by itself, at every judgement."""

    name: str
    scope: Scope
    allows: str

    @property
    def has_own(self) -> bool:
        """Whether `:own` may be said of it."""
        return self.scope in (Scope.JOB, Scope.APP, Scope.TOKEN)

    @property
    def has_pattern(self) -> bool:
        """Whether a pattern may be said of it."""
        return self.scope in (Scope.APP, Scope.NAME, Scope.JOB)


_JOB, _APP, _VIEW, _CLUSTER = Scope.JOB, Scope.APP, Scope.VIEW, Scope.CLUSTER
JOB_RUN: Final = Right("job:run", _JOB, "submit jobs to a queue")
JOB_SEE: Final = Right("job:see", _JOB, "see jobs: their names, owners, states, resources")
JOB_READ: Final = Right("job:read", _JOB, "see what jobs run: commands, images, volumes, labels, messages")
JOB_ENV: Final = Right("job:env", _JOB, "see the values of jobs' environments")
JOB_OUTPUT: Final = Right("job:output", _JOB, "read what jobs print")
JOB_KILL: Final = Right("job:kill", _JOB, "end jobs")
JOB_RESIZE: Final = Right("job:resize", _JOB, "change the shares of running jobs")
JOB_CHECKPOINT: Final = Right("job:checkpoint", _JOB, "tell of running jobs that their work is kept")
JOB_KEEP: Final = Right("job:keep", _JOB, "keep jobs from being ended for idle GPUs, for a while")
JOB_CONTROL: Final = Right(
    "job:control", _JOB, "run jobs that reach the control plane, where the operator lets them"
)
JOB_EXEC: Final = Right("job:exec", _JOB, "run commands in jobs, as they run, and copy their files")
APP_SEE: Final = Right("app:see", _APP, "see apps: their names, owners, states, resources")
APP_READ: Final = Right("app:read", _APP, "see what apps run: commands, images, volumes, labels, messages")
APP_ENV: Final = Right("app:env", _APP, "see the values of apps' environments")
APP_OUTPUT: Final = Right("app:output", _APP, "read what apps print")
APP_WRITE: Final = Right(
    "app:write", _APP, "create, change, scale, restart and delete apps, and end their tasks"
)
APP_EXEC: Final = Right("app:exec", _APP, "run commands in apps, as they run, and copy their files")
APP_CONTROL: Final = Right(
    "app:control", _APP, "run apps that reach the control plane, where the operator lets them"
)
SERVICE_SEE: Final = Right("service:see", _VIEW, "see services and how their traffic is split")
SERVICE_WRITE: Final = Right("service:write", _APP, "change services whose apps these are")
GPU_SEE: Final = Right("gpu:see", _VIEW, "see GPUs, and which job holds each")
GPU_DRAIN: Final = Right("gpu:drain", _CLUSTER, "take GPUs out of scheduling, and back")
GPU_RESET: Final = Right("gpu:reset", _CLUSTER, "reset GPUs")
NODE_SEE: Final = Right("node:see", _VIEW, "see nodes")
NODE_DRAIN: Final = Right("node:drain", _CLUSTER, "take nodes out of scheduling, and back")
TASK_SEE: Final = Right("task:see", _CLUSTER, "see tasks that the state does not know")
TASK_WRITE: Final = Right("task:write", _CLUSTER, "adopt or end tasks that the state does not know")
QUEUE_SEE: Final = Right(
    "queue:see", Scope.QUEUE, "see queues: what they are guaranteed, their limits and use"
)
QUEUE_WRITE: Final = Right("queue:write", _CLUSTER, "change queues")
PLAN_SEE: Final = Right("plan:see", _VIEW, "ask for plans of moves")
CLUSTER_SEE: Final = Right("cluster:see", _VIEW, "see the state of the scheduler")
CLUSTER_LEAD: Final = Right("cluster:lead", _CLUSTER, "have another scheduler lead")
METRICS_SEE: Final = Right("metrics:see", _VIEW, "read metrics")
ACCESS_SEE: Final = Right("access:see", _CLUSTER, "read roles and bindings, and what a name may do")
ACCESS_WRITE: Final = Right("access:write", _CLUSTER, "change roles and bindings")
TOKEN_SEE: Final = Right("token:see", Scope.TOKEN, "list tokens")
TOKEN_CREATE: Final = Right("token:create", Scope.TOKEN, "make tokens")
TOKEN_REVOKE: Final = Right("token:revoke", Scope.TOKEN, "end tokens")
AUDIT_SEE: Final = Right("audit:see", _CLUSTER, "read the audit log")
BOOKING_SEE: Final = Right("booking:see", Scope.QUEUE, "see bookings of queues")
BOOKING_WRITE: Final = Right("booking:write", Scope.QUEUE, "book GPUs for queues, move and cancel bookings")
WEBHOOK_SEE: Final = Right("webhook:see", _CLUSTER, "see webhooks, and what could not be sent")
WEBHOOK_WRITE: Final = Right("webhook:write", _CLUSTER, "make, change, try and remove webhooks")
SECRET_USE: Final = Right("secret:use", Scope.NAME, "give secrets to jobs and apps")

#: All of them, in the order in which they stand above.
RIGHTS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Right))
BY_NAME: Final[Mapping[str, Right]] = {right.name: right for right in RIGHTS}
KINDS: Final = frozenset(name.partition(":")[0] for name in BY_NAME)


@dataclass(frozen=True, slots=True)
class Granted:
    """A right as a role gives it.

    Attributes:
        rights: Those that the text names.
        own: Whether only for what is one's own.
        pattern: What it is good for; "": everything.
    """

    rights: frozenset[Right]
    own: bool = False
    pattern: str = ""


def parse(text: str) -> Granted:
    """What a role's text gives.

    Raises:
        ValueError: There is no such right, or it can't be narrowed like that; names what can be written.
    """
    if text == "*":
        return Granted(frozenset(RIGHTS))
    kind, _, rest = text.partition(":")
    verb, _, narrowed = rest.partition(":")
    if kind not in KINDS:
        raise ValueError(f"{text!r}: there is no {kind!r} in rights, but {', '.join(sorted(KINDS))}")
    rights = frozenset(
        right
        for right in RIGHTS
        if right.name == f"{kind}:{verb}" or (verb == "*" and right.name.startswith(f"{kind}:"))
    )
    if not rights:
        verbs = ", ".join(name for name in BY_NAME if name.startswith(f"{kind}:"))
        raise ValueError(f"{text!r}: there is no such right, but {verbs}")
    if narrowed == OWN and all(right.has_own for right in rights):
        return Granted(rights, own=True)
    if narrowed not in ("", OWN) and ":" not in narrowed and all(right.has_pattern for right in rights):
        return Granted(rights, pattern=narrowed)
    if narrowed or text.count(":") > 1:
        raise ValueError(f"{text!r}: {kind}:{verb} can't be narrowed by {narrowed!r}; leave that out")
    return Granted(rights)
