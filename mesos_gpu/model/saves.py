"""What is to be written to the store, as data, and how each noun that is saved is told from others.

`NOUNS` declares them. Stores (their tables, what they load, what they forget), the state that is restored, the order of
effects and what a turn of the engine saves follow from it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, RootVersion
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.past_jobs import PastJob
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.hook import KeptHooks, Sent
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.model.usage import BudgetUse, Closed, PastUse, Span, SpanWork

Key = tuple[Any, ...]


class Save:
    """An effect on the store. One of a noun has it, or its key, in its first fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SaveFramework(Save):
    """Remember the framework id: a restart must be a failover, not a new framework. "": Mesos has removed it, and the
    next start is a new one."""

    framework_id: str


@dataclass(frozen=True, slots=True)
class SaveTrust(Save):
    """The master's tasks were looked through: nothing that a state that may be old does not know is launched again."""


@dataclass(frozen=True, slots=True)
class SaveJob(Save):
    """Insert or replace."""

    job: Job


@dataclass(frozen=True, slots=True)
class SaveTask(Save):
    """Insert or replace."""

    task: Task


@dataclass(frozen=True, slots=True)
class SaveNode(Save):
    """Insert or replace."""

    node: Node


@dataclass(frozen=True, slots=True)
class ForgetJob(Save):
    """Delete a job that ended long ago, and its tasks."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class ForgetTask(Save):
    """Delete the record of a monitor that ended."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetNode(Save):
    """Delete a node that was lost long ago."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class SaveDrain(Save):
    """Insert or replace."""

    drain: Drain


@dataclass(frozen=True, slots=True)
class ForgetDrain(Save):
    """Delete: it is over."""

    target: Target
    name: str


@dataclass(frozen=True, slots=True)
class SaveCard(Save):
    """Insert or replace."""

    card: Card


@dataclass(frozen=True, slots=True)
class SaveServices(Save):
    """Replace all that is wanted of apps."""

    services: AppCatalog


@dataclass(frozen=True, slots=True)
class SaveAppVersion(Save):
    """Insert or replace."""

    found: AppVersion


@dataclass(frozen=True, slots=True)
class ForgetAppVersion(Save):
    """Delete: there are enough later ones, or the app is gone."""

    app_id: str
    version: float


@dataclass(frozen=True, slots=True)
class SaveRootVersion(Save):
    """Insert or replace."""

    found: RootVersion


@dataclass(frozen=True, slots=True)
class ForgetRootVersion(Save):
    """Delete: there are enough later ones."""

    version: float


@dataclass(frozen=True, slots=True)
class SaveDeployment(Save):
    """Insert or replace."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class ForgetDeployment(Save):
    """Delete: it is over."""

    id: str
    done: bool  # or it was ended before it was through


@dataclass(frozen=True, slots=True)
class SaveSplit(Save):
    """Insert or replace."""

    split: TrafficSplit


@dataclass(frozen=True, slots=True)
class ForgetSplit(Save):
    """Delete: a user does not want that service any more."""

    name: str


@dataclass(frozen=True, slots=True)
class SaveAccess(Save):
    """Insert or replace."""

    document: AccessDocument


@dataclass(frozen=True, slots=True)
class ForgetAccess(Save):
    """Delete: there are enough later ones."""

    version: int


@dataclass(frozen=True, slots=True)
class SaveQueues(Save):
    """Insert or replace."""

    document: QueueDocument


@dataclass(frozen=True, slots=True)
class ForgetQueues(Save):
    """Delete: there are enough later ones."""

    version: int


@dataclass(frozen=True, slots=True)
class SavePastUse(Save):
    """Insert or replace."""

    use: PastUse


@dataclass(frozen=True, slots=True)
class ForgetPastUse(Save):
    """Delete: nothing of it is left, or its queue is gone."""

    queue: str
    user: str


@dataclass(frozen=True, slots=True)
class SaveSpan(Save):
    """Insert or replace."""

    span: Span


@dataclass(frozen=True, slots=True)
class SaveSpanWork(Save):
    """Insert or replace."""

    work: SpanWork


