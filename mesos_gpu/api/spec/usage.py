"""What the routes of use answer, as types."""

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
    """What was used. What it is not grouped by is null."""

    period: Annotated[float, says(description="when it begins, seconds since the epoch")] | None
    owner: (
        Annotated[str, says(description="a proved name; with a ?: the UNIX user, whom nobody has proved")]
        | None
    )
    queue: str | None
    app: str | None
    job_class: str | None
    model: str | None
    pool: str | None
    spans: Annotated[int, says(minimum=0, description="grants that began then")]
    gpu_hours: GpuHours
    cost_hours: Annotated[float, says(minimum=0, description="GPU hours by what each GPU costs")]
    charged_hours: Annotated[
        float, says(minimum=0, description="of cost, what budgets pay, refunds not taken off")
    ]
    refunded_hours: Hours
    borrowed_hours: Annotated[
        float, says(minimum=0, description="of cost, beyond what queues are guaranteed")
    ]
    idle_hours: Annotated[float, says(minimum=0, description="of cost, of GPUs that did nothing")]
    busy_gpu_hours: Annotated[float, says(minimum=0, description="GPU hours in which a kernel ran")]
    idle_gpu_hours: Annotated[float, says(minimum=0, description="GPU hours in which none did")]
    unknown_gpu_hours: Annotated[
        float, says(minimum=0, description="GPU hours of which nobody can tell: neither busy nor idle")
    ]
    wanted_gpu_hours: Annotated[
        float,
        says(minimum=0, description="of the idle GPU hours, those in which jobs waited for as many GPUs"),
    ]
    returned: Annotated[int, says(minimum=0, description="grants that ended because their GPUs did nothing")]
    lost_hours: Annotated[float, says(minimum=0, description="of cost, of work that was lost with its task")]
    unmet_gpu_hours: Annotated[
        float, says(minimum=0, description="GPUs that jobs waited for, or wait for now, times how long")
    ]
    started: Annotated[int, says(minimum=0, description="launches whose waits are known")] | None
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_p99_s: float | None


class Usage(TypedDict):
    """What was used of whole days of UTC, by those that one may see."""

    since: Moment
    until: Moment
    by: list[str]
    rows: list[UsageRow]


class UsageRecord(TypedDict):
    """What a task held of GPUs of one model while nothing of it changed. Whoever has it may add records up."""

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
    cost: Annotated[float, says(minimum=0, description="GPUs by what each costs")]
    gpu_s: Annotated[float, says(minimum=0)]
    wait_s: float
    borrowed_s: float
    busy_gpu_s: float
    idle_gpu_s: float
    wanted_gpu_s: Annotated[float, says(description="of idle_gpu_s, while jobs waited for as many GPUs")]
    lost_s: float
    refunded_s: float
    reason: Annotated[str, one_of(*SpanEnd)]


class UsageRecords(TypedDict):
    """Records that have something of a time, by their ends; those that are open at the end."""

    records: list[UsageRecord]


class BudgetStanding(TypedDict):
    """How a budget stands in its current period, in GPU hours by cost."""

    queue: str
    user: Annotated[str, says(description="whose jobs pay; null: all")] | None
    begins: Moment
    ends: Moment
    gpu_hours: Annotated[float, says(minimum=0, description="the amount that the document gives")]
    carried_hours: Annotated[
        float, says(minimum=0, description="what was left of the period before, in part")
    ]
    granted_hours: Annotated[float, says(description="beside the amount; negative: set aside")]
    used_hours: Hours
    left_hours: Annotated[float, says(description="negative: so much was used beyond it")]
    used_percent: Annotated[int, says(minimum=0)]
    told_percent: Annotated[
        int, says(minimum=0, description="the highest of its thresholds that was reached")
    ]
    rate_gpus: Annotated[float, says(minimum=0, description="what is charged to it now, GPUs by cost")]
    empty: bool
    empty_at: Annotated[float, says(description="at this rate; null: not in this period")] | None
    on_empty: Annotated[str, one_of(*OnEmpty)]
    safe: bool
    next_period: Annotated[float, says(description="when it opens; null: there is none")] | None


class Budgets(TypedDict):
    """Budgets that one may see."""

    budgets: list[BudgetStanding]


class BudgetGrantRequest(TypedDict, total=False):
    """What a budget shall have beside its amount in its current period."""

    queue: Required[str]
    user: str | None
    gpu_hours: Required[Annotated[float, says(minimum=-1e9, maximum=1e9, description="negative: set aside")]]


_SINCE: Final = in_query(
    "since", {"type": "number", "minimum": 0, "maximum": 1e11}, "seconds since the epoch"
)
_UNTIL: Final = in_query(
    "until", {"type": "number", "minimum": 0, "maximum": 1e11}, "before it; default: now"
)
_NAME: Final = f"({'|'.join(GROUPS)})"
_BY: Final = in_query(
    "by",
    {"type": "string", "default": "queue", "pattern": f"^{_NAME}(,{_NAME})*$"},
    "what is summed up, with commas",
)
_PERIOD: Final = in_query(
    "period",
    {"type": "string", "enum": [each.value for each in Period if each is not Period.ONCE]},
    "rows of each such time by itself, of UTC; the latest 400",
)
_WAITS: Final = in_query("waits", {"type": "boolean", "default": False}, "how long jobs waited as well")
_DEPTH: Final = in_query(
    "depth",
    {"type": "integer", "minimum": 1, "maximum": 16},
    "queues are summed up from this level on, 1: the top ones with all below them; default: each by itself",
)
_PAST: Final = in_query(
    "past", {"type": "boolean", "default": False}, "the periods before as well that are kept, the latest last"
)
_FORM: Final = in_query(
    "format", {"type": "string", "enum": ["json", "csv"], "default": "json"}, "of the answer"
)
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/usage"): Operation(
        "show_usage",
        "What was used, by those that one may see",
        {200: Usage},
        (404, 503),
        query=(_BY, _DEPTH, _SINCE, _UNTIL, _PERIOD, _WAITS),
    ),
    ("GET", "/v1/usage/export"): Operation(
        "export_usage",
        "Records of use, one by one",
        {200: (UsageRecords, "text/csv; charset=utf-8")},
        (404, 503),
        query=(_SINCE, _UNTIL, _FORM),
    ),
    ("GET", "/v1/budgets"): Operation("list_budgets", "How budgets stand", {200: Budgets}, query=(_PAST,)),
    ("POST", "/v1/budgets/grants"): Operation(
        "grant_budget",
        "Give a budget more in its current period, or set some of it aside",
        {200: BudgetStanding},
        (404,),
        body=BudgetGrantRequest,
        example={"queue": "research/vision", "gpu_hours": 500},
    ),
}
