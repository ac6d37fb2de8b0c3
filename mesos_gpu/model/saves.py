"""Effects on the store, as data, and the declarations of all types whose values are saved.

`NOUNS` declares these types. Stores (their tables, what they load and delete), the restored state, the order of effects
and what a turn of the engine saves are derived from it.
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
from mesos_gpu.model.tasks.hook import Sent, StoredHooks
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.model.usage import BudgetUse, Closed, PastUse, Span, SpanWork

Key = tuple[Any, ...]


class Save:
    """Base of all effects on the store. An effect for a saved type has the value, or its key, in its first fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SaveFramework(Save):
    """Save the framework id, so that a restart is a failover. "" after Mesos removed it, so that a new one is made."""

    framework_id: str


@dataclass(frozen=True, slots=True)
class SaveTrust(Save):
    """Mark the state as trusted, after the master's tasks were compared with it: none is launched twice."""


@dataclass(frozen=True, slots=True)
class SaveJob(Save):
    """Insert or replace a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class SaveTask(Save):
    """Insert or replace a task."""

    task: Task


@dataclass(frozen=True, slots=True)
class SaveNode(Save):
    """Insert or replace a node."""

    node: Node


@dataclass(frozen=True, slots=True)
class ForgetJob(Save):
    """Delete a job that ended long ago, and its tasks."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class ForgetTask(Save):
    """Delete the task of a monitor that ended."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetNode(Save):
    """Delete a node that was lost long ago."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class SaveDrain(Save):
    """Insert or replace a drain."""

    drain: Drain


@dataclass(frozen=True, slots=True)
class ForgetDrain(Save):
    """Delete a drain that is over."""

    target: Target
    name: str


@dataclass(frozen=True, slots=True)
class SaveCard(Save):
    """Insert or replace the record of a GPU."""

    card: Card


@dataclass(frozen=True, slots=True)
class SaveServices(Save):
    """Replace the tree of apps and the times of its changes."""

    services: AppCatalog


@dataclass(frozen=True, slots=True)
class SaveAppVersion(Save):
    """Insert or replace a version of an app."""

    found: AppVersion


@dataclass(frozen=True, slots=True)
class ForgetAppVersion(Save):
    """Delete a version of an app that has enough later ones, or whose app was deleted."""

    app_id: str
    version: float


@dataclass(frozen=True, slots=True)
class SaveRootVersion(Save):
    """Insert or replace a version of the tree of groups."""

    found: RootVersion


@dataclass(frozen=True, slots=True)
class ForgetRootVersion(Save):
    """Delete a version of the tree of groups that has enough later ones."""

    version: float


@dataclass(frozen=True, slots=True)
class SaveDeployment(Save):
    """Insert or replace a deployment."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class ForgetDeployment(Save):
    """Delete a deployment that is over."""

    id: str
    done: bool  # False if it was stopped before it was complete


@dataclass(frozen=True, slots=True)
class SaveSplit(Save):
    """Insert or replace a traffic split."""

    split: TrafficSplit


@dataclass(frozen=True, slots=True)
class ForgetSplit(Save):
    """Delete a traffic split that a user has removed."""

    name: str


@dataclass(frozen=True, slots=True)
class SaveAccess(Save):
    """Insert or replace a version of the access document."""

    document: AccessDocument


@dataclass(frozen=True, slots=True)
class ForgetAccess(Save):
    """Delete a version of the access document that has enough later ones."""

    version: int


@dataclass(frozen=True, slots=True)
class SaveQueues(Save):
    """Insert or replace a version of the queue document."""

    document: QueueDocument


@dataclass(frozen=True, slots=True)
class ForgetQueues(Save):
    """Delete a version of the queue document that has enough later ones."""

    version: int


@dataclass(frozen=True, slots=True)
class SavePastUse(Save):
    """Insert or replace the decayed past use of a user in a queue."""

    use: PastUse


@dataclass(frozen=True, slots=True)
class ForgetPastUse(Save):
    """Delete past use that has decayed to nothing or whose queue was deleted."""

    queue: str
    user: str


@dataclass(frozen=True, slots=True)
class SaveSpan(Save):
    """Insert or replace an open span of use."""

    span: Span


@dataclass(frozen=True, slots=True)
class SaveSpanWork(Save):
    """Insert or replace the measured GPU work of an open span."""

    work: SpanWork


@dataclass(frozen=True, slots=True)
class ForgetSpanWork(Save):
    """Delete the measured work of a span that is closed, as the record of the span contains it."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetSpan(Save):
    """Delete an open span whose task holds nothing more."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class SaveBudgetUse(Save):
    """Insert or replace the use of a budget in one period."""

    use: BudgetUse


@dataclass(frozen=True, slots=True)
class ForgetBudgetUse(Save):
    """Delete the use of a budget period that has enough later ones, or whose budget was deleted."""

    queue: str
    user: str
    index: int


@dataclass(frozen=True, slots=True)
class KeepRecord(Save):
    """Append the record of a closed span, once; an existing record stays as it is. Only reports read it, not the
    engine."""

    record: Closed


@dataclass(frozen=True, slots=True)
class FoldRecords(Save):
    """Delete records of spans that ended before a time, and keep their sums by day."""

    before_ms: int


@dataclass(frozen=True, slots=True)
class KeepJob(Save):
    """Append the record of an ended job to the history when the job is dropped from the live state."""

    job: PastJob


@dataclass(frozen=True, slots=True)
class KeepEvent(Save):
    """Append an event, once. Listeners read events, also after a restart; the engine does not."""

    event: LogEvent


@dataclass(frozen=True, slots=True)
class ForgetEvents(Save):
    """Delete events up to a number, as there are enough later ones."""

    up_to: int


@dataclass(frozen=True, slots=True)
class KeepHooks(Save):
    """Replace the configuration of webhooks. The sender reads it at its start; the engine does not."""

    hooks: StoredHooks


@dataclass(frozen=True, slots=True)
class KeepSent(Save):
    """Replace the record of how far events were sent to webhooks."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class SaveToken(Save):
    """Insert or replace an access token."""

    token: Token


