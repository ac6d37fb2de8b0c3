"""Types of requests and answers about the tree of queues, and their operations."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from mesos_gpu.api.spec.job_fields import (
    PLAIN_ANSWERED,
    PLAIN_REQUESTED,
    ConstraintAsked,
    Count,
    Hint,
    described,
    like,
)
from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import declare, one_of, says
from mesos_gpu.model import tenancy
from mesos_gpu.model.jobs.fields import NAME, QUEUE, Constraints, Field, Kind, entry
from mesos_gpu.model.queue_plan import PlannedKind
from mesos_gpu.model.tenancy import (
    BUDGET_FIELDS,
    CLASS_FIELDS,
    HOURS_FIELDS,
    IDLE_FIELDS,
    LIMIT_FIELDS,
    MAX_GPUS,
    POOL_FIELDS,
    Fairness,
)
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS
from mesos_gpu.wire.tenancy import document, kinds

_CONFLICT: Final = 409
_Figure = Annotated[float, says(minimum=0, maximum=MAX_GPUS, description="GPUs of cost 1, in thousandths")]
_Seconds = Annotated[float, says(minimum=0, maximum=tenancy.MAX_S)]
_Pool = Annotated[str, like(NAME)]
_Path = Annotated[str, like(QUEUE)]
_User = Annotated[str, says(minLength=1, maxLength=1024)]
_Weight = Annotated[int, says(minimum=0, maximum=1_000_000)]
_Version = Annotated[int, says(minimum=0, maximum=document.MAX_VERSION)]
_Comment = Annotated[str, says(maxLength=document.MAX_COMMENT)]


class QueueShapeRequest(TypedDict):
    """GPUs that are only of use together: this number of nodes, each with this number of free GPUs."""

    nodes: Annotated[int, says(minimum=1, maximum=kinds.MAX_NODES)]
    gpus: Annotated[int, says(minimum=1, maximum=kinds.MAX_GPUS_OF_NODE)]


class QueueShape(TypedDict):
    """GPUs that are only of use together: this number of nodes, each with this number of free GPUs."""

    nodes: int
    gpus: int


class QueueRuntimeRequest(TypedDict, total=False):
    """Time that a job runs before it may be preempted, in seconds: to give a queue its guarantee (reclaim), and to
    divide surplus capacity again (rebalance).
    """

    reclaim: _Seconds | None
    rebalance: _Seconds | None


class QueueRuntime(TypedDict):
    """Time that a job runs before it may be preempted, in seconds."""

    reclaim: float
    rebalance: float


class QueueLimitsRequest(TypedDict, total=False):
    """The most that a user may have at once, and that one job may request."""


class QueueLimits(TypedDict):
    """The most that a user may have at once, and that one job may request."""


class QueueBudgetRequest(TypedDict, total=False):
    """GPU hours by cost that may be used in a period."""


class QueueBudget(TypedDict):
    """GPU hours by cost that may be used in a period."""


class QueueIdleRequest(TypedDict, total=False):
    """Rules for jobs with idle GPUs."""


class QueueIdle(TypedDict):
    """Rules for jobs with idle GPUs."""


class QueuePoolRequest(TypedDict, total=False):
    """A pool: nodes in which guarantees and limits are counted together."""


class QueuePool(TypedDict):
    """A pool: nodes in which guarantees and limits are counted together."""


class QueueClassRequest(TypedDict, total=False):
    """A class: a kind of work with its own rules, which jobs name."""


class QueueClass(TypedDict):
    """A class: a kind of work with its own rules, which jobs name."""


class QueueHoursRequest(TypedDict, total=False):
    """Hours of the week in which some figures of a queue differ."""


class QueueHours(TypedDict):
    """Hours of the week in which some figures of a queue differ; null: the figure does not."""


class QueueSpecRequest(TypedDict, total=False):
    """A queue. A field that is left out is inherited from the queue above it, or has no value."""


class QueueSpec(TypedDict):
    """A queue as it was defined; null: inherited from the queue above it, or without value."""


_Shapes = Annotated[list[QueueShapeRequest], says(minItems=1, maxItems=kinds.MAX_SHAPES)]
_REQUESTED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    **PLAIN_REQUESTED,
    tenancy.PerPool: lambda _: _Figure | Annotated[dict[_Pool, _Figure], says(minProperties=1)],
    tenancy.Guarantees: lambda _: (
        _Figure | _Shapes | Annotated[dict[_Pool, _Figure | _Shapes], says(minProperties=1)]
    ),
    tenancy.Runtimes: lambda _: QueueRuntimeRequest,
    tenancy.Weights: lambda _: Annotated[dict[_User, _Weight], says(maxProperties=kinds.MAX_USERS)],
    tenancy.LimitsByUser: lambda _: Annotated[
        dict[_User, QueueLimitsRequest], says(maxProperties=kinds.MAX_USERS)
    ],
    tenancy.Budgets: lambda _: QueueBudgetRequest,
    tenancy.BudgetsByUser: lambda _: Annotated[
        dict[_User, QueueBudgetRequest], says(maxProperties=kinds.MAX_USERS)
    ],
    tenancy.IdleRules: lambda _: QueueIdleRequest,
    tenancy.GpuHours: lambda _: Annotated[float, says(minimum=0, maximum=kinds.MAX_HOURS)],
    tenancy.Percents: lambda _: Annotated[
        list[Annotated[int, says(minimum=1, maximum=1000)]],
        says(maxItems=20, uniqueItems=True, description="in ascending order"),
    ],
    tenancy.HoursOfWeek: lambda _: Annotated[list[QueueHoursRequest], says(maxItems=kinds.MAX_HOURS_OF_WEEK)],
    Constraints: lambda _: Annotated[list[ConstraintAsked], says(maxItems=MAX_CONSTRAINTS)],
    tenancy.Names: lambda kind: Annotated[
        list[Annotated[str, like(kind.pattern)]], says(maxItems=kinds.MAX_NAMES, uniqueItems=True)
    ],
}
_FigureShown = float | dict[str, float] | None
_OwedShown = float | list[QueueShape]
_ANSWERED: Final[Mapping[type[Kind], Callable[[Any], Hint]]] = {
    **PLAIN_ANSWERED,
    tenancy.PerPool: lambda _: _FigureShown,
    tenancy.Guarantees: lambda _: _OwedShown | dict[str, _OwedShown] | None,
    tenancy.Runtimes: lambda _: QueueRuntime,
    tenancy.Weights: lambda _: dict[str, int],
    tenancy.LimitsByUser: lambda _: dict[str, QueueLimits],
    tenancy.Budgets: lambda _: QueueBudget,
    tenancy.BudgetsByUser: lambda _: dict[str, QueueBudget],
    tenancy.IdleRules: lambda _: QueueIdle,
    tenancy.GpuHours: lambda _: float,
    tenancy.Percents: lambda _: list[int],
    tenancy.Names: lambda _: list[str],
    tenancy.HoursOfWeek: lambda _: list[QueueHours],
    Constraints: lambda _: list[list[str]],
}


def requested(fields: tuple[Field, ...]) -> dict[str, Hint]:
    """Return the types of a request's declared fields by key; each may be null."""
    return {field.key: described(field, entry(_REQUESTED, field.kind)(field.kind)) | None for field in fields}