@dataclass(frozen=True, slots=True)
class ForgetSpanWork(Save):
    """Delete: it is in the record of its span."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetSpan(Save):
    """Delete: the task holds nothing more."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class SaveBudgetUse(Save):
    """Insert or replace."""

    use: BudgetUse


@dataclass(frozen=True, slots=True)
class ForgetBudgetUse(Save):
    """Delete: there are enough later periods, or the budget is gone."""

    queue: str
    user: str
    index: int


@dataclass(frozen=True, slots=True)
class KeepRecord(Save):
    """Write a span that is over, once: what is written already stays. No part of the state, reports read it."""

    record: Closed


@dataclass(frozen=True, slots=True)
class FoldRecords(Save):
    """Delete records that ended before a time; the sums of their days stay."""

    before_ms: int


@dataclass(frozen=True, slots=True)
class KeepJob(Save):
    """Write what is remembered of a job that has ended when it is forgotten. No part of the state, its history."""

    job: PastJob


@dataclass(frozen=True, slots=True)
class KeepEvent(Save):
    """Write an event, once. No part of the state: whoever listens reads it, also after a restart."""

    event: LogEvent


@dataclass(frozen=True, slots=True)
class ForgetEvents(Save):
    """Delete events up to a number: there are enough later ones."""

    up_to: int


@dataclass(frozen=True, slots=True)
class KeepHooks(Save):
    """Replace what is kept of webhooks. No part of the engine's state: who sends to them reads it at the start."""

    hooks: KeptHooks


@dataclass(frozen=True, slots=True)
class KeepSent(Save):
    """Replace what is kept of how far events were sent to webhooks."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class SaveToken(Save):
    """Insert or replace."""

    token: Token


@dataclass(frozen=True, slots=True)
class ForgetToken(Save):
    """Delete: it was revoked, or expired long ago."""

    id: str


@dataclass(frozen=True, slots=True)
class SaveArray(Save):
    """Insert or replace."""

    array: JobArray


@dataclass(frozen=True, slots=True)
class ForgetArray(Save):
    """Delete an array that ended long ago; its members go as jobs do."""

    array_id: JobId


@dataclass(frozen=True, slots=True)
class SaveIdleness(Save):
    """Insert or replace."""

    idleness: Idleness


@dataclass(frozen=True, slots=True)
class ForgetIdleness(Save):
    """Delete: it is at work, and nobody keeps it from anything."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class SaveBooking(Save):
    """Insert or replace."""

    booking: Booking


@dataclass(frozen=True, slots=True)
class ForgetBooking(Save):
    """Delete: it ended long ago."""

    id: str


