"""The tree of queues: who is guaranteed what, who may borrow, who gives back first, and how much may be asked for.

Amounts are whole thousandths of cost: a GPU of a model counts as 1000 times its cost (`QueueDocument.gpu_cost`, 1 where
none is given), a share of it as its part of that. Fields that `asks` declares may be written in the document; what
reads, checks, writes and shows them goes through `QUEUE_FIELDS`, `LIMIT_FIELDS` and so on.
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

ROOT: Final = ""  # the path of what all queues are below
DEFAULT_POOL: Final = "default"  # the nodes that are in no other
EVERYBODY: Final = "*"  # a user that is not named
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
    """GPUs that are of use only together: so many nodes, each with so many free ones."""

    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a queue is owed of a pool."""

    milli: int = 0  # thousandths of cost; of shapes, all of them together
    shapes: tuple[Shape, ...] = ()  # none: any GPUs will do


class Reclaim(Enum):
    """Whose jobs may be stopped for a queue that is owed their GPUs."""

    ANY = "any"  # of every borrower
    LOWER = "lower"  # of those whose effective priority is lower
    NEVER = "never"  # it waits until they end


class Stop(Enum):
    """Whether a queue is served."""

    NONE = "none"
    HOLD = "hold"  # nothing starts; what runs goes on
    DRAIN = "drain"  # and what runs is ended, with notice, and waits


class LineOrder(Enum):
    """The order of a queue's jobs."""

    PRIORITY = "priority"  # effective priority, then first come, first served
    LAS = "las"  # least attained service, in levels; who runs gives way to who has had less


class Fairness(Enum):
    """What is compared when queues are."""

    GPUS = "gpus"
    DRF = "drf"  # of GPUs, CPUs and memory, the one of which a queue has the largest part


class OnEmpty(Enum):
    """What happens when a budget is used up."""

    WARN = "warn"
    BORROW = "borrow"  # jobs run as borrowers, after all others, and are reclaimed first
    NO_START = "no_start"
    STOP = "stop"  # and what runs is ended, with notice


class IdlePolicy(Enum):
    """What becomes of a job whose GPUs do nothing."""

    REPORT = "report"  # it is reported, and nothing else
    PRESSURE = "pressure"  # it is warned, and ended when somebody waits whom its GPUs would serve
    ALWAYS = "always"  # it is warned and ended, whoever waits


class Period(Enum):
    """For how long a budget is. It begins at midnight, local time of its zone."""

    DAY = "day"
    WEEK = "week"  # on Monday
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    ONCE = "once"  # from a day to another


class PerPool(Kind):
    """An amount of each pool, in GPUs of cost 1; one number: of every pool together with none of its own."""


class Guarantees(PerPool):
    """An amount of each pool, as a number of GPUs or a list of shapes."""


@dataclass(frozen=True, slots=True)
class MinRuntime:
    """How long a job runs before it may be stopped, seconds, from its start."""

    reclaim_s: float = 0.0  # for somebody within his guarantee
    rebalance_s: float = MAX_S  # for somebody above his; by default that stops nobody


class Runtimes(Kind):
    """A `MinRuntime`: {reclaim, rebalance}, in seconds."""


class GpuHours(Kind):
    """An amount of use: hours of GPUs of cost 1."""


class Percents(Kind):
    """Rising percentages."""


@dataclass(frozen=True, slots=True)
class Names(Kind):
    """A list of names or patterns, each of which `pattern` must match; `form` says it in words, after "must be"."""

    pattern: re.Pattern[str]
    form: str


class Weights(Kind):
    """An object of whole numbers by the names of users; "*": all others."""


class LimitsByUser(Kind):
    """An object of limits by the names of users; "*": each of the others."""


class IdleRules(Kind):
    """What becomes of GPUs that do nothing: an `Idle`."""


class Budgets(Kind):
    """A budget."""


