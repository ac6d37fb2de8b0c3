"""What /v1 takes and answers about the tree of queues: as types, and its operations."""

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
    """GPUs that are of use only together: so many nodes, each with so many free ones."""

    nodes: Annotated[int, says(minimum=1, maximum=kinds.MAX_NODES)]
    gpus: Annotated[int, says(minimum=1, maximum=kinds.MAX_GPUS_OF_NODE)]


class QueueShape(TypedDict):
    """GPUs that are of use only together."""

    nodes: int
    gpus: int


class QueueRuntimeRequest(TypedDict, total=False):
    """How long a job runs before it may be stopped, in seconds: for what another is owed, and for what is left over."""

    reclaim: _Seconds | None
    rebalance: _Seconds | None


class QueueRuntime(TypedDict):
    """How long a job runs before it may be stopped, in seconds."""

    reclaim: float
    rebalance: float


class QueueLimitsRequest(TypedDict, total=False):
    """The most that a user may have at once, and that one job may ask for."""


class QueueLimits(TypedDict):
    """The most that a user may have at once, and that one job may ask for."""


class QueueBudgetRequest(TypedDict, total=False):
    """GPU hours of cost that may be used in a period."""


class QueueBudget(TypedDict):
    """GPU hours of cost that may be used in a period."""


class QueueIdleRequest(TypedDict, total=False):
    """What becomes of jobs whose GPUs do nothing."""


class QueueIdle(TypedDict):
    """What becomes of jobs whose GPUs do nothing."""


class QueuePoolRequest(TypedDict, total=False):
    """Nodes that are shared out together."""


class QueuePool(TypedDict):
    """Nodes that are shared out together."""


class QueueClassRequest(TypedDict, total=False):
    """A kind of work, which jobs name."""


class QueueClass(TypedDict):
    """A kind of work, which jobs name."""


class QueueHoursRequest(TypedDict, total=False):
    """Hours of the week in which some figures of a queue are others."""


class QueueHours(TypedDict):
    """Hours of the week in which some figures of a queue are others; null: as they are outside of them."""


class QueueSpecRequest(TypedDict, total=False):
    """A queue; what it leaves out is as in the queue above it, or there is none."""


class QueueSpec(TypedDict):
    """A queue as it is written; null: as in the queue above it, or there is none."""


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
        says(maxItems=20, uniqueItems=True, description="rising"),
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
    """What a request may have of declared fields, by key; each may be null."""
    return {field.key: described(field, entry(_REQUESTED, field.kind)(field.kind)) | None for field in fields}


def answered(fields: tuple[Field, ...]) -> dict[str, Hint]:
    """What an answer has of declared fields, by key; null: there is none."""
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
    """The tree of queues, as a whole. `version` is the one that was read; what else is only answered is not looked
    at."""

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
    """A queue in a pool, before a change and after it; null where it is not there. `if_asked_gpus`: what a new queue
    would be due if all new ones asked for everything. `gives_back_gpus`: what of that which its jobs hold others would
    be due. GPUs count by cost."""

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
    """Jobs of a queue that would be stopped."""

    queue: str
    jobs: list[str]
    gpus: float


class PlannedReclaim(TypedDict):
    """Who would be stopped for a job that waits, and when, if those for whom no room is left gave back at once."""

    job_id: str
    queue: str
    at: float
    givers: list[QueueGiver]


class PlannedBlock(TypedDict):
    """Work that may start now, and that a change would let wait or refuse. `name`: id of a job or an app, or a command;
    `reason`: reason for which it would wait or be refused."""

    kind: Annotated[str, one_of(*PlannedKind)]
    name: str
    queue: str
    reason: str


class QueueChanges(TypedDict):
    """What a change would do. `borrowers`: running jobs that would no longer be within a guarantee."""

    queues: list[PlannedQueue]
    borrowers: list[str]
    reclaims: list[PlannedReclaim]
    blocks: list[PlannedBlock]


class QueuesPlan(QueueChanges):
    """What a tree would change, were it the next version."""

    warnings: list[str]


class NamedQueueRequest(TypedDict, total=False):
    """A queue. `version` is that of the tree that was read; `path`, `plan` and `warnings` are not
    looked at."""

    version: _Version | None
    path: str | None
    comment: _Comment | None
    plan: Any
    warnings: Any


