"""Routes of usage by jobs: sums for reports, and single records."""

import asyncio
import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import JOB_SEE
from mesos_gpu.api.http.answers import invalid, json_answer, large_answer
from mesos_gpu.api.http.requests import SINCE, UNTIL, Flag, Number, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.spec import usage as shapes
from mesos_gpu.engine.reading.queues import unmet_demand
from mesos_gpu.errors import NotFound
from mesos_gpu.model.jobs.quota import PROOFLESS
from mesos_gpu.model.tenancy import Period
from mesos_gpu.model.usage import DAY_MS, MS, NEVER_MS, Account, Closed
from mesos_gpu.policy.accounts import sums as accounts
from mesos_gpu.policy.tenancy.periods import period_at
from mesos_gpu.ports import UseRecords
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.plain import clean

WAITS: Final = Flag("waits")
DEPTH: Final = Number("depth", 0, 1, 16)  # levels of queues; 0 for all
PERIODS: Final = tuple(each for each in Period if each is not Period.ONCE)
MAX_PERIODS: Final = 400  # latest periods in an answer
MAX_LENGTH: Final = {
    Period.DAY: 1,
    Period.WEEK: 7,
    Period.MONTH: 31,
    Period.QUARTER: 92,
    Period.YEAR: 366,
}  # days
_DAY_S: Final = DAY_MS // MS
_HOUR: Final = 1000 * MS * 3600  # thousandths times milliseconds
_AT_ONCE: Final = 2  # reports, each of which may use a CPU for a second
_PERCENTS: Final = (50, 90, 99)
_CSV: Final = "text/csv; charset=utf-8"
_FORMULA: Final = "=+-@\t\r"  # a spreadsheet takes a text that begins with one of these for a formula

Sees = Callable[[Account], bool]


def on_record(kept: UseRecords | None, what: str) -> UseRecords:
    """Return the records of usage.

    Raises:
        NotFound: There are none, as the state is not a file.
    """
    if kept is None:
        raise NotFound(
            f"this scheduler does not record {what}", remedy="records need a scheduler whose state is a file"
        )
    return kept


