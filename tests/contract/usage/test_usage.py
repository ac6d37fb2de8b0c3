"""What was used, as the interface and the command line tell it, and to whom."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Scope

from mesos_gpu.adapters.usage.reader import SqliteRecords
from mesos_gpu.cli.records.plot import bars
from mesos_gpu.model.access.caller import ANYBODY, Caller
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import KeepRecord, SaveSpan
from mesos_gpu.model.usage import DAY_MS, Closed, MeasuredWork, Part, Span, SpanEnd
from tests.contract.access.rig import AccessRig
from tests.contract.cli.cli_rig import call
from tests.doubles.memory_store import MemoryStore

DAY = 20_000
HOUR_MS = 3_600_000
AT = DAY * DAY_MS
SPAN = Span(
    TaskId("train.1"), JobId("train"), "ann", "research", "", "", "", (Part("A100", 8000, 16000),), True, 100, AT,
    600_000, 8000,
)  # fmt: skip
HOURS = 1000 * HOUR_MS
DID = (
    MeasuredWork(DAY, "A100", 96 * HOURS, 12 * HOURS, 4 * HOURS),
    MeasuredWork(DAY + 1, "A100", 4 * HOURS, 4 * HOURS),
)
OTHER = replace(SPAN, task_id=TaskId("=x.1"), job_id=JobId("=x"), owner="carl", queue="other", borrowed=False)
ASKED = {"since": DAY * 86400, "until": (DAY + 2) * 86400}


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    store = MemoryStore()
    store.save(
        [
            KeepRecord(Closed(SPAN, AT + 25 * HOUR_MS, HOUR_MS, HOUR_MS, SpanEnd.RECLAIM, DID)),
            KeepRecord(Closed(OTHER, AT + HOUR_MS, 0, 0, SpanEnd.FINISHED)),
        ]
    )
    rig = AccessRig(records=store)
    rig.bind(
        {"names": ["boss"], "roles": ["admin"]},
        {"names": ["ann"], "roles": ["user"], "queues": ["research"]},
        {"names": ["carl"], "roles": ["user"], "queues": ["other"]},
    )
    yield rig
    rig.close()


def test_use_is_summed_up_by_what_is_asked_for(rig: AccessRig) -> None:
    answer = rig.call(
        "boss", "GET", "/v1/usage", params={**ASKED, "by": "queue,model", "waits": "true"}
    ).json()
    assert (answer["since"], answer["until"], answer["by"]) == (*ASKED.values(), ["queue", "model"])
    other, research = answer["rows"]
    assert (research["queue"], research["model"], research["owner"], research["period"]) == (
        "research", "A100", None, None,
    )  # fmt: skip
    hours = {name: value for name, value in research.items() if name.endswith("_hours")}
    assert hours == {
        "gpu_hours": 200.0, "cost_hours": 400.0, "charged_hours": 400.0, "refunded_hours": 16.0,
        "borrowed_hours": 400.0, "idle_hours": 32.0, "busy_gpu_hours": 100.0, "idle_gpu_hours": 16.0,
        "unknown_gpu_hours": 84.0, "wanted_gpu_hours": 4.0, "lost_hours": 16.0, "unmet_gpu_hours": 8 / 6,
    }  # fmt: skip
    assert (other["gpu_hours"], other["borrowed_hours"], other["started"]) == (8.0, 0.0, 1)
    assert other["wait_p50_s"] == pytest.approx(600, rel=1 / 8)


def test_queues_are_summed_up_with_all_that_is_below_them() -> None:
    store = MemoryStore()
    for i, queue in enumerate(("research/a/x", "research/a/y", "research/b", "other")):
        span = replace(SPAN, task_id=TaskId(f"t{i}.1"), queue=queue)
        store.save([KeepRecord(Closed(span, AT + HOUR_MS, 0, 0, SpanEnd.FINISHED))])
    rig = AccessRig(records=store)
    rig.bind(
        {"names": ["boss"], "roles": ["admin"]},
        {"names": ["ann"], "roles": ["user"], "queues": ["research/a/x", "research/b"]},
    )

    def hours(who: str, depth: int) -> dict[str, float]:
        rows = rig.call(who, "GET", "/v1/usage", params={**ASKED, "depth": str(depth)}).json()["rows"]
        return {row["queue"]: row["gpu_hours"] for row in rows}

    assert hours("boss", 1) == {"other": 8, "research": 24}
    assert hours("boss", 2) == {"other": 8, "research/a": 16, "research/b": 8}
    assert hours("boss", 3) == {"other": 8, "research/a/x": 8, "research/a/y": 8, "research/b": 8}
    assert hours("ann", 1) == {"research": 16}, "only what she sees is in the sum"
    assert rig.call("boss", "GET", "/v1/usage", params={"depth": "0"}).status_code == 422
    rig.close()


def test_unmet_demand_is_the_demand_of_waiting_jobs(rig: AccessRig) -> None:
    body = {"name": "waits", "command": "true", "gpus": 4, "queue": "research"}
    assert rig.call("ann", "POST", "/v1/jobs", json=body).ok

    def rows(who: str, **asked: object) -> list[dict[str, Any]]:
        answer = rig.call(who, "GET", "/v1/usage", params={"by": "queue,owner", **asked})
        return list(answer.json()["rows"])

    rig.clock.time += 3600
    (row,) = rows("ann")
    assert (row["queue"], row["owner"], row["gpu_hours"], row["spans"]) == ("research", "ann", 0, 0)
    assert row["unmet_gpu_hours"] == pytest.approx(4)
    assert rows("carl") == [], "he does not see it"
    assert sum(row["unmet_gpu_hours"] for row in rows("boss", **ASKED)) == pytest.approx(16 / 6), (
        "that is over"
    )


def test_days_are_told_one_by_one(rig: AccessRig) -> None:
    rows = rig.call("boss", "GET", "/v1/usage", params={**ASKED, "by": "owner", "period": "day"}).json()[
        "rows"
    ]
    assert [(row["period"], row["owner"], row["gpu_hours"]) for row in rows] == [
        (DAY * 86400.0, "ann", 192.0), (DAY * 86400.0, "carl", 8.0), ((DAY + 1) * 86400.0, "ann", 8.0),
    ]  # fmt: skip


def test_usage_of_many_periods_tells_the_latest(rig: AccessRig) -> None:
    asked = {"since": 0, "until": (DAY + 1) * 86400, "period": "day"}
    answer = rig.call("boss", "GET", "/v1/usage", params=asked).json()
    assert answer["since"] == (DAY + 1 - 400) * 86400
    assert {row["period"] for row in answer["rows"]} == {DAY * 86400.0}


def test_usage_is_of_jobs_that_the_caller_sees(rig: AccessRig) -> None:
    for who, queues in (("boss", ["other", "research"]), ("ann", ["research"]), ("carl", ["other"])):
        answer = rig.call(who, "GET", "/v1/usage", params=ASKED).json()
        assert [row["queue"] for row in answer["rows"]] == queues
        records = rig.call(who, "GET", "/v1/usage/export").json()["records"]
        assert sorted(record["queue"] for record in records) == queues
    assert rig.call(None, "GET", "/v1/usage").status_code == 401


def test_records_are_told_as_csv_that_no_spreadsheet_computes(rig: AccessRig) -> None:
    answer = rig.call("boss", "GET", "/v1/usage/export", params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    first, second = csv.DictReader(io.StringIO(answer.text))
    assert (first["task_id"], first["gpu_s"], first["reason"]) == ("'=x.1", "28800.0", "finished")
    assert (second["borrowed_s"], second["lost_s"], second["wait_s"]) == ("90000.0", "3600.0", "600.0")
    assert (second["busy_gpu_s"], second["idle_gpu_s"], second["wanted_gpu_s"]) == (
        "360000.0",
        "57600.0",
        "14400.0",
    )


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=queue,user", "/by"),
        ("by=", "/by"),
        ("period=once", "/period"),
        ("waits=yes", "/waits"),
        ("since=x", "/since"),
    ],
)
def test_a_report_that_there_is_not_is_refused(rig: AccessRig, query: str, field: str) -> None:
    answer = rig.call("boss", "GET", f"/v1/usage?{query}")
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["error"]["problems"]] == [field]


def test_records_that_cannot_be_read_are_no_defect(tmp_path: Path) -> None:
    rig = AccessRig(records=SqliteRecords(tmp_path / "none"))
    rig.bind({"names": ["boss"], "roles": ["admin"]})
    for path in ("/v1/usage", "/v1/usage/export", "/v1/usage/export?format=csv"):
        assert rig.call("boss", "GET", path).status_code == 503
    rig.close()


class Open(AccessRig):
    """Where nobody is asked for a name."""

    async def identify(self, scope: Scope) -> Caller:
        return ANYBODY


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    store = MemoryStore()
    store.save([KeepRecord(Closed(SPAN, AT + 25 * HOUR_MS, HOUR_MS, HOUR_MS, SpanEnd.IDLE, DID))])
    store.save([SaveSpan(replace(OTHER, begins_ms=AT))])
    rig = Open(records=store)
    monkeypatch.setenv("MESOS_GPU_URL", rig.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield
    rig.close()


def told(*words: str) -> list[list[str]]:
    done = call("report", *words, "--since", "2024-10-04T00:00Z", "--until", "2024-10-06T00:00Z")
    assert done.exit_code == 0, done.output
    return [line.split() for line in done.stdout.splitlines()]


def test_reports_are_tables(cli: None) -> None:
    assert told("usage") == [
        ["QUEUE", "GPU_H", "COST", "CHARGED", "BORROWED", "LOST", "UNMET"],
        ["other", "384", "768", "768", "0", "0", "1.33"],
        ["research", "200", "400", "384", "400", "16", "1.33"],
    ]
    assert told("wait", "--by", "owner", "--by", "queue")[1][:4] == ["ann", "research", "1", "10m22s"]
    assert told("idle", "--by", "model") == [
        ["MODEL", "BUSY", "IDLE", "UNKNOWN", "IDLE%", "WANTED", "BACK"],
        ["A100", "100", "16", "468", "13.8", "4", "1"],
    ]  # fmt: skip
    fair = told("fairness")
    assert fair[1][:5] == ["other", "384", "65.8", "1.33", "99.7"]
    assert fair[-1] == ["Fairness", "(Jain's", "index):", "0.99"]
    assert told("usage", "--period", "day", "--by", "owner")[1][:3] == ["2024-10-04", "ann", "192"]


def test_a_report_is_a_bar_for_each_row(cli: None) -> None:
    header, other, research = told("usage", "--plot")
    assert (header, other[:2], research[:2]) == (["GPU_H"], ["other", "384"], ["research", "200"])
    assert len(research[2]) == pytest.approx(len(other[2]) * 200 / 384, abs=1), "as long as the amount"
    assert told("wait", "--by", "user", "--plot")[1][:2] == ["ann", "10m22s"]
    assert told("idle", "--period", "day", "--by", "model", "--plot")[1][:3] == ["2024-10-04", "A100", "12"]
    assert told("fairness", "--plot")[1][:2] == ["other", "99.7"]
    assert bars([("a", 1.0, "1"), ("bb", 0.5, "0.5")], unicode=False, columns=17) == [
        "a     1  ########",
        "bb  0.5  ####",
    ]
    assert bars([("a", 1.0, "1"), ("b", 0.3, "x")], unicode=True, columns=14)[1] == "b  x  ██▍"
    assert bars([], unicode=True) == []
    done = call("report", "usage", "--plot", "--csv")
    assert (done.exit_code, "exclude each other" in done.output) == (2, True)


def test_a_report_is_csv_or_json_for_programs(cli: None) -> None:
    assert [line[0].split(",")[0] for line in told("usage", "--csv")] == ["queue", "other", "research"]
    done = call("report", "usage", "--json", "--since", "2024-10-04T00:00Z", "--until", "2024-10-06T00:00Z")
    assert [row["cost_hours"] for row in json.loads(done.stdout)["rows"]] == [768.0, 400.0]
