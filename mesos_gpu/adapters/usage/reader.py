"""Records of GPU use for reports, read from the state's file while the scheduler writes it."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from mesos_gpu.adapters.sqlite.seal import number_of, opened
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.past_jobs import Held, PastJob
from mesos_gpu.model.usage import (
    DAY_MS,
    NEVER_MS,
    Account,
    Closed,
    MeasuredWork,
    Part,
    Span,
    SpanEnd,
    SpanWork,
)
from mesos_gpu.policy.accounts.sums import Figures, Row, rows

_BUSY_S: Final = 5.0
#: used_days is ordered by account, and only the requested days of each are looked up, so that the time does not depend
#: on the length of the history. CROSS keeps the planner from reading every row.
_DAYS: Final = """SELECT id, SUM(spans), SUM(gpu), SUM(cost), SUM(charged), SUM(borrowed), SUM(idle), SUM(lost),
SUM(refunded), SUM(unmet), SUM(busy), SUM(unused), SUM(wanted), SUM(returned)
FROM used_accounts CROSS JOIN used_days ON account = id AND day >= :first AND day < :last
GROUP BY id"""
_WAITS: Final = """SELECT account, step, SUM(jobs) FROM used_waits WHERE day >= :first AND day < :last
GROUP BY account, step"""
_RECORDS: Final = """SELECT begins_ms, ends_ms, gpu_milli, cost_milli, charged_milli, borrowed, unused, busy, wanted,
lost_ms, refunded_ms, wait_ms, wanted_milli, reason, task_id, job_id, owner, queue, job_class, app, model, pool
FROM used_spans JOIN used_accounts ON account = id WHERE ends_ms >= :since AND begins_ms < :until
ORDER BY ends_ms, task_id, model"""

_JOBS: Final = """SELECT id, ended_ms, body FROM past_jobs WHERE ended_ms >= :since AND ended_ms < :until
AND (ended_ms, id) < (:last, :id) ORDER BY ended_ms DESC, id DESC"""
_HELD: Final = """SELECT model, SUM(gpu_milli * (ends_ms - begins_ms)), SUM(gpu_milli * lost_ms),
SUM(unused) FROM used_spans JOIN used_accounts ON account = id WHERE job_id = ? GROUP BY model
ORDER BY model"""


class SqliteRecords:
    """`UseRecords` of a state file, which each call opens.

    Args:
        path: Path of the state file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def use(self, days: Sequence[int], now_ms: int, *, waits: bool = False) -> list[list[Row]]:
        """Return use by account for consecutive ranges of days: see `UseRecords`."""
        with self._read() as db:
            accounts = {id: Account(*names) for id, *names in db.execute("SELECT * FROM used_accounts")}
            running = list(_open(db, now_ms))
            return [
                [*_sums(db, accounts, first, last, waits), *rows(running, first * DAY_MS, last * DAY_MS)]
                for first, last in pairwise(days)
            ]

    def exact_since_ms(self) -> int:
        """Return the time since which single records exist: see `UseRecords`."""
        with self._read() as db:
            return number_of(db, "folded_ms")

    def records(self, since_ms: int, until_ms: int, now_ms: int) -> Iterator[Closed]:
        """Yield records of a time range: see `UseRecords`."""
        with self._read() as db:
            for row in db.execute(_RECORDS, {"since": since_ms, "until": until_ms}):
                yield _record(*row)
            for record in _open(db, now_ms):
                if record.ends_ms >= since_ms and record.span.begins_ms < until_ms:
                    yield record

    def past_jobs(
        self, since_ms: int, until_ms: int, before: tuple[int, str] | None = None
    ) -> Iterator[PastJob]:
        """Yield jobs that ended in a time range, the latest first: see `UseRecords`."""
        decoder, (last_ms, last_id) = msgspec.json.Decoder(PastJob), before or (NEVER_MS, "")
        parameters = {"since": since_ms, "until": until_ms, "last": last_ms, "id": last_id}
        with self._read() as db:
            for id, ended_ms, body in db.execute(_JOBS, parameters):
                yield decoder.decode(opened("past_jobs", (id, ended_ms), body))

    def held_by(self, jobs: Collection[JobId]) -> Mapping[JobId, Held]:
        """Return the GPU use of jobs: see `UseRecords`."""
        use_by_job: dict[JobId, Held] = {}
        with self._read() as db:
            for id in jobs:
                rows = db.execute(_HELD, (id,)).fetchall()
                if rows:
                    gpu, lost, idle = (sum(row[column] for row in rows) for column in (1, 2, 3))
                    use_by_job[id] = Held(gpu, lost, idle, tuple(model for model, *_ in rows if model))
        return use_by_job

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """Open the file with a read transaction, so that all queries see one state."""
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
            )
            with closing(db):
                db.execute("BEGIN")
                yield db
        except sqlite3.DatabaseError as error:
            raise Unavailable(
                f"the records of use in {self._path} cannot be read now: {error}", remedy="try again"
            ) from error


def _sums(
    db: sqlite3.Connection, accounts: Mapping[int, Account], first: int, last: int, waits: bool
) -> list[Row]:
    """Return the aggregated use of some days, by account."""
    days = {"first": first, "last": last}
    sums = {id: Figures(*figures) for id, *figures in db.execute(_DAYS, days)}
    for id, step, jobs in db.execute(_WAITS, days) if waits else ():
        sums.setdefault(id, Figures()).waits[step] = jobs
    return [(accounts[id], figures) for id, figures in sums.items()]


def _open(db: sqlite3.Connection, now_ms: int) -> Iterator[Closed]:
    """Yield open spans as if they ended now, without losses, as their end is not known."""
    decoder, works = msgspec.json.Decoder(Span), _works(db)
    for task_id, body in db.execute("SELECT task_id, body FROM spans ORDER BY task_id"):
        span = decoder.decode(opened("spans", (task_id,), body))
        yield Closed(span, max(span.begins_ms, now_ms), 0, 0, SpanEnd.RUNNING, works.get(task_id, ()))


def _works(db: sqlite3.Connection) -> dict[str, tuple[MeasuredWork, ...]]:
    """Return the GPU activity of open spans so far, by task."""
    decoder = msgspec.json.Decoder(SpanWork)
    rows = db.execute("SELECT task_id, body FROM span_works")
    return {task_id: decoder.decode(opened("span_works", (task_id,), body)).did for task_id, body in rows}


def _record(
    begins_ms: int, ends_ms: int, gpu_milli: int, cost_milli: int, charged_milli: int, borrowed: int, unused: int,
    busy: int, wanted: int, lost_ms: int, refunded_ms: int, wait_ms: int, wanted_milli: int, reason: str, task_id: str,
    job_id: str, *names: Any,
) -> Closed:  # fmt: skip
    """Return a row as a record of one part."""
    account = Account(*names)
    percent = -(-charged_milli * 100 // cost_milli) if cost_milli else 100
    span = Span(
        TaskId(task_id), JobId(job_id), account.owner, account.queue, account.job_class, account.app, account.pool,
        (Part(account.model, gpu_milli, cost_milli),), bool(borrowed), percent, begins_ms, wait_ms, wanted_milli,
    )  # fmt: skip
    did = (MeasuredWork(max(ends_ms - 1, begins_ms) // DAY_MS, account.model, busy, unused, wanted),)
    return Closed(span, ends_ms, lost_ms, refunded_ms, SpanEnd(reason), did)
