"""`python -m bench reports`: reports of one year, from a million records of use."""

import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import click

from bench.api import serving
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.client import Client
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.usage import DAY_MS, Closed, Part, Span, SpanEnd

_DAYS: Final = 365
_QUEUES: Final = 500
_OWNERS: Final = 4  # of each queue
_ROUNDS: Final = 3
_BATCH: Final = 10_000  # records of a transaction
_HOUR_MS: Final = DAY_MS // 24
#: Reports of the year, as `mesos-gpu report` asks for them.
_ASKED: Final = {
    "usage": {"by": "queue"},
    "usage by owner and model": {"by": "owner,model"},
    "usage by month": {"by": "queue", "depth": "1", "period": "month"},
    "usage by day": {"by": "queue", "depth": "1", "period": "day"},
    "wait": {"by": "queue", "waits": "true"},
    "wait by month": {"by": "queue", "depth": "1", "period": "month", "waits": "true"},
}
#: Use of each account, computed without the stored sums of days.
_ONE_BY_ONE: Final = (
    """SELECT account, SUM(cost_milli * (ends_ms - begins_ms)) FROM used_spans GROUP BY account"""
)


@click.command()
@click.option(
    "--records", default=1_000_000, show_default=True, type=click.IntRange(1), help="Records of one year."
)
@json_option
def reports(records: int, as_json: bool) -> None:
    """Save a year's records of 2,000 owners in 500 queues to disk, and measure reports of that year.

    The figures are milliseconds until the whole answer. Everything but the cluster, which is idle, is real.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as top:
        state, today = Path(top) / "state", int(time.time()) * 1000 // DAY_MS
        output.note(f"{records:,} records")
        kept_s = _keep(state, records, (today - _DAYS) * DAY_MS)
        result = {"record_kept_us": round(kept_s / records * 1e6, 1)}
        output.note("reports")
        with serving(_serve, state) as pipe, Client(pipe.recv()) as client:
            asked = {"since": (today - _DAYS) * DAY_MS / 1000, "until": today * DAY_MS / 1000}
            for name, query in _ASKED.items():
                took_ms = [_took_ms(client, {**asked, **query}) for _ in range(_ROUNDS)]
                result[f"{name}_ms"] = round(statistics.median(took_ms), 1)
        result["records_one_by_one_ms"] = round(_one_by_one_ms(state), 1)
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "VALUE"), list(result.items()), empty="")


def _keep(state: Path, records: int, from_ms: int) -> float:
    """Save records as the scheduler does; return the seconds."""
    from mesos_gpu.adapters.sqlite_store import SqliteStore

    store = SqliteStore(state)
    every, began = _records(records, from_ms), time.perf_counter()
    while batch := [KeepRecord(record) for record in islice(every, _BATCH)]:
        store.save(batch)
    took_s = time.perf_counter() - began
    store.close()
    return took_s


def _records(records: int, from_ms: int) -> Iterator[Closed]:
    """Yield records of jobs of 1 to 8 GPUs that run for two hours on average, by their begin."""
    chance = random.Random(0)
    for i in range(records):
        queue, gpu_milli = chance.randrange(_QUEUES), 1000 << chance.randrange(4)
        begins_ms = from_ms + i * _DAYS * DAY_MS // records
        lasts_ms, wait_ms = (int(chance.expovariate(1 / (hours * _HOUR_MS))) for hours in (2, 0.5))
        ends_ms = min(begins_ms + lasts_ms, from_ms + _DAYS * DAY_MS)
        span = Span(
            TaskId(f"t{i}"), JobId(f"j{i}"), f"user{chance.randrange(_OWNERS)}",
            f"q{queue % 5}/q{queue % 25}/q{queue % 100}/q{queue}", "", "", "",
            (Part("A100", gpu_milli, 2 * gpu_milli),), bool(i % 3), 100, begins_ms, wait_ms, gpu_milli,
        )  # fmt: skip
        yield Closed(span, ends_ms, 0, 0, SpanEnd.FINISHED)


def _serve(state: Path, pipe: Connection) -> None:
    """Serve until the pipe has a message."""
    from mesos_gpu import __version__
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.adapters.sqlite_store import SqliteStore
    from mesos_gpu.adapters.usage.reader import SqliteRecords
    from mesos_gpu.api.app import create_app
    from mesos_gpu.api.http.server import serve
    from mesos_gpu.api.settings import ApiSettings
    from mesos_gpu.engine import events as ev
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.ready_cluster import ReadyCluster

    clock, store = SystemClock(), SqliteStore(state)

    def put(event: ev.Event) -> None:
        daemon.put(event)

    cluster = ReadyCluster(1, put, clock.now)
    daemon = Daemon(store, store.load(), cluster, clock, Settings.of("executor", "monitor"))
    api = ApiSettings("http://127.0.0.1", __version__, records=SqliteRecords(state))
    server = serve(create_app(daemon, api), "127.0.0.1", 0)
    daemon.start()
    pipe.send(server.url)
    pipe.recv()
    server.stop()
    daemon.stop()


def _took_ms(client: Client, query: dict[str, object]) -> float:
    from mesos_gpu.api.spec.usage import Usage

    began = time.perf_counter()
    answer = client.call("GET", "/v1/usage", Usage, query)
    took_ms = (time.perf_counter() - began) * 1000
    assert answer["rows"], "there is something to report"
    return took_ms


def _one_by_one_ms(state: Path) -> float:
    db = sqlite3.connect(state)
    began = time.perf_counter()
    rows = db.execute(_ONE_BY_ONE).fetchall()
    took_ms = (time.perf_counter() - began) * 1000
    db.close()
    assert rows, "there are records"
    return took_ms
