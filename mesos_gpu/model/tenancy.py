"""The queue tree: guarantees, borrowing, reclaim, and limits of queues and users.

Amounts are whole thousandths of cost: a GPU of a model counts as 1000 times its cost (`QueueDocument.gpu_cost`, 1 by
default), a share of a GPU proportionally. Fields declared with `asks` may be written in the queue document; the code
that reads, checks, writes and shows them is driven by `QUEUE_FIELDS`, `LIMIT_FIELDS` and so on.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo

from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.fields import (
    LABEL_KEY,
    NAME,
    Constraints,
    Flag,
    Kind,
    Models,
    Number,
    OneOf,
    Seconds,
    SecretPath,
    SomeOf,
    Strings,
    Text,
    Whole,
    asks,
    asks_first,
    declared,
)
from mesos_gpu.model.jobs.job import HIGHEST_PRIORITY
from mesos_gpu.model.nodes.gpu_names import means, most_specific
from mesos_gpu.model.secret import SOURCE, SOURCE_FORM

ROOT: Final = ""  # path of the root of the queue tree
DEFAULT_POOL: Final = "default"  # nodes that match no other pool
EVERYBODY: Final = "*"  # all users that are not named
MAX_GPUS: Final = 1_000_000
MAX_S: Final = 1e9
NAME_FORM: Final = "1 to 63 of a-z, 0-9, '.' and '-', beginning and ending alphanumeric"
_LABEL: Final = re.compile(r"[^=\x00]+(=[^\x00]*)?")
_LABEL_FORM: Final = "the key of a label, or KEY=VALUE, as purpose=demo"
DAY: Final = Text(re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "a day, as 2026-11-22")
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?")
_CLOCK_OR_END: Final = re.compile(rf"{_CLOCK.pattern}|24:00")
ZONE: Final = Text(
    re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"), "a zone of IANA's database, as Europe/Vienna"
)
_PATTERN: Final = re.compile(r"[a-z0-9./*-]{1,256}")
_PATTERN_FORM: Final = "a queue or a pattern of queues, as research or research/*"


@dataclass(frozen=True, slots=True)
class Shape:
    """GPUs that are useful only together: a number of nodes with a number of free GPUs each."""

    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Guarantee of a queue in one pool."""

    milli: int = 0  # thousandths of cost; the sum over all shapes
    shapes: tuple[Shape, ...] = ()  # empty if any GPUs will do


class Reclaim(Enum):
    """Jobs that may be stopped when a queue reclaims its guarantee."""

    ANY = "any"  # jobs of every borrower
    LOWER = "lower"  # borrowers with a lower effective priority
    NEVER = "never"  # no jobs: the queue waits until they end


class Stop(Enum):
    """Restriction of what a queue may start or run."""

    NONE = "none"
    HOLD = "hold"  # no job starts; running jobs continue
    DRAIN = "drain"  # no job starts; running jobs are ended with notice and requeued


class QueueOrder(Enum):
    """Order of the waiting jobs of a queue."""

    PRIORITY = "priority"  # effective priority, then first come, first served
    LAS = "las"  # least attained service, in levels; running jobs yield to jobs with less


class Fairness(Enum):
    """Quantity by which the shares of queues are compared."""

    GPUS = "gpus"
    DRF = "drf"  # dominant resource fairness over GPUs, CPUs and memory


class OnEmpty(Enum):
    """Action when a budget is used up."""

    WARN = "warn"
    BORROW = "borrow"  # jobs run as borrowers, after all others, and are reclaimed first
    NO_START = "no_start"
    STOP = "stop"  # no job starts; running jobs are ended with notice


class IdlePolicy(Enum):
    """Action against a job whose GPUs are idle."""

    REPORT = "report"  # the job is only reported
    PRESSURE = "pressure"  # the job is warned, and ended when a waiting job could use its GPUs
    ALWAYS = "always"  # the job is warned, and ended in any case


class Period(Enum):
    """Length of a budget period, which begins at midnight, local time of its zone."""

    DAY = "day"
    WEEK = "week"  # begins on Monday
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    ONCE = "once"  # between two given days


class PerPool(Kind):
    """An amount of GPUs of cost 1 by pool, or one number for every pool without an amount of its own."""