def answered(fields: tuple[Field, ...]) -> dict[str, Hint]:
    """Return the types of an answer's declared fields by key; null marks fields without value."""
    hints = {field.key: (field, entry(_ANSWERED, field.kind)(field.kind)) for field in fields}
    return {key: hint | None if field.default in (None, "") else hint for key, (field, hint) in hints.items()}


for _asked, _shown, _fields in (
    (QueueLimitsRequest, QueueLimits, LIMIT_FIELDS),
    (QueueBudgetRequest, QueueBudget, BUDGET_FIELDS),
    (QueueIdleRequest, QueueIdle, IDLE_FIELDS),
    (QueuePoolRequest, QueuePool, POOL_FIELDS),
    (QueueHoursRequest, QueueHours, HOURS_FIELDS),
    (QueueClassRequest, QueueClass, CLASS_FIELDS),
    (QueueSpecRequest, QueueSpec, document.SPEC_FIELDS),
):
    declare(_asked, requested(_fields))
    declare(_shown, answered(_fields))
_Models = Annotated[
    dict[_User, Annotated[int, says(minimum=1, maximum=document.MAX_COST)]],
    says(maxProperties=document.MAX_MODELS),
]


class QueuesRequest(TypedDict, total=False):
    """The whole tree of queues. `version` is the version that was read; fields that only answers have are ignored."""

    version: _Version | None
    at: Any
    by: Any
    comment: _Comment | None
    reclaim_at: Any
    fairness: Annotated[str, one_of(*Fairness)] | None
    half_life_s: Annotated[int, says(minimum=60, maximum=10**9, default=604800)] | None
    history_percent: Annotated[int, says(minimum=0, maximum=1000, default=0)] | None
    overbook: Annotated[bool, says(default=False)] | None
    gpu_cost: _Models | None
    pools: Annotated[dict[_Pool, QueuePoolRequest | None], says(maxProperties=document.MAX_POOLS)] | None
    classes: Annotated[dict[_Pool, QueueClassRequest | None], says(maxProperties=document.MAX_CLASSES)] | None
    users: Annotated[dict[_User, QueueLimitsRequest], says(maxProperties=kinds.MAX_USERS)] | None
    queues: Annotated[dict[_Path, QueueSpecRequest | None], says(maxProperties=document.MAX_QUEUES)] | None
    plan: Any
    warnings: Any
    in_force: Any