@dataclass(frozen=True, slots=True)
class ForgetToken(Save):
    """Delete a token that was revoked, or that expired long ago."""

    id: str


@dataclass(frozen=True, slots=True)
class SaveArray(Save):
    """Insert or replace a job array."""

    array: JobArray


@dataclass(frozen=True, slots=True)
class ForgetArray(Save):
    """Delete an array that ended long ago; its members are deleted as other jobs are."""

    array_id: JobId


@dataclass(frozen=True, slots=True)
class SaveIdleness(Save):
    """Insert or replace the idleness of a job."""

    idleness: Idleness


@dataclass(frozen=True, slots=True)
class ForgetIdleness(Save):
    """Delete the idleness of a job that works and is not kept from being ended."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class SaveBooking(Save):
    """Insert or replace a booking."""

    booking: Booking


@dataclass(frozen=True, slots=True)
class ForgetBooking(Save):
    """Delete a booking that ended long ago."""

    id: str


@dataclass(frozen=True, slots=True)
class SaveVolume(Save):
    """Insert or replace a named volume."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class ForgetVolume(Save):
    """Delete a named volume whose directory was removed."""

    id: str


@dataclass(frozen=True, slots=True)
class Saved:
    """Everything that a store holds, as it is loaded at the start."""

    framework_id: str | None
    jobs: tuple[Job, ...]  # by sequence
    tasks: tuple[Task, ...]  # by launch time
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
    spans: tuple[Span, ...] = ()  # open spans, by task
    span_works: tuple[SpanWork, ...] = ()  # measured work of the open spans
    budget_uses: tuple[BudgetUse, ...] = ()  # by queue, user and period
    tokens: tuple[Token, ...] = ()  # by id
    hooks: StoredHooks | None = None
    sent: Sent | None = None
    arrays: tuple[JobArray, ...] = ()  # by sequence
    idlenesses: tuple[Idleness, ...] = ()  # by job
    bookings: tuple[Booking, ...] = ()  # by id
    volumes: tuple[PersistentVolume, ...] = ()  # by id
    # Whether the state may be older than what runs; then nothing is launched until the master's tasks are known.
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Noun:
    """Declaration of a type whose values are saved.

    Attributes:
        kind: The saved type.
        name: Name of one value in messages.
        plural: Field of `Saved`, and of the part of the engine's state that owns the values.
        save: Effect that inserts or replaces a value.
        forget: Effect that deletes a value by its key; None if values are never deleted.
        columns: Searchable columns of stores: column name to attribute path, such as "app.id".
        key: Columns of the primary key; () if there is exactly one value, which always exists.
        order: Columns by which values are sorted when loaded.
        table: Table in SQLite, or name of the fact that holds the only value; "" to use `plural`.
        owner: Type of the owner, with which values are deleted; None if they have no owner.
        owned_by: Column with the key of the owner.
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
)  # every kind of effect on the store


def _getter(paths: Iterable[str]) -> Callable[[Any], Key]:
    parts = [attrgetter(path) for path in paths]
    return lambda value: tuple([part(value) for part in parts])


def _names(effect: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(effect))


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
    """Return the value that a save effect inserts or replaces."""
    return _VALUE[type(save)](save)


def columns_of(save: Save) -> Key:
    """Return the values of the searchable columns for a save effect, in the order of the declared columns."""
    return _COLUMNS[SAVED_BY[type(save)].kind](value_of(save))


def key_of(value: Any) -> Key:
    """Return the key of a saved value; () for a type with exactly one value."""
    return _KEY[type(value)](value)


def dict_key(key: Key) -> Any:
    """Return a key as dicts of values use it: a single part alone, several parts as a tuple."""
    return key[0] if len(key) == 1 else key


def about(save: Save) -> Key:
    """Return the key of the value that an effect saves or deletes; () for a type with exactly one value."""
    getter = _ABOUT.get(type(save))
    return () if getter is None else getter(save)


def subject(save: Save) -> tuple[str, str]:
    """Return the type name and key, as texts, that an effect is about. Only the last effect on a subject matters."""
    words = [str(part.value) if isinstance(part, Enum) else str(part) for part in about(save)]
    return _SUBJECT[type(save)], " ".join(words)


def latest_of(effects: Iterable[Any]) -> Collection[Save]:
    """Return the last save of each subject among effects, ordered by the position of these last saves."""
    latest: dict[tuple[str, Key], Save] = {}
    for effect in effects:
        if (name := _SUBJECT.get(type(effect))) is not None:
            latest.pop(key := (name, about(effect)), None)
            latest[key] = effect
    return latest.values()