class UsageHandlers:
    """HTTP handlers of usage.

    Args:
        records: Records of usage; None if there are none.
        clock: Clock, in seconds since the epoch.
    """

    def __init__(
        self, scheduler: SchedulerApi, records: UseRecords | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._scheduler, self._kept, self._clock = scheduler, records, clock
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def show(self, request: Request) -> Response:
        """GET /v1/usage: sums of usage by groups."""
        by, spans, waits = _by(request), self._periods(request), WAITS.of(request)
        sees, records, depth = _sees(request), self._records, int(DEPTH.of(request))
        unmet = await result_of(self._scheduler.read_copy(lambda view: unmet_demand(view)))

        def seen(use: Iterable[accounts.Row]) -> Iterator[accounts.Row]:
            for account, figures in use:
                if sees(account):
                    yield accounts.shortened(account, depth), figures

        def asked() -> shapes.Usage:
            now_ms = int(self._clock() * MS)
            days = [spans[0][1], *(last for _, _, last in spans)]
            rows: list[shapes.UsageRow] = []
            for (begins, first, last), use in zip(spans, records.use(days, now_ms, waits=waits), strict=True):
                # Demand that is still waiting is not recorded yet.
                figures = [*use, *unmet] if first * DAY_MS <= now_ms < last * DAY_MS else use
                for key, sums in accounts.grouped(seen(figures), by).items():
                    rows.append(_row(begins, dict(zip(by, key, strict=True)), sums, waits))
            return {
                "since": spans[0][1] * _DAY_S,
                "until": spans[-1][2] * _DAY_S,
                "by": list(by),
                "rows": rows,
            }

        async with self._turn:
            return json_answer(await run_in_threadpool(asked))

    async def export(self, request: Request) -> Response:
        """GET /v1/usage/export: single records, as JSON or CSV."""
        form = request.query_params.get("format", "json")
        if form not in ("json", "csv"):
            raise invalid(Problem("/format", f"must be json or csv, got {form[:40]!r}"))
        now_ms = int(self._clock() * MS)
        since_ms, until_ms = int(SINCE.of(request) * MS), int(UNTIL.of(request) * MS)
        sees, records = _sees(request), self._records

        rest = records.records(since_ms, until_ms, now_ms)
        async with self._turn:
            # Raises an error before the answer begins.
            first = await run_in_threadpool(lambda: [*islice(rest, 1)])
            rows = (row for record in chain(first, rest) for row in _shown(record, sees))
            if form == "json":
                return await large_answer({"records": rows})
            return StreamingResponse(_lines(rows), media_type=_CSV)

    @property
    def _records(self) -> UseRecords:
        return on_record(self._kept, "use")

    def _periods(self, request: Request) -> list[tuple[float | None, int, int]]:
        """Return the requested periods, in order.

        Each has its beginning in seconds since the epoch (None if all days are one period), its first day, and the day
        after its last one.
        """
        now, text = self._clock(), request.query_params.get("period")
        if text is not None and text not in [period.value for period in PERIODS]:
            periods_text = ", ".join(period.value for period in PERIODS)
            raise invalid(Problem("/period", f"{text[:40]!r} is not one of {periods_text}"))
        since, until = SINCE.of(request), min(UNTIL.of(request), now + _DAY_S)
        first = int((since if SINCE.name in request.query_params else now - 30 * _DAY_S) // _DAY_S)
        last = max(int(-(-until // _DAY_S)), first + 1)
        if text is None:
            return [(None, first, last)]
        spans: list[tuple[float | None, int, int]] = []
        first = max(first, last - MAX_PERIODS * MAX_LENGTH[Period(text)])
        while first < last:
            span = period_at(Period(text), "UTC", first * _DAY_S)
            spans.append((span.begins, first, min(last, span.ends // _DAY_S)))
            first = span.ends // _DAY_S
        return spans[-MAX_PERIODS:]


def _by(request: Request) -> tuple[str, ...]:
    """Return the fields by which a query groups usage.

    Raises:
        Refusal: A field is not known.
    """
    names = tuple(dict.fromkeys(request.query_params.get("by", "queue").split(",")))
    unknown = [name for name in names if name not in accounts.GROUPS]
    if unknown:
        raise invalid(Problem("/by", f"{unknown[0][:40]!r} is not one of {', '.join(accounts.GROUPS)}"))
    return names


def _sees(request: Request) -> Sees:
    """Return a function that tells whether the caller sees the jobs of an account, with cached decisions."""
    rights, decisions = rights_of(request), dict[tuple[str, str, str], bool]()

    def sees(account: Account) -> bool:
        owner = "" if account.owner.endswith(PROOFLESS) else account.owner
        key = owner, account.queue, account.app if account.app.startswith("/") else ""
        if key not in decisions:
            decisions[key] = rights.may(JOB_SEE, Subject(*key))
        return decisions[key]

    return sees


def _row(begins: float | None, names: dict[str, str], sums: accounts.Figures, waits: bool) -> shapes.UsageRow:
    """Return the JSON of a group's usage."""
    p50, p90, p99 = [_seconds(accounts.percentile_ms(sums.waits, percent)) for percent in _PERCENTS]
    return {
        "period": begins,
        "owner": names.get("owner"),
        "queue": names.get("queue"),
        "app": names.get("app"),
        "job_class": names.get("class"),
        "model": names.get("model"),
        "pool": names.get("pool"),
        "spans": sums.spans,
        "gpu_hours": sums.gpu / _HOUR,
        "cost_hours": sums.cost / _HOUR,
        "charged_hours": sums.charged / _HOUR,
        "refunded_hours": sums.refunded / _HOUR,
        "borrowed_hours": sums.borrowed / _HOUR,
        "idle_hours": sums.idle / _HOUR,
        "busy_gpu_hours": sums.busy / _HOUR,
        "idle_gpu_hours": sums.unused / _HOUR,
        "unknown_gpu_hours": max(sums.gpu - sums.busy - sums.unused, 0) / _HOUR,
        "wanted_gpu_hours": sums.wanted / _HOUR,
        "returned": sums.returned,
        "lost_hours": sums.lost / _HOUR,
        "unmet_gpu_hours": sums.unmet / _HOUR,
        "started": sum(sums.waits.values()) if waits else None,
        "wait_p50_s": p50,
        "wait_p90_s": p90,
        "wait_p99_s": p99,
    }


def _seconds(wait_ms: int | None) -> float | None:
    return None if wait_ms is None else wait_ms / MS


def _shown(record: Closed, sees: Sees) -> Iterator[shapes.UsageRecord]:
    """Yield the records of a span's visible parts, one for each GPU model."""
    span = record.span
    held_ms = record.ends_ms - span.begins_ms
    for part in span.parts:
        if not sees(span.account(part)):
            continue
        figures = accounts.figures(record, part, 0, NEVER_MS)
        yield {
            "task_id": span.task_id,
            "job_id": span.job_id,
            "owner": span.owner or None,
            "queue": span.queue,
            "job_class": span.job_class or None,
            "app": span.app or None,
            "model": part.model or None,
            "pool": span.pool or None,
            "begins": span.begins_ms / MS,
            "ends": record.ends_ms / MS,
            "gpus": part.gpu_milli / 1000,
            "cost": part.cost_milli / 1000,
            "gpu_s": part.gpu_milli * held_ms / (1000 * MS),
            "wait_s": span.wait_ms / MS,
            "borrowed_s": held_ms / MS if span.borrowed else 0.0,
            "busy_gpu_s": figures.busy / (1000 * MS),
            "idle_gpu_s": figures.unused / (1000 * MS),
            "wanted_gpu_s": figures.wanted / (1000 * MS),
            "lost_s": record.lost_ms / MS,
            "refunded_s": record.refunded_ms / MS,
            "reason": record.reason.value,
        }


def _lines(records: Iterator[shapes.UsageRecord]) -> Iterator[str]:
    """Yield the lines of a CSV file, the header first."""
    names = list(shapes.UsageRecord.__annotations__)
    yield _line(names)
    for record in records:
        yield _line([_cell(value) for value in record.values()])


def _cell(value: Any) -> Any:
    """Return a cell of CSV, quoted if a spreadsheet would take its text for a formula."""
    if not isinstance(value, str):
        return value
    value = clean(value)
    return f"'{value}" if value.startswith(tuple(_FORMULA)) else value


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