class Guarantees(PerPool):
    """A guarantee by pool: a number of GPUs, or a list of shapes."""


@dataclass(frozen=True, slots=True)
class MinRuntime:
    """Minimum run time of a job before it may be preempted, in seconds from its start."""

    reclaim_s: float = 0.0  # for a queue within its guarantee
    rebalance_s: float = MAX_S  # for a queue above its guarantee; by default it preempts no job


class Runtimes(Kind):
    """A `MinRuntime` as an object {reclaim, rebalance}, in seconds."""


class GpuHours(Kind):
    """An amount of use: hours of GPUs of cost 1."""


class Percents(Kind):
    """A list of rising percentages."""


@dataclass(frozen=True, slots=True)
class Names(Kind):
    """A list of names or patterns that match `pattern`; `form` describes it in messages, after "must be"."""

    pattern: re.Pattern[str]
    form: str


class Weights(Kind):
    """An object of whole numbers by user name; "*" for each other user."""


class LimitsByUser(Kind):
    """An object of limits by user name; "*" for each other user."""


class IdleRules(Kind):
    """An `Idle` object: rules for jobs whose GPUs are idle."""


class Budgets(Kind):
    """A `Budget` object."""


class BudgetsByUser(Kind):
    """An object of budgets by user name; "*" for each other user."""


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU hours, weighted by cost, that may be used in a period.

    Attributes:
        milli_s: The amount, in thousandths of cost times seconds.
        period: Length of the period, after which a new one begins.
        begins, ends: First local day, and the day after the last, of a budget with period `once`, such as 2026-11-22.
        zone: Time zone of the IANA database, such as Europe/Vienna.
        carry_over_percent: Percentage of the remainder that is added to the next period.
        warn_at: Percentages of use at which a warning is sent, rising.
        on_empty: Action when the budget is used up.
        safe: Whether only jobs may start whose time limit proves that they stay within the budget.
    """

    milli_s: int = field(metadata=asks_first(GpuHours(), key="gpu_hours"))
    period: Period = asks(Period.MONTH, OneOf(Period))
    begins: str = asks("", DAY, key="from", about="first day of the period `once`, local time")
    ends: str = asks("", DAY, key="to", about="day after the last of the period `once`")
    zone: str = asks("UTC", ZONE)
    carry_over_percent: int = asks(
        0, Whole(0, 100), about="percentage of the remainder that is added to the next period"
    )
    warn_at: tuple[int, ...] = asks(
        (50, 80, 100), Percents(), about="percentages of use at which a warning is sent"
    )
    on_empty: OnEmpty = asks(OnEmpty.WARN, OneOf(OnEmpty))
    safe: bool = asks(False, Flag(), about="start only jobs whose time limit keeps them within the budget")


@dataclass(frozen=True, slots=True)
class Idle:
    """Rules for jobs that hold GPUs without using them. Durations count idle time as far as it is measured: they stand
    still while the use of the GPUs is unknown.

    Attributes:
        warn_after_s: Idle time after which a job is warned.
        return_after_s: Idle time after which a job is ended, with prior notice.
        busy_share: Highest part of a time window for which any GPU of an idle job works. A window with at least twice
            as much work counts as work; a window in between counts half as idle.
        resume_s: Total time of work after which idle time is forgotten; idle time is subtracted from it.
        start_grace_s: Time after the start of a job in which nothing counts.
        policy: Action against idle jobs.
        exempt_labels: Labels of jobs that are only reported.
        max_keep_s: Longest time, from the request on, for which a job may be protected from being ended.
        requeue: Whether an ended job returns to its queue.
        apps: Whether the rules also apply to instances of apps; else they are only reported.
    """

    warn_after_s: float = asks(1800.0, Seconds(1, MAX_S), about="idle time after which a job is warned")
    return_after_s: float = asks(
        3600.0, Seconds(1, MAX_S), about="idle time after which a job is ended, with prior notice"
    )
    busy_share: float = asks(
        0.05,
        Number(0.001, 0.5),
        about="a window is idle if each GPU of the job works for at most this part of it",
    )
    resume_s: float = asks(
        120.0, Seconds(1, MAX_S),
        about="work, at twice `busy_share` or more, after which idle time is forgotten; idle time is subtracted",
    )  # fmt: skip
    start_grace_s: float = asks(
        600.0, Seconds(0, MAX_S), about="time after the start of a job in which nothing counts"
    )
    policy: IdlePolicy = asks(IdlePolicy.REPORT, OneOf(IdlePolicy))
    exempt_labels: tuple[str, ...] = asks(
        (), Names(_LABEL, _LABEL_FORM), about="jobs with one of these labels are only reported"
    )
    max_keep_s: float = asks(
        28800.0,
        Seconds(0, MAX_S),
        about="longest time, from the request on, for which a job may be kept from being ended",
    )
    requeue: bool = asks(False, Flag(), about="whether an ended job returns to its queue")
    apps: bool = asks(
        False, Flag(), about="whether the rules apply to instances of apps; else these are only reported"
    )


IDLE_FIELDS: Final = declared(Idle, ())


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits of a queue, a user, or a user in a queue, and of one job.

    None if there is no own limit; limits of the queues above apply in any case.
    """

    max_running: int | None = asks(None, Whole(0, 10**9), about="jobs that hold resources")
    max_submitted: int | None = asks(None, Whole(0, 10**9), about="jobs that wait or run, in sum")
    max_gpus: float | None = asks(None, Number(0, MAX_GPUS), about="GPUs held, by cost, of all pools")
    max_gpus_per_job: float | None = asks(None, Number(0, MAX_GPUS), about="GPUs of all tasks of one job")
    max_timeout_s: float | None = asks(
        None, Seconds(0, MAX_S, "a positive number of seconds, at most 1e9", above=True),
        about="the longest time limit; a job without one is refused",
    )  # fmt: skip
    max_priority: int | None = asks(None, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY))


