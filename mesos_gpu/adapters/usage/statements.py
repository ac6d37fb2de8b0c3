"""SQL statements that write records of GPU use, of ended jobs and of events, within the state's own transaction."""

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
#: A batch may be given again after it was written: an existing record stays.
_RECORD: Final = """INSERT OR IGNORE INTO used_spans
SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM used_accounts
WHERE owner = ? AND queue = ? AND job_class = ? AND app = ? AND model = ? AND pool = ?"""
#: Only if the preceding statement has changed something: then all statements of a chain apply to new records only.
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
#: Rows with checksums return them, so that their sum can be updated.
_JOBS_GONE: Final = "DELETE FROM past_jobs WHERE ended_ms <= ? RETURNING substr(body, -8)"
_JOB_GONE: Final = "DELETE FROM past_jobs WHERE id = ? RETURNING substr(body, -8)"
_JOB: Final = "INSERT INTO past_jobs VALUES (?, ?, ?) RETURNING substr(body, -8)"
_EVENT_GONE: Final = "DELETE FROM events WHERE number = ? RETURNING substr(body, -8)"
_EVENT: Final = "INSERT INTO events VALUES (?, ?) RETURNING substr(body, -8)"
_EVENTS_GONE: Final = "DELETE FROM events WHERE number <= ? RETURNING substr(body, -8)"
_EVENTS: Final = "SELECT number, body FROM events ORDER BY number"


def kept(save: KeepRecord) -> Iterator[Statement]:
    """Yield the statements that write a record and its part of each day, for each model of GPUs.

    The account's statement precedes the record's, which precedes those of its days: see `_DAY`.
    """
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
        for day, day_figures in by_day(record, part):
            yield _DAY, (day, *(getattr(day_figures, name) for name in AMOUNTS), *account)
        if waited:
            yield _WAIT, (step_of(span.wait_ms), span.begins_ms // DAY_MS, *account)


def folded(save: FoldRecords) -> Iterator[Statement]:
    """Yield the statements that delete records which are aggregated by day, and old jobs that ended before."""
    yield _GONE, (save.before_ms,)
    yield _JOBS_GONE, (save.before_ms,)
    yield from fact("folded_ms", str(save.before_ms))


def remembered(save: KeepJob | KeepEvent | ForgetEvents) -> Iterator[Statement]:
    """Yield the statements that write or delete ended jobs and events, which are not part of the loaded state."""
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
    """Return the stored events, by number."""
    decoder = msgspec.json.Decoder(LogEvent)
    return [decoder.decode(opened("events", (number,), body)) for number, body in db.execute(_EVENTS)]
