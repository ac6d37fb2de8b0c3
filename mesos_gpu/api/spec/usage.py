"""Types of answers about usage and budgets, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, Required, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.tenancy import OnEmpty, Period
from mesos_gpu.model.usage import SpanEnd
from mesos_gpu.policy.accounts.sums import GROUPS

Hours = Annotated[float, says(minimum=0)]
GpuHours = Annotated[float, says(minimum=0, description="GPU hours")]


class UsageRow(TypedDict):
    """Usage of a group. Fields that rows are not grouped by are null."""

    period: Annotated[float, says(description="beginning of the period, seconds since the epoch")] | None
    owner: (
        Annotated[str, says(description="an authenticated name; with a ?: the Unix user, not authenticated")]
        | None
    )
    queue: str | None
    app: str | None
    job_class: str | None
    model: str | None
    pool: str | None
    spans: Annotated[
        int, says(minimum=0, description="allocations of GPUs to tasks that began in the period")
    ]
    gpu_hours: GpuHours
    cost_hours: Annotated[float, says(minimum=0, description="GPU hours weighted by the cost of each GPU")]
    charged_hours: Annotated[
        float, says(minimum=0, description="cost hours that budgets pay, before refunds")
    ]
    refunded_hours: Hours
    borrowed_hours: Annotated[
        float, says(minimum=0, description="cost hours beyond the guarantees of queues")
    ]
    idle_hours: Annotated[float, says(minimum=0, description="cost hours of idle GPUs")]
    busy_gpu_hours: Annotated[float, says(minimum=0, description="GPU hours in which a GPU kernel ran")]
    idle_gpu_hours: Annotated[float, says(minimum=0, description="GPU hours in which no GPU kernel ran")]
    unknown_gpu_hours: Annotated[
        float,
        says(minimum=0, description="GPU hours of which it is not known whether they were busy or idle"),
    ]
    wanted_gpu_hours: Annotated[
        float,
        says(minimum=0, description="idle GPU hours during which jobs waited for as many GPUs"),
    ]
    returned: Annotated[
        int, says(minimum=0, description="allocations that ended because their GPUs were idle")
    ]
    lost_hours: Annotated[
        float, says(minimum=0, description="cost hours of work that was lost with its task")
    ]
    unmet_gpu_hours: Annotated[
        float,
        says(minimum=0, description="GPUs that jobs waited or wait for, multiplied by the waiting time"),
    ]
    started: Annotated[int, says(minimum=0, description="launches with known waiting times")] | None
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_p99_s: float | None


class Usage(TypedDict):
    """Usage in whole days of UTC, of resources that the caller may see."""

    since: Moment
    until: Moment
    by: list[str]
    rows: list[UsageRow]


class UsageRecord(TypedDict):
    """A record of a constant amount of GPUs of one model that a task held. Records can be added up."""

    task_id: str
    job_id: str
    owner: str | None
    queue: str
    job_class: str | None
    app: str | None
    model: str | None
    pool: str | None
    begins: Moment
    ends: Moment
    gpus: Annotated[float, says(minimum=0)]
    cost: Annotated[float, says(minimum=0, description="GPUs weighted by cost")]
    gpu_s: Annotated[float, says(minimum=0)]
    wait_s: float
    borrowed_s: float
    busy_gpu_s: float
    idle_gpu_s: float
    wanted_gpu_s: Annotated[
        float, says(description="part of idle_gpu_s during which jobs waited for as many GPUs")
    ]
    lost_s: float
    refunded_s: float
    reason: Annotated[str, one_of(*SpanEnd)]


class UsageRecords(TypedDict):
    """Records that overlap a period, by their ends; open ones come last."""

    records: list[UsageRecord]


class BudgetStanding(TypedDict):
    """Standing of a budget in its current period, in GPU hours by cost."""

    queue: str
    user: Annotated[str, says(description="user whose jobs the budget is for; null: all")] | None
    begins: Moment
    ends: Moment
    gpu_hours: Annotated[float, says(minimum=0, description="amount in the document of queues")]
    carried_hours: Annotated[
        float, says(minimum=0, description="amount carried over from the previous period")
    ]
    granted_hours: Annotated[float, says(description="granted in addition; negative: set aside")]
    used_hours: Hours
    left_hours: Annotated[float, says(description="negative: used beyond the budget")]
    used_percent: Annotated[int, says(minimum=0)]
    told_percent: Annotated[
        int, says(minimum=0, description="highest threshold that was reached and reported")
    ]
    rate_gpus: Annotated[float, says(minimum=0, description="GPUs by cost that are charged to it now")]
    empty: bool
    empty_at: (
        Annotated[float, says(description="when it is empty at this rate; null: not in this period")] | None
    )
    on_empty: Annotated[str, one_of(*OnEmpty)]
    safe: bool
    next_period: (
        Annotated[float, says(description="beginning of the next period; null: no next period")] | None
    )


class Budgets(TypedDict):
    """The budgets that the caller may see."""

    budgets: list[BudgetStanding]


class BudgetGrantRequest(TypedDict, total=False):
    """An addition to a budget in its current period."""

    queue: Required[str]
    user: str | None
    gpu_hours: Required[
        Annotated[float, says(minimum=-1e9, maximum=1e9, description="amount to add; negative to set aside")]
    ]


_SINCE: Final = in_query(
    "since", {"type": "number", "minimum": 0, "maximum": 1e11}, "beginning, in seconds since the epoch"
)
_UNTIL: Final = in_query(
    "until",
    {"type": "number", "minimum": 0, "maximum": 1e11},
    "end, in seconds since the epoch; default: now",
)
_NAME: Final = f"({'|'.join(GROUPS)})"
_BY: Final = in_query(
    "by",
    {"type": "string", "default": "queue", "pattern": f"^{_NAME}(,{_NAME})*$"},
    "fields to group by, separated by commas",
)
_PERIOD: Final = in_query(
    "period",
    {"type": "string", "enum": [each.value for each in Period if each is not Period.ONCE]},
    "separate rows for each such period of UTC; at most the latest 400",
)
_WAITS: Final = in_query("waits", {"type": "boolean", "default": False}, "include how long jobs waited")
_DEPTH: Final = in_query(
    "depth",
    {"type": "integer", "minimum": 1, "maximum": 16},
    "level at which queues are summed up with all queues below, 1 for the top; default: each queue separately",
)
_PAST: Final = in_query(
    "past", {"type": "boolean", "default": False}, "include stored earlier periods, the latest last"
)
_FORM: Final = in_query(
    "format", {"type": "string", "enum": ["json", "csv"], "default": "json"}, "format of the answer"
)
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/usage"): Operation(
        "show_usage",
        "Show usage of the resources that the caller may see",
        {200: Usage},
        (404, 503),
        query=(_BY, _DEPTH, _SINCE, _UNTIL, _PERIOD, _WAITS),
    ),
    ("GET", "/v1/usage/export"): Operation(
        "export_usage",
        "Export single records of usage",
        {200: (UsageRecords, "text/csv; charset=utf-8")},
        (404, 503),
        query=(_SINCE, _UNTIL, _FORM),
    ),
    ("GET", "/v1/budgets"): Operation(
        "list_budgets", "List the standings of budgets", {200: Budgets}, query=(_PAST,)
    ),
    ("POST", "/v1/budgets/grants"): Operation(
        "grant_budget",
        "Add to a budget in its current period, or set some of it aside",
        {200: BudgetStanding},
        (404,),
        body=BudgetGrantRequest,
        example={"queue": "research/vision", "gpu_hours": 500},
    ),
}