@dataclass(frozen=True, slots=True)
class SaveVolume(Save):
    """Insert or replace."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class ForgetVolume(Save):
    """Delete: its directory was removed."""

    id: str


@dataclass(frozen=True, slots=True)
class Saved:
    """All that a store holds: jobs by their sequence, tasks by their launch."""

    framework_id: str | None
    jobs: tuple[Job, ...]
    tasks: tuple[Task, ...]
    nodes: tuple[Node, ...]
    drains: tuple[Drain, ...] = ()
    cards: tuple[Card, ...] = ()
    catalog: AppCatalog = field(default_factory=AppCatalog)
    app_versions: tuple[AppVersion, ...] = ()  # by time
    deployments: tuple[Deployment, ...] = ()
    splits: tuple[TrafficSplit, ...] = ()  # by name
    roots: tuple[RootVersion, ...] = ()  # by time
    access_versions: tuple[AccessDocument, ...] = ()  # by version
    queue_versions: tuple[QueueDocument, ...] = ()  # by version
    past_uses: tuple[PastUse, ...] = ()  # by queue and user
    spans: tuple[Span, ...] = ()  # that are open, by task
    span_works: tuple[SpanWork, ...] = ()  # of these
    budget_uses: tuple[BudgetUse, ...] = ()  # by queue, user and period
    tokens: tuple[Token, ...] = ()  # by id
    hooks: KeptHooks | None = None
    sent: Sent | None = None
    arrays: tuple[JobArray, ...] = ()  # by sequence
    idlenesses: tuple[Idleness, ...] = ()  # by job
    bookings: tuple[Booking, ...] = ()  # by id
    volumes: tuple[PersistentVolume, ...] = ()  # by id
    doubtful: bool = (
        False  # it may be older than what runs: nothing is launched before the master's tasks are known
    )


@dataclass(frozen=True, slots=True)
class Noun:
    """A type whose values are saved.

    Attributes:
        kind: The type.
        name: What one is called in messages.
        plural: Field of `Saved`, and of the part of the engine's state that owns it.
        save: The effect that inserts or replaces one.
        forget: The effect that deletes one by its key; None: none is ever forgotten.
        columns: What stores search by: a column's name and the attribute that is in it, as "app.id".
        key: The columns that tell one from another; (): there is one, and it is always there.
        order: The columns that they are loaded in the order of.
        table: Of SQLite, or the fact that has the only one; "": as `plural`.
        owner: The type of which each is a part, and goes with it; None: it stands alone.
        owned_by: The column with the owner's key.
    """

    kind: type[Any]
    name: str
    plural: str
    save: type[Any]
    forget: type[Any] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    table: str = ""
    owner: type[Any] | None = None
    owned_by: str = ""


_BY_VERSION: Final = ({"version": "version"}, ("version",), ("version",))
NOUNS: Final = (
    Noun(
        Job, "job", "jobs", SaveJob, ForgetJob,
        {"id": "id", "sequence": "sequence"}, ("id",), ("sequence", "id"),
    ),
    Noun(
        Task, "task", "tasks", SaveTask, ForgetTask,
        {"id": "id", "job_id": "job_id", "launched_at": "launched_at"},
        ("id",), ("launched_at", "id"), owner=Job, owned_by="job_id",
    ),
    Noun(Node, "node", "nodes", SaveNode, ForgetNode, {"id": "id"}, ("id",), ("id",)),
    Noun(
        Drain, "drain", "drains", SaveDrain, ForgetDrain,
        {"target": "target", "name": "name"}, ("target", "name"), ("target", "name"),
    ),
    Noun(Card, "card", "cards", SaveCard, None, {"id": "id"}, ("id",), ("id",)),
    Noun(AppCatalog, "catalog of apps", "catalog", SaveServices, table="services"),
    Noun(
        AppVersion, "app version", "app_versions", SaveAppVersion, ForgetAppVersion,
        {"app_id": "app.id", "version": "version"}, ("app_id", "version"), ("app_id", "version"),
    ),
    Noun(
        RootVersion, "root version", "roots", SaveRootVersion, ForgetRootVersion,
        {"version": "version"}, ("version",), ("version",), table="root_versions",
    ),
    Noun(
        Deployment, "deployment", "deployments", SaveDeployment, ForgetDeployment,
        {"id": "id", "version": "version"}, ("id",), ("version", "id"),
    ),
    Noun(TrafficSplit, "split", "splits", SaveSplit, ForgetSplit, {"name": "name"}, ("name",), ("name",)),
    Noun(AccessDocument, "access document", "access_versions", SaveAccess, ForgetAccess, *_BY_VERSION),
    Noun(QueueDocument, "document of queues", "queue_versions", SaveQueues, ForgetQueues, *_BY_VERSION),
    Noun(
        PastUse, "past use", "past_uses", SavePastUse, ForgetPastUse,
        {"queue": "queue", "user": "user"}, ("queue", "user"), ("queue", "user"),
    ),
    Noun(Span, "span", "spans", SaveSpan, ForgetSpan, {"task_id": "task_id"}, ("task_id",), ("task_id",)),
    Noun(
        SpanWork, "work of a span", "span_works", SaveSpanWork, ForgetSpanWork,
        {"task_id": "task_id"}, ("task_id",), ("task_id",),
    ),
    Noun(
        BudgetUse, "use of a budget", "budget_uses", SaveBudgetUse, ForgetBudgetUse,
        {"queue": "queue", "user": "user", "period": "index"},
        ("queue", "user", "period"), ("queue", "user", "period"),
    ),
    Noun(Token, "token", "tokens", SaveToken, ForgetToken, {"id": "id"}, ("id",), ("id",)),
    Noun(
        JobArray, "job array", "arrays", SaveArray, ForgetArray,
        {"id": "id", "sequence": "sequence"}, ("id",), ("sequence", "id"),
    ),
    Noun(
        Idleness, "idleness", "idlenesses", SaveIdleness, ForgetIdleness,
        {"job_id": "job_id"}, ("job_id",), ("job_id",), owner=Job, owned_by="job_id",
    ),
    Noun(Booking, "booking", "bookings", SaveBooking, ForgetBooking, {"id": "id"}, ("id",), ("id",)),
    Noun(PersistentVolume, "volume", "volumes", SaveVolume, ForgetVolume, {"id": "id"}, ("id",), ("id",)),
)  # fmt: skip
NOUN_OF: Final[Mapping[type[Any], Noun]] = {noun.kind: noun for noun in NOUNS}
SAVED_BY: Final[Mapping[type[Save], Noun]] = {noun.save: noun for noun in NOUNS}
FORGOTTEN_BY: Final[Mapping[type[Save], Noun]] = {noun.forget: noun for noun in NOUNS if noun.forget}
SAVES: Final[tuple[type[Save], ...]] = (
    SaveFramework,
    SaveTrust,
    *SAVED_BY,
    *FORGOTTEN_BY,
    KeepRecord,
    FoldRecords,
    KeepJob,
    KeepEvent,
    ForgetEvents,
    KeepHooks,
    KeepSent,
)  # all that there are


def _getter(paths: Iterable[str]) -> Callable[[Any], Key]:
    parts = [attrgetter(path) for path in paths]
    return lambda value: tuple([part(value) for part in parts])


def _names(effect: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(effect))


_VALUE: Final = {noun.save: attrgetter(_names(noun.save)[0]) for noun in NOUNS}
_KEY: Final = {noun.kind: _getter(noun.columns[name] for name in noun.key) for noun in NOUNS}
_COLUMNS: Final = {noun.kind: _getter(noun.columns.values()) for noun in NOUNS}
_ABOUT: Final[Mapping[type, Callable[[Any], Key]]] = {
    **{
        noun.save: _getter([f"{_names(noun.save)[0]}.{noun.columns[name]}" for name in noun.key])
        for noun in NOUNS
    },
    **{
        noun.forget: _getter(_names(noun.forget)[: len(noun.key)])
        for noun in NOUNS
        if noun.forget is not None
    },
    KeepRecord: _getter(("record.span.task_id", "record.span.begins_ms")),
    KeepJob: _getter(("job.id",)),
    KeepEvent: _getter(("event.number",)),
}
_SUBJECT: Final = {kind: kind.__name__ for kind in SAVES} | {
    kind: noun.name for noun in NOUNS for kind in (noun.save, noun.forget) if kind is not None
}


def value_of(save: Save) -> Any:
    """The value that a save of a noun inserts or replaces."""
    return _VALUE[type(save)](save)


def columns_of(save: Save) -> Key:
    """What stores search the value of a save by, in the order of its noun's columns."""
    return _COLUMNS[SAVED_BY[type(save)].kind](value_of(save))


def key_of(value: Any) -> Key:
    """What tells a value of a noun from others; (): there is one."""
    return _KEY[type(value)](value)


def dict_key(key: Key) -> Any:
    """A key as dicts of values have it: its only part, or the whole."""
    return key[0] if len(key) == 1 else key


def about(save: Save) -> Key:
    """The key of what is saved or forgotten; (): there is one."""
    getter = _ABOUT.get(type(save))
    return () if getter is None else getter(save)


def subject(save: Save) -> tuple[str, str]:
    """What a save is about, in words: of several saves of one subject only the latest matters."""
    words = [str(part.value) if isinstance(part, Enum) else str(part) for part in about(save)]
    return _SUBJECT[type(save)], " ".join(words)


def latest_of(effects: Iterable[Any]) -> Collection[Save]:
    """The saves among effects, of several of one subject the latest, which is as late as that."""
    latest: dict[tuple[str, Key], Save] = {}
    for effect in effects:
        if (name := _SUBJECT.get(type(effect))) is not None:
            latest.pop(key := (name, about(effect)), None)
            latest[key] = effect
    return latest.values()