class NamedQueue(TypedDict):
    """A queue as it is written; null: as in the queue above it, or there is none. `version` is that of the tree;
    `warnings` are of a change, `plan` of one that is only tried."""

    path: str
    version: Count
    plan: QueueChanges | None
    warnings: list[str]


declare(NamedQueueRequest, requested(document.SPEC_FIELDS))
declare(NamedQueue, answered(document.SPEC_FIELDS))


class QueueFigures(TypedDict):
    """What hours may change of a queue, as it is at a time; null: there is none."""

    guarantee_gpus: _OwedShown | dict[str, _OwedShown] | None
    borrow_limit_gpus: _FigureShown
    lend_limit_gpus: _FigureShown
    limit_gpus: _FigureShown
    weight: int
    band: int


class QueueHoursNow(TypedDict):
    """The figures of queues with hours, as they are from `since` until `until`, and those of which others hold then."""

    since: float | None
    until: float | None
    queues: dict[str, QueueFigures]
    next: dict[str, QueueFigures]


class Queues(TypedDict):
    """The tree of queues. By path: those that one may see. `warnings` only after a change, `plan`
    only of one that is tried."""

    version: Count
    at: float | None
    by: str
    comment: str
    reclaim_at: Annotated[
        float | None, says(description="from then on who has more than it leaves him gives back")
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
    """A version of it, in short."""

    version: Count
    at: float
    by: str
    comment: str
    queues: Annotated[int, says(minimum=0, description="how many")]


class QueueVersions(TypedDict):
    """Versions that are kept, the newest first."""

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
    "who has more than he is owed now gives it back from then on; without it nobody is stopped for the change",
)
_DRY: Final = in_query(
    "dry_run",
    {"type": "boolean", "default": False},
    "change nothing: tell what would be refused, and in `plan` what would change",
)
_CHANGED: Final = (_AFTER, _DRY)
_READ: Final = in_query(
    "version",
    {"type": "integer", "minimum": 0, "maximum": document.MAX_VERSION},
    "of the tree that was read, if If-Match does not say it",
)
_ONE_EXAMPLE: Final = {"version": 3, "guarantee_gpus": 1, "weight": 2}
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/queues"): Operation("show_queues", "The tree of queues", {200: Queues}),
    ("PUT", "/v1/queues"): Operation(
        "put_queues",
        "Change the tree of queues, as a whole; 409: another version was read, or jobs are in a queue that is left out",
        {200: Queues},
        (_CONFLICT,),
        query=_CHANGED,
        body=QueuesRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/queues/{queue}"): Operation("show_queue_spec", "A queue", {200: NamedQueue}),
    ("PUT", "/v1/queues/{queue}"): Operation(
        "put_queue",
        "Make a queue, or change it as a whole",
        {200: NamedQueue},
        (_CONFLICT,),
        _CHANGED,
        body=NamedQueueRequest,
        example=_ONE_EXAMPLE,
    ),
    ("PATCH", "/v1/queues/{queue}"): Operation(
        "patch_queue",
        "Change fields of a queue; null takes one away",
        {200: NamedQueue},
        (_CONFLICT,),
        _CHANGED,
        body=NamedQueueRequest,
        example={"version": 3, "stop": "hold"},
    ),
    ("DELETE", "/v1/queues/{queue}"): Operation(
        "delete_queue",
        "Take a queue away; what it was. 409: jobs are in it",
        {200: NamedQueue},
        (_CONFLICT,),
        (*_CHANGED, _READ),
    ),
    ("POST", "/v1/plan/queues"): Operation(
        "plan_queues",
        "What a tree of queues would change, and what new queues would be due; nothing is changed",
        {200: QueuesPlan},
        (_CONFLICT,),
        body=QueuesRequest,
        example=_EXAMPLE,
    ),
    ("GET", "/v1/queue-versions"): Operation(
        "list_queue_versions", "Its latest versions", {200: QueueVersions}
    ),
    ("GET", "/v1/queue-versions/{version}"): Operation("show_queue_version", "As it was", {200: Queues}),
}