class PlannedQueue(TypedDict):
    """A queue in a pool before and after a change; null where it does not exist. `if_asked_gpus`: fair share of a
    new queue if all new queues requested everything. `gives_back_gpus`: part of what its jobs hold that would be
    due to other queues. GPUs are counted by cost.
    """

    path: str
    pool: str
    guarantee_before_gpus: float | None
    guarantee_gpus: float | None
    due_before_gpus: float | None
    due_gpus: float | None
    if_asked_gpus: float | None
    held_gpus: float
    pending_gpus: float
    gains_gpus: float
    gives_back_gpus: float


class QueueGiver(TypedDict):
    """Jobs of a queue that would be preempted."""

    queue: str
    jobs: list[str]
    gpus: float


class PlannedReclaim(TypedDict):
    """GPUs that would be reclaimed for a waiting job: whose jobs would be preempted, and when. Assumes that jobs which
    must give GPUs back do so at once."""

    job_id: str
    queue: str
    at: float
    givers: list[QueueGiver]


class PlannedBlock(TypedDict):
    """Work that may start now, and that would wait or be refused after a change. `name`: id of a job or an app, or a
    command; `reason`: why it would wait or be refused.
    """

    kind: Annotated[str, one_of(*PlannedKind)]
    name: str
    queue: str
    reason: str


class QueueChanges(TypedDict):
    """Effects of a change. `borrowers`: running jobs that would no longer be within a guarantee."""

    queues: list[PlannedQueue]
    borrowers: list[str]
    reclaims: list[PlannedReclaim]
    blocks: list[PlannedBlock]


class QueuesPlan(QueueChanges):
    """Effects of a tree of queues as the next version."""

    warnings: list[str]


class NamedQueueRequest(TypedDict, total=False):
    """A queue. `version` is the version of the tree that was read; `path`, `plan` and `warnings` are ignored."""

    version: _Version | None
    path: str | None
    comment: _Comment | None
    plan: Any
    warnings: Any


class NamedQueue(TypedDict):
    """A queue as it was defined; null: inherited from the queue above it, or without value. `version` is the version
    of the tree; `warnings` exist after a change, `plan` after a dry run.
    """

    path: str
    version: Count
    plan: QueueChanges | None
    warnings: list[str]


declare(NamedQueueRequest, requested(document.SPEC_FIELDS))
declare(NamedQueue, answered(document.SPEC_FIELDS))


class QueueFigures(TypedDict):
    """Figures of a queue that hours may change, at a given time; null: without value."""

    guarantee_gpus: _OwedShown | dict[str, _OwedShown] | None
    borrow_limit_gpus: _FigureShown
    lend_limit_gpus: _FigureShown
    limit_gpus: _FigureShown
    weight: int
    band: int


class QueueHoursNow(TypedDict):
    """Figures of queues with hours, as they are from `since` until `until`, and the figures that change then
    (`next`).
    """

    since: float | None
    until: float | None
    queues: dict[str, QueueFigures]
    next: dict[str, QueueFigures]


