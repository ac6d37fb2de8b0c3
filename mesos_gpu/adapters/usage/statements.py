"""How records of use, of jobs that have ended and of events are written in SQLite, as statements of the state's own
transaction."""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mesos_gpu.adapters.sqlite.seal import fact, opened, sealed
from mesos_gpu.model.saves import FoldRecords, ForgetEvents, KeepEvent, KeepJob, KeepRecord
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.usage import DAY_MS, MS, NEVER_MS, charged
from mesos_gpu.policy.accounts.sums import AMOUNTS, by_day, figures, step_of

Statement = tuple[str, tuple[Any, ...]]

_ACCOUNT: Final = """INSERT OR IGNORE INTO used_accounts (owner, queue, job_class, app, model, pool)
VALUES (?, ?, ?, ?, ?, ?)"""
#: A batch may be given again, after it was written: a record that is there stays.
_RECORD: Final = """INSERT OR IGNORE INTO used_spans
SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM used_accounts
WHERE owner = ? AND queue = ? AND job_class = ? AND app = ? AND model = ? AND pool = ?"""
#: Only if the statement before it has written something: so each of the chain has, if the record is new.
_DAY: Final = """INSERT INTO used_days
SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM used_accounts
WHERE owner = ? AND queue = ? AND job_class = ? AND app = ? AND model = ? AND pool = ? AND changes() > 0
ON CONFLICT (account, day) DO UPDATE SET spans = spans + excluded.spans, gpu = gpu + excluded.gpu,
    cost = cost + excluded.cost, charged = charged + excluded.charged, borrowed = borrowed + excluded.borrowed,
    idle = idle + excluded.idle, lost = lost + excluded.lost, refunded = refunded + excluded.refunded,
    unmet = unmet + excluded.unmet, busy = busy + excluded.busy, unused = unused + excluded.unused,
    wanted = wanted + excluded.wanted, returned = returned + excluded.returned"""
_WAIT: Final = """INSERT INTO used_waits SELECT id, ?, ?, 1 FROM used_accounts
WHERE owner = ? AND queue = ? AND job_class = ? AND app = ? AND model = ? AND pool = ? AND changes() > 0
ON CONFLICT (account, step, day) DO UPDATE SET jobs = jobs + 1"""
_GONE: Final = "DELETE FROM used_spans WHERE ends_ms <= ?"
#: What has checksums gives them back, so that their sum is kept up.
_JOBS_GONE: Final = "DELETE FROM past_jobs WHERE ended_ms <= ? RETURNING substr(body, -8)"
_JOB_GONE: Final = "DELETE FROM past_jobs WHERE id = ? RETURNING substr(body, -8)"
_JOB: Final = "INSERT INTO past_jobs VALUES (?, ?, ?) RETURNING substr(body, -8)"
_EVENT_GONE: Final = "DELETE FROM events WHERE number = ? RETURNING substr(body, -8)"
_EVENT: Final = "INSERT INTO events VALUES (?, ?) RETURNING substr(body, -8)"
_EVENTS_GONE: Final = "DELETE FROM events WHERE number <= ? RETURNING substr(body, -8)"
_EVENTS: Final = "SELECT number, body FROM events ORDER BY number"


def kept(save: KeepRecord) -> Iterator[Statement]:
    """What writes a record and its part of each day, for each model of GPUs. An account's statement comes before the
    record's, whose own comes before those of its days: see `_DAY`."""
    record, span = save.record, save.record.span
    for part in span.parts:
        account = tuple(span.account(part))
        yield _ACCOUNT, account
        whole = figures(record, part, 0, NEVER_MS)
        waited = span.wanted_milli > 0 and part == span.parts[0] and part.gpu_milli > 0
        yield (
            _RECORD,
            (
                span.begins_ms, record.ends_ms, part.gpu_milli, part.cost_milli,
                charged(part.cost_milli, span.charge_percent), int(span.borrowed), whole.unused,
                record.lost_ms, record.refunded_ms, span.wait_ms, span.wanted_milli, record.reason.value, span.task_id,
                span.job_id, whole.busy, whole.wanted, *account,
            ),
        )  # fmt: skip
        for day, each in by_day(record, part):
            yield _DAY, (day, *(getattr(each, name) for name in AMOUNTS), *account)
        if waited:
            yield _WAIT, (step_of(span.wait_ms), span.begins_ms // DAY_MS, *account)


def folded(save: FoldRecords) -> Iterator[Statement]:
    """What deletes records whose days are summed up, and those of jobs that ended before."""
    yield _GONE, (save.before_ms,)
    yield _JOBS_GONE, (save.before_ms,)
    yield from fact("folded_ms", str(save.before_ms))


def remembered(save: KeepJob | KeepEvent | ForgetEvents) -> Iterator[Statement]:
    """What writes, or deletes, what is no part of the state and is read beside it."""
    if isinstance(save, KeepJob):
        beside, body = (save.job.id, int(save.job.ended_at * MS)), msgspec.json.encode(save.job)
        yield _JOB_GONE, (save.job.id,)
        yield _JOB, (*beside, sealed("past_jobs", beside, body))
    elif isinstance(save, KeepEvent):
        number, body = save.event.number, msgspec.json.encode(save.event)
        yield _EVENT_GONE, (number,)
        yield _EVENT, (number, sealed("events", (number,), body))
    else:
        yield _EVENTS_GONE, (save.up_to,)


def events_of(db: sqlite3.Connection) -> list[LogEvent]:
    """Events that are kept, by number."""
    decoder = msgspec.json.Decoder(LogEvent)
    return [decoder.decode(opened("events", (number,), body)) for number, body in db.execute(_EVENTS)]
