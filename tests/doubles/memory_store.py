"""A store in memory, with which `tests/chaos` compares the scheduler, and on which tests run one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from operator import attrgetter
from typing import Any

from mesos_gpu.model.apps.catalog import AppCatalog, Deployment
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.past_jobs import Held, PastJob
from mesos_gpu.model.saves import (
    FORGOTTEN_BY,
    NOUNS,
    SAVED_BY,
    FoldRecords,
    ForgetEvents,
    KeepEvent,
    KeepHooks,
    KeepJob,
    KeepRecord,
    KeepSent,
    Noun,
    Save,
    Saved,
    SaveFramework,
    SaveTrust,
    about,
    dict_key,
    key_of,
    value_of,
)
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.volume import PersistentVolume
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.model.usage import DAY_MS, MS, BudgetUse, Closed, PastUse, Span, SpanEnd, SpanWork
from mesos_gpu.policy.accounts.sums import Row, rows


class MemoryStore:
    """A `Store` in memory, with an attribute for each saved noun: values by their key."""

    catalog: AppCatalog
    jobs: dict[JobId, Job]
    tasks: dict[TaskId, Task]
    arrays: dict[JobId, JobArray]
    nodes: dict[AgentId, Node]
    drains: dict[tuple[Target, str], Drain]
    cards: dict[GpuId, Card]
    deployments: dict[str, Deployment]
    bookings: dict[str, Booking]
    volumes: dict[str, PersistentVolume]
    queue_versions: dict[int, QueueDocument]
    spans: dict[TaskId, Span]
    span_works: dict[TaskId, SpanWork]
    past_uses: dict[tuple[str, str], PastUse]
    budget_uses: dict[tuple[str, str, int], BudgetUse]

    def __init__(self, saved: Saved | None = None) -> None:
        given = saved or Saved(None, (), (), ())
        self.framework_id, self.doubtful = given.framework_id, given.doubtful
        self.kept: dict[tuple[TaskId, int], Closed] = {}  # records of use by task and begin; never summed up
        self.past: dict[JobId, PastJob] = {}
        self.happened: dict[int, LogEvent] = {}  # events by number
        self.hooks, self.sent = given.hooks, given.sent
        for noun in NOUNS:
            values = getattr(given, noun.plural)
            if noun.key:
                values = {dict_key(key_of(value)): value for value in values}
            setattr(self, noun.plural, values)

    def save(self, batch: Iterable[Save]) -> None:
        """Commit a batch, or nothing of it if reading the batch fails."""
        for item in tuple(batch):
            if (noun := SAVED_BY.get(type(item))) is not None:
                self._put(noun, value_of(item))
            elif isinstance(item, SaveFramework):
                self.framework_id = item.framework_id or None
            elif isinstance(item, SaveTrust):
                self.doubtful = False
            elif isinstance(item, KeepRecord):
                self.kept.setdefault((item.record.span.task_id, item.record.span.begins_ms), item.record)
            elif isinstance(item, KeepJob):
                self.past[item.job.id] = item.job
            elif isinstance(item, KeepEvent):
                self.happened[item.event.number] = item.event
            elif isinstance(item, ForgetEvents):
                self.happened = {n: event for n, event in self.happened.items() if n > item.up_to}
            elif isinstance(item, KeepHooks):
                self.hooks = item.hooks
            elif isinstance(item, KeepSent):
                self.sent = item.sent
            elif isinstance(item, FoldRecords):
                continue
            else:
                self._drop(FORGOTTEN_BY[type(item)], about(item))

    def confirm(self) -> None:
        """Do nothing: no other process writes to this store."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def events(self) -> list[LogEvent]:
        return [self.happened[number] for number in sorted(self.happened)]

    def use(self, days: Sequence[int], now_ms: int, *, waits: bool = False) -> list[list[Row]]:
        """Return rows of use by period, always with waits."""
        times = [(first * DAY_MS, last * DAY_MS) for first, last in pairwise(days)]
        return [list(rows(self.records(*time, now_ms), *time)) for time in times]

    def exact_since_ms(self) -> int:
        """Return 0: records are never summed up."""
        return 0

    def records(self, since_ms: int, until_ms: int, now_ms: int) -> Iterator[Closed]:
        ended = sorted(self.kept.values(), key=lambda each: (each.ends_ms, each.span.task_id))
        last = [
            Closed(
                span,
                max(span.begins_ms, now_ms),
                0,
                0,
                SpanEnd.RUNNING,
                self.span_works[span.task_id].did if span.task_id in self.span_works else (),
            )
            for span in self.spans.values()
        ]
        for record in (*ended, *last):
            if record.ends_ms >= since_ms and record.span.begins_ms < until_ms:
                yield record

    def past_jobs(
        self, since_ms: int, until_ms: int, before: tuple[int, str] | None = None
    ) -> Iterator[PastJob]:
        ended = sorted(((int(job.ended_at * MS), job.id, job) for job in self.past.values()), reverse=True)
        for ended_ms, id, job in ended:
            if since_ms <= ended_ms < until_ms and (before is None or (ended_ms, id) < before):
                yield job

    def held_by(self, jobs: Collection[JobId]) -> Mapping[JobId, Held]:
        held: dict[JobId, Held] = {}
        for record in self.kept.values():
            if record.span.job_id in jobs:
                held[record.span.job_id] = _more(held.get(record.span.job_id, Held()), record)
        return held

    def _put(self, noun: Noun, value: Any) -> None:
        if noun.key:
            getattr(self, noun.plural)[dict_key(key_of(value))] = value
        else:
            setattr(self, noun.plural, value)

    def _drop(self, noun: Noun, key: tuple[Any, ...]) -> None:
        getattr(self, noun.plural).pop(dict_key(key), None)
        for part in NOUNS:
            if part.owner is noun.kind:
                values, owner = getattr(self, part.plural), attrgetter(part.columns[part.owned_by])
                for own in [each for each, value in values.items() if owner(value) == dict_key(key)]:
                    del values[own]

    def load(self) -> Saved:
        """Return all that was saved, each noun in its order."""
        nouns = {noun.plural: self._in_order(noun) for noun in NOUNS}
        return Saved(self.framework_id, hooks=self.hooks, sent=self.sent, doubtful=self.doubtful, **nouns)

    def _in_order(self, noun: Noun) -> Any:
        values = getattr(self, noun.plural)
        if not noun.key:
            return values
        parts = [attrgetter(noun.columns[name]) for name in noun.order]
        return tuple(sorted(values.values(), key=lambda value: [_plain(part(value)) for part in parts]))


def _more(held: Held, record: Closed) -> Held:
    milli = sum(part.gpu_milli for part in record.span.parts)
    models = {part.model for part in record.span.parts if part.model}
    return Held(
        held.gpu + milli * (record.ends_ms - record.span.begins_ms),
        held.lost + milli * record.lost_ms,
        held.idle + sum(each.idle for each in record.did),
        tuple(sorted({*held.models, *models})),
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