class Queues(TypedDict):
    """The tree of queues, with visible queues by path. `warnings` exist only after a change, `plan` only after a dry
    run.
    """

    version: Count
    at: float | None
    by: str
    comment: str
    reclaim_at: Annotated[
        float | None, says(description="time from which jobs beyond the new guarantees may be preempted")
    ]
    fairness: str
    half_life_s: int
    history_percent: int
    overbook: bool
    gpu_cost: dict[str, int]
    pools: dict[str, QueuePool]
    classes: dict[str, QueueClass]
    users: dict[str, QueueLimits]
    queues: dict[str, QueueSpec]
    in_force: NotRequired[Annotated[QueueHoursNow | None, says(description="null: no queue has hours")]]
    plan: NotRequired[QueueChanges]
    warnings: NotRequired[list[str]]


class QueueVersion(TypedDict):
    """Summary of a version of the tree of queues."""

    version: Count
    at: float
    by: str
    comment: str
    queues: Annotated[int, says(minimum=0, description="number of queues")]


class QueueVersions(TypedDict):
    """The stored versions of the tree of queues, the newest first."""

    versions: list[QueueVersion]


_EXAMPLE: Final = {
    "version": 0,
    "comment": "two teams",
    "queues": {
        "research": {"guarantee_gpus": 2, "limit_gpus": 64},
        "research/vision": {"guarantee_gpus": [{"nodes": 1, "gpus": 2}], "weight": 2},
        "research/students": {"borrow_limit_gpus": 8, "max_running": 20},
    },
}
_AFTER: Final = in_query(
    "reclaim_after_s",
    {"type": "number", "minimum": 0, "maximum": 1e9},
    "time after which running jobs beyond the new figures may be preempted; without it none is preempted for that",
)
_DRY: Final = in_query(
    "dry_run",
    {"type": "boolean", "default": False},
    "change nothing; report what would be refused, and in `plan` what would change",
)
_CHANGED: Final = (_AFTER, _DRY)
_READ: Final = in_query(
    "version",
    {"type": "integer", "minimum": 0, "maximum": document.MAX_VERSION},
    "version of the tree that was read, unless If-Match has it",
)
_ONE_EXAMPLE: Final = {"version": 3, "guarantee_gpus": 1, "weight": 2}
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/queues"): Operation("show_queues", "Show the tree of queues", {200: Queues}),
    ("PUT", "/v1/queues"): Operation(
        "put_queues",
        "Replace the tree of queues; 409: it changed since it was read, or a removed queue has jobs",
        {200: Queues},
        (_CONFLICT,),
        query=_CHANGED,
        body=QueuesRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/queues/{queue}"): Operation("show_queue_spec", "Show a queue", {200: NamedQueue}),
    ("PUT", "/v1/queues/{queue}"): Operation(
        "put_queue",
        "Create or replace a queue",
        {200: NamedQueue},
        (_CONFLICT,),
        _CHANGED,
        body=NamedQueueRequest,
        example=_ONE_EXAMPLE,
    ),
    ("PATCH", "/v1/queues/{queue}"): Operation(
        "patch_queue",
        "Change fields of a queue; null removes a field",
        {200: NamedQueue},
        (_CONFLICT,),
        _CHANGED,
        body=NamedQueueRequest,
        example={"version": 3, "stop": "hold"},
    ),
    ("DELETE", "/v1/queues/{queue}"): Operation(
        "delete_queue",
        "Delete a queue, and return its definition; 409: it has jobs",
        {200: NamedQueue},
        (_CONFLICT,),
        (*_CHANGED, _READ),
    ),
    ("POST", "/v1/plan/queues"): Operation(
        "plan_queues",
        "Predict what a tree of queues would change, and the fair shares of new queues; nothing is changed",
        {200: QueuesPlan},
        (_CONFLICT,),
        body=QueuesRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/queue-versions"): Operation(
        "list_queue_versions", "List the latest versions of the tree of queues", {200: QueueVersions}
    ),
    ("GET", "/v1/queue-versions/{version}"): Operation(
        "show_queue_version", "Show a version of the tree of queues", {200: Queues}
    ),
}