NO_LIMITS: Final = Limits()


class Weekday(Enum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class HoursOfWeek(Kind):
    """A list of `Hours`."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the week in which some figures of a queue differ. Omitted figures, and omitted pools of a figure by
    pool, are as outside of these hours.

    Attributes:
        begins, ends: Times of day in `zone`; the hours pass midnight unless `ends` is later than `begins`.
        days: Days on which the hours begin.
    """

    begins: str = field(metadata=asks_first(Text(_CLOCK, "a time of day, as 22:00"), key="from"))
    ends: str = field(metadata=asks_first(Text(_CLOCK_OR_END, "a time of day, as 06:00, or 24:00"), key="to"))
    days: tuple[Weekday, ...] = asks(tuple(Weekday), SomeOf(Weekday), about="days on which the hours begin")
    zone: str = asks("UTC", ZONE)
    guarantee_gpus: Mapping[str, Guarantee] = asks({}, Guarantees())
    borrow_limit_gpus: Mapping[str, int] = asks({}, PerPool())
    lend_limit_gpus: Mapping[str, int] = asks({}, PerPool())
    limit_gpus: Mapping[str, int] = asks({}, PerPool())
    weight: int | None = asks(None, Whole(0, 1_000_000))
    band: int | None = asks(None, Whole(-1000, 1000))


HOURS_FIELDS: Final = declared(Hours, ())
#: Fields of a queue that may differ by hours.
HOURS_FIGURES: Final = (
    "guarantee_gpus", "borrow_limit_gpus", "lend_limit_gpus", "limit_gpus", "weight", "band",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as written in the document. None if the value is inherited: from the parent, at the root from
    `ROOT_SPEC`."""

    guarantee_gpus: Mapping[str, Guarantee] = asks({}, Guarantees(), about="what the queue is guaranteed")
    borrow_limit_gpus: Mapping[str, int] = asks(
        {}, PerPool(), about="the most that it may hold beyond its guarantee"
    )
    lend_limit_gpus: Mapping[str, int] = asks(
        {}, PerPool(), about="the most of its guarantee that other queues may use while it is idle"
    )
    limit_gpus: Mapping[str, int] = asks({}, PerPool(), about="the most that it may hold")
    pools: tuple[str, ...] | None = asks(
        None, Names(NAME, NAME_FORM), about="pools that its jobs may use, the first choice first"
    )
    overflow_after_s: float | None = asks(
        None, Seconds(0, MAX_S), about="time that a job waits before it may use the next of its pools"
    )
    hours: tuple[Hours, ...] = asks((), HoursOfWeek(), about="hours of the week in which some figures differ")
    weight: int = asks(
        1, Whole(0, 1_000_000), about="its weight in the division of what guarantees leave over"
    )
    band: int = asks(0, Whole(-1000, 1000), about="queues of higher bands get what is left over first")
    reclaim: Reclaim | None = asks(
        None, OneOf(Reclaim), about="whose jobs may be preempted for its guarantee"
    )
    fence: bool = asks(False, Flag(), about="no preemption between its jobs and jobs outside of it")
    min_runtime_s: MinRuntime | None = asks(None, Runtimes())
    patience: float | None = asks(
        None,
        Number(0, 1000),
        about="GPU seconds of waiting that weigh as much as one of lost work; 0 to preempt without waiting",
    )
    stop: Stop = asks(Stop.NONE, OneOf(Stop))
    order: QueueOrder | None = asks(None, OneOf(QueueOrder))
    notice_s: float | None = asks(None, Seconds(0, 86400), about="time between a notice and SIGTERM")
    borrow_for_s: float | None = asks(
        None, Seconds(0, MAX_S), about="jobs that are not preemptible may borrow if they end within this time"
    )
    starve_after_s: float | None = asks(
        None,
        Seconds(1, MAX_S),
        about="time after which its first job gets a reservation whatever the fair share",
    )
    limits: Limits = field(default=NO_LIMITS)  # for all its jobs together
    users: Mapping[str, Limits] = asks({}, LimitsByUser())
    user_shares: Mapping[str, int] = asks({}, Weights())
    default_timeout_s: float | None = asks(None, Seconds(0, MAX_S, above=True))
    default_priority: int | None = asks(None, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY))
    budget: Budget | None = asks(None, Budgets())
    user_budgets: Mapping[str, Budget] = asks({}, BudgetsByUser())
    idle: Idle | None = asks(None, IdleRules(), about="rules for jobs whose GPUs are idle")
    image_secret: str | None = asks(
        None,
        SecretPath(SOURCE, SOURCE_FORM),
        about="secret with logins for registries, for images of jobs that name none of their own",
    )


QUEUE_FIELDS: Final = declared(QueueSpec, ())
LIMIT_FIELDS: Final = declared(Limits, ())


@dataclass(frozen=True, slots=True)
class InheritedValues:
    """Values that queues inherit if they leave them open, with the defaults of the root."""

    reclaim: Reclaim = Reclaim.ANY
    min_runtime_s: MinRuntime = MinRuntime()
    patience: float = 0.0
    order: QueueOrder = QueueOrder.PRIORITY
    notice_s: float = 0.0
    borrow_for_s: float = 0.0
    starve_after_s: float = 86400.0
    default_timeout_s: float | None = None
    default_priority: int = 0
    pools: tuple[str, ...] | None = None  # None for all pools that are not dedicated, without order
    overflow_after_s: float = 0.0
    idle: Idle = Idle()
    image_secret: str | None = None


@dataclass(frozen=True, slots=True)
class JobClass:
    """A kind of work that jobs can name in their request.

    Attributes:
        name: Name of the class.
        priority: Priority of jobs that request none; None to use the queue's default.
        preemptible: Whether jobs of the class may be preempted; None if each job says.
        charge_percent: Percentage of the normal cost that is charged as use and to budgets.
        max_timeout_s: Longest permitted time limit; None if there is no limit.
        pools: Pools that jobs of the class may use; empty for all.
        queues: Patterns of queues whose jobs may name the class; empty for all.
        idle: Rules for jobs whose GPUs are idle; None for those of the queue.
    """

    name: str
    priority: int | None = asks(None, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY))
    preemptible: bool | None = asks(None, Flag(), about="whether its jobs may be preempted")
    charge_percent: int = asks(
        100, Whole(0, 10_000), about="percentage of the normal cost that its jobs are charged"
    )
    max_timeout_s: float | None = asks(
        None, Seconds(0, MAX_S, above=True), about="longest time limit that its jobs may request"
    )
    pools: tuple[str, ...] = asks((), Names(NAME, NAME_FORM), about="pools that its jobs may use")
    queues: tuple[str, ...] = asks((), Names(_PATTERN, _PATTERN_FORM), about="queues whose jobs may name it")
    idle: Idle | None = asks(None, IdleRules(), about="rules for its jobs whose GPUs are idle")


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of nodes in which guarantees and limits count. A node is in the first pool, by name, whose conditions it
    meets.

    Attributes:
        name: Name of the pool.
        models: Names of GPU models (`nodes.gpu_names`), to one of which each GPU of a node belongs; empty for any.
        attributes: Required attributes of the agent, by name.
        constraints: Constraints on the agent, of the kinds that look at the agent alone.
        dedicated: Whether only queues that list the pool in their `pools` may use it.
    """

    name: str
    models: tuple[str, ...] = asks(
        (), Models(), about="names of GPU models, such as A100; each GPU of a node must be of one of them"
    )
    attributes: Mapping[str, str] = asks(
        {}, Strings(LABEL_KEY, "NUL"), about="required attributes of agents, by name"
    )
    constraints: tuple[Constraint, ...] = asks(
        (), Constraints(), about="constraints on agents: IS, LIKE, UNLIKE, or CLUSTER with a value"
    )
    dedicated: bool = asks(False, Flag(), about="only queues that list the pool may use it")


BUDGET_FIELDS: Final = declared(Budget, ())
CLASS_FIELDS: Final = declared(JobClass, ())
POOL_FIELDS: Final = declared(Pool, ())


@dataclass(frozen=True, slots=True)
class QueueDocument:
    """A version of the queue tree.

    Attributes:
        version: Number that grows by one with each change; 0 if no document was written yet.
        at: Time of the change, seconds since the epoch.
        by: Author of the change.
        comment: Comment of the author.
        queues: Queues by path, such as research/vision, including all ancestors.
        pools: Pools besides the default one.
        gpu_cost: Relative cost of a GPU by model name (`nodes.gpu_names`); the most specific matching name counts, and
            1 without a match.
        classes: Job classes, ordered by name.
        users: Limits of each user over all queues together; "*" for each user that is not named.
        fairness: Quantity by which queues are compared.
        half_life_s: Time after which half of past use is forgotten.
        history_percent: Strength with which past use lowers a weight in the division beyond guarantees.
        overbook: Whether guarantees may exceed what exists; they are then scaled down.
        reclaim_at: Time from which running jobs that lose their guaranteed capacity by this version may be preempted
            like borrowers, seconds since the epoch; None if running jobs are not preempted for the change.
    """

    version: int = 0
    at: float = 0.0
    by: str = ""
    comment: str = ""
    queues: Mapping[str, QueueSpec] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    gpu_cost: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[JobClass, ...] = ()
    users: Mapping[str, Limits] = field(default_factory=dict)
    fairness: Fairness = Fairness.GPUS
    half_life_s: int = 7 * 86400
    history_percent: int = 0
    overbook: bool = False
    reclaim_at: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the document has no content, and so the effect of no document."""
        return replace(self, version=0, at=0.0, by="", comment="", reclaim_at=None) == NO_QUEUES

    def cost_of(self, model: str) -> int:
        """Return the relative cost of a GPU of a model."""
        if not self.gpu_cost:
            return 1
        if (cost := self.gpu_cost.get(model)) is not None:
            return cost
        name = most_specific(model, self.gpu_cost)
        return 1 if name is None else self.gpu_cost[name]

    def most_cost_of(self, names: Iterable[str]) -> int:
        """Return the highest cost of a GPU that one of some model names may mean; without names, of any GPU."""
        model_names = tuple(names)
        entries = [
            cost for entry, cost in self.gpu_cost.items() if any(means(name, entry) for name in model_names)
        ]
        return max(
            [*entries, *map(self.cost_of, model_names)] if model_names else self.gpu_cost.values(), default=1
        )


NO_QUEUES: Final = QueueDocument()


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with a name of the IANA database; None if it does not exist.

    The database is a directory, so some unknown names raise OSError in `ZoneInfo`: ENAMETOOLONG if longer than 255
    characters, EISDIR for "Europe". These count as unknown.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