class BudgetsByUser(Kind):
    """An object of budgets by the names of users; "*": each of the others."""


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU hours of cost that may be used in a period.

    Attributes:
        milli_s: The amount, in thousandths of cost times seconds.
        period: How long it lasts; then there is a new one.
        begins, ends: Of one that is there once: days as 2026-11-22, local ones, the last not included.
        zone: Of IANA's database, as Europe/Vienna.
        carry_over_percent: How much of what is left is added to the next period's.
        warn_at: Percent of it at which somebody is told, rising.
        on_empty: What happens then.
        safe: Whether only what surely stays inside may start, by its time limit.
    """

    milli_s: int = field(metadata=asks_first(GpuHours(), key="gpu_hours"))
    period: Period = asks(Period.MONTH, OneOf(Period))
    begins: str = asks("", DAY, key="from", about="of `once`: its first day, local time")
    ends: str = asks("", DAY, key="to", about="of `once`: the day after its last")
    zone: str = asks("UTC", ZONE)
    carry_over_percent: int = asks(0, Whole(0, 100), about="of what is left, that the next period has too")
    warn_at: tuple[int, ...] = asks((50, 80, 100), Percents(), about="of it, at which somebody is told")
    on_empty: OnEmpty = asks(OnEmpty.WARN, OneOf(OnEmpty))
    safe: bool = asks(False, Flag(), about="only what ends inside it by its time limit starts")


@dataclass(frozen=True, slots=True)
class Idle:
    """What becomes of jobs that hold GPUs and do nothing with them. Times are of idleness, as far as it is known: while
    nobody can say what the GPUs do, they stand.

    Attributes:
        warn_after_s: After so long a job is warned.
        return_after_s: After so long it is ended, with notice before.
        busy_share: A job is idle while none of its GPUs is at work for more than this part of the time. From twice as
            much on, it counts as at work; of what is between, half counts as idle.
        resume_s: So long in total must it be back at work until its idleness is forgotten; idle time takes from that.
        start_grace_s: So long after its start nothing counts.
        policy: What is done.
        exempt_labels: Jobs with one of these labels are reported, and nothing else.
        max_keep_s: For so long, from when it is asked, may a job be kept from being ended.
        requeue: Whether an ended job goes back to its queue.
        apps: Whether apps' instances are treated as other jobs; else they are reported, and nothing else.
    """

    warn_after_s: float = asks(1800.0, Seconds(1, MAX_S), about="of idleness, then a job is warned")
    return_after_s: float = asks(
        3600.0, Seconds(1, MAX_S), about="of idleness, then it is ended, with notice before"
    )
    busy_share: float = asks(
        0.05,
        Number(0.001, 0.5),
        about="idle is who is at work for no more than this part of the time, on none of its GPUs",
    )
    resume_s: float = asks(
        120.0, Seconds(1, MAX_S),
        about="of work, at twice `busy_share` or more, until idleness is forgotten; idle time takes from it",
    )  # fmt: skip
    start_grace_s: float = asks(
        600.0, Seconds(0, MAX_S), about="after a job's start, in which nothing counts"
    )
    policy: IdlePolicy = asks(IdlePolicy.REPORT, OneOf(IdlePolicy))
    exempt_labels: tuple[str, ...] = asks(
        (), Names(_LABEL, _LABEL_FORM), about="jobs with one of these labels are reported only"
    )
    max_keep_s: float = asks(
        28800.0,
        Seconds(0, MAX_S),
        about="the longest that a job is kept from that, from when it is asked",
    )
    requeue: bool = asks(False, Flag(), about="whether an ended job goes back to its queue")
    apps: bool = asks(
        False, Flag(), about="whether apps' instances are treated so, too; else they are reported only"
    )


IDLE_FIELDS: Final = declared(Idle, ())


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a queue, a user, or a user in a queue may have at once, and the most that one job may ask for.

    None: no limit of its own; those of queues above hold as well.
    """

    max_running: int | None = asks(None, Whole(0, 10**9), about="jobs that hold anything")
    max_submitted: int | None = asks(None, Whole(0, 10**9), about="jobs that wait or run")
    max_gpus: float | None = asks(None, Number(0, MAX_GPUS), about="GPUs held, by cost, of all pools")
    max_gpus_per_job: float | None = asks(None, Number(0, MAX_GPUS), about="GPUs of all its tasks")
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
    """Hours of the week in which some figures of a queue are others. What is left open is as it is outside of them; of
    a figure by pool, the pools that are not named.

    Attributes:
        begins, ends: Times of day, of the clock of `zone`; they go over midnight if `ends` is not after `begins`.
        days: Those on which they begin.
    """

    begins: str = field(metadata=asks_first(Text(_CLOCK, "a time of day, as 22:00"), key="from"))
    ends: str = field(metadata=asks_first(Text(_CLOCK_OR_END, "a time of day, as 06:00, or 24:00"), key="to"))
    days: tuple[Weekday, ...] = asks(tuple(Weekday), SomeOf(Weekday), about="on which they begin")
    zone: str = asks("UTC", ZONE)
    guarantee_gpus: Mapping[str, Guarantee] = asks({}, Guarantees())
    borrow_limit_gpus: Mapping[str, int] = asks({}, PerPool())
    lend_limit_gpus: Mapping[str, int] = asks({}, PerPool())
    limit_gpus: Mapping[str, int] = asks({}, PerPool())
    weight: int | None = asks(None, Whole(0, 1_000_000))
    band: int | None = asks(None, Whole(-1000, 1000))


HOURS_FIELDS: Final = declared(Hours, ())
#: The fields of a queue that its hours may change.
HOURS_FIGURES: Final = (
    "guarantee_gpus", "borrow_limit_gpus", "lend_limit_gpus", "limit_gpus", "weight", "band",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue, as it is written. None: as the queue above it, and the root as `ROOT_SPEC`."""

    guarantee_gpus: Mapping[str, Guarantee] = asks({}, Guarantees(), about="what it is owed")
    borrow_limit_gpus: Mapping[str, int] = asks({}, PerPool(), about="the most beyond that")
    lend_limit_gpus: Mapping[str, int] = asks(
        {}, PerPool(), about="the most of it that others may have while it is idle"
    )
    limit_gpus: Mapping[str, int] = asks({}, PerPool(), about="the most that it may hold")
    pools: tuple[str, ...] | None = asks(
        None, Names(NAME, NAME_FORM), about="those that its jobs may use, the first choice first"
    )
    overflow_after_s: float | None = asks(
        None, Seconds(0, MAX_S), about="so long a job waits before it may use the next of its pools"
    )
    hours: tuple[Hours, ...] = asks((), HoursOfWeek(), about="when some figures are others")
    weight: int = asks(1, Whole(0, 1_000_000), about="its part of what is left over")
    band: int = asks(0, Whole(-1000, 1000), about="of higher bands, queues get what is left over first")
    reclaim: Reclaim | None = asks(None, OneOf(Reclaim), about="whose jobs are stopped for what it is owed")
    fence: bool = asks(False, Flag(), about="nobody outside of it stops its jobs, nor it theirs")
    min_runtime_s: MinRuntime | None = asks(None, Runtimes())
    patience: float | None = asks(
        None,
        Number(0, 1000),
        about="GPU seconds of waiting that weigh as one of lost work; 0: none is waited for",
    )
    stop: Stop = asks(Stop.NONE, OneOf(Stop))
    order: LineOrder | None = asks(None, OneOf(LineOrder))
    notice_s: float | None = asks(None, Seconds(0, 86400), about="between a notice and SIGTERM")
    borrow_for_s: float | None = asks(
        None, Seconds(0, MAX_S), about="jobs that are not preemptible borrow if they end within it"
    )
    starve_after_s: float | None = asks(
        None, Seconds(1, MAX_S), about="then its first job has a reservation whatever its share"
    )
    limits: Limits = field(default=NO_LIMITS)  # of all its jobs together
    users: Mapping[str, Limits] = asks({}, LimitsByUser())
    user_shares: Mapping[str, int] = asks({}, Weights())
    default_timeout_s: float | None = asks(None, Seconds(0, MAX_S, above=True))
    default_priority: int | None = asks(None, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY))
    budget: Budget | None = asks(None, Budgets())
    user_budgets: Mapping[str, Budget] = asks({}, BudgetsByUser())
    idle: Idle | None = asks(None, IdleRules(), about="what becomes of jobs whose GPUs do nothing")
    image_secret: str | None = asks(
        None,
        SecretPath(SOURCE, SOURCE_FORM),
        about="secret with logins for registries, for images of jobs that name none of their own",
    )


QUEUE_FIELDS: Final = declared(QueueSpec, ())
LIMIT_FIELDS: Final = declared(Limits, ())


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a queue that leaves them open takes from the one above it, and the root has."""

    reclaim: Reclaim = Reclaim.ANY
    min_runtime_s: MinRuntime = MinRuntime()
    patience: float = 0.0
    order: LineOrder = LineOrder.PRIORITY
    notice_s: float = 0.0
    borrow_for_s: float = 0.0
    starve_after_s: float = 86400.0
    default_timeout_s: float | None = None
    default_priority: int = 0
    pools: tuple[str, ...] | None = None  # every one that is not dedicated, in no order
    overflow_after_s: float = 0.0
    idle: Idle = Idle()
    image_secret: str | None = None


@dataclass(frozen=True, slots=True)
class JobClass:
    """A kind of work, which jobs name.

    Attributes:
        name: Of it.
        priority: Of its jobs that ask for none.
        preemptible: Whether its jobs may be stopped for others; None: as each says.
        charge_percent: What its jobs cost in use and budgets, of what others cost.
        max_timeout_s: The longest time limit; None: any.
        pools: Those that its jobs may use; empty: all.
        queues: Those whose jobs may name it, as patterns; empty: all.
        idle: What becomes of its jobs when their GPUs do nothing; None: as their queue says.
    """

    name: str
    priority: int | None = asks(None, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY))
    preemptible: bool | None = asks(None, Flag(), about="whether its jobs may be stopped for others")
    charge_percent: int = asks(100, Whole(0, 10_000), about="what its jobs cost, of what others cost")
    max_timeout_s: float | None = asks(None, Seconds(0, MAX_S, above=True), about="the longest time limit")
    pools: tuple[str, ...] = asks((), Names(NAME, NAME_FORM), about="those that its jobs may use")
    queues: tuple[str, ...] = asks((), Names(_PATTERN, _PATTERN_FORM), about="those whose jobs may name it")
    idle: Idle | None = asks(None, IdleRules(), about="what becomes of its jobs when their GPUs do nothing")


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are shared out together. A node is in the first pool, by name, all of whose conditions hold.

    Attributes:
        name: Of it.
        models: Names of models; a node of it has GPUs that these mean alone (`nodes.gpu_names`); empty: any.
        attributes: What its agent's attributes are, by name.
        constraints: What its agent is like, of those constraints of jobs that look at the agent alone.
        dedicated: Whether only queues that name it in their `pools` use it.
    """

    name: str
    models: tuple[str, ...] = asks(
        (), Models(), about="names of GPU models, as A100: a node of it has GPUs that these mean alone"
    )
    attributes: Mapping[str, str] = asks(
        {}, Strings(LABEL_KEY, "NUL"), about="what its agent's attributes are, by name"
    )
    constraints: tuple[Constraint, ...] = asks(
        (), Constraints(), about="what its agent is like: IS, LIKE, UNLIKE, or CLUSTER with a value"
    )
    dedicated: bool = asks(False, Flag(), about="only queues that name it use it")


BUDGET_FIELDS: Final = declared(Budget, ())
CLASS_FIELDS: Final = declared(JobClass, ())
POOL_FIELDS: Final = declared(Pool, ())


@dataclass(frozen=True, slots=True)
class QueueDocument:
    """A version of the tree.

    Attributes:
        version: Grows by one with each change; 0: nobody has written one yet.
        at: When it was written, seconds since the epoch.
        by: Who wrote it.
        comment: Why.
        queues: By path, as research/vision; those above a queue are in it, too.
        pools: Beside the default one.
        gpu_cost: What a GPU costs beside others, by names of models (`nodes.gpu_names`): of several that mean it the
            most specific counts; 1 where none does.
        classes: By name.
        users: The limits of each user in all queues together; "*": of each that is not named.
        fairness: What is compared.
        half_life_s: After so long half of what was used is forgotten.
        history_percent: How much past use lowers a weight over what is guaranteed.
        overbook: Whether the guarantees may be more than there is; then they are scaled.
        reclaim_at: From then on jobs for which this version leaves no room in a guarantee are stopped for others as
            those that borrow, seconds since the epoch; None: those that ran already are not stopped for it.
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
        """Whether the document says nothing: it then has the effect of no document."""
        return replace(self, version=0, at=0.0, by="", comment="", reclaim_at=None) == NO_QUEUES

    def cost_of(self, model: str) -> int:
        """Return what a GPU of a model costs beside others."""
        if not self.gpu_cost:
            return 1
        if (cost := self.gpu_cost.get(model)) is not None:
            return cost
        name = most_specific(model, self.gpu_cost)
        return 1 if name is None else self.gpu_cost[name]

    def most_cost_of(self, names: Iterable[str]) -> int:
        """Return the most that a GPU costs of which only names are known that may mean it; no names: that of any."""
        asked = tuple(names)
        entries = [cost for entry, cost in self.gpu_cost.items() if any(means(name, entry) for name in asked)]
        return max([*entries, *map(self.cost_of, asked)] if asked else self.gpu_cost.values(), default=1)


NO_QUEUES: Final = QueueDocument()


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with a name of the IANA database; None if there is none.

    The database is a directory, so some unknown names raise OSError in `ZoneInfo`: ENAMETOOLONG if longer than 255
    characters, EISDIR for "Europe". These count as unknown.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
