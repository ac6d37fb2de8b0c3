"""/v1/history and `mesos-gpu history`: jobs that have ended, though the scheduler has forgotten them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.usage.reader import SqliteRecords
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.saves import FoldRecords, ForgetJob, KeepRecord
from mesos_gpu.model.usage import Closed, MeasuredWork, Part, Span, SpanEnd
from tests.contract.cli.cli_rig import call
from tests.contract.events.kept import Kept

HOUR_MS = 3_600_000


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    state = tmp_path / "state" / "state.sqlite"
    kept = Kept(state, records=SqliteRecords(state))
    monkeypatch.setenv("MESOS_GPU_URL", kept.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield kept
    kept.close()


def ended(kept: Kept, name: str, **fields: Any) -> str:
    kept.clock.time += 10
    job = kept.submit(name=name, **fields)
    assert kept.call("DELETE", f"/v1/jobs/{job}").status_code < 300
    return job


def written(kept: Kept, *saves: Any) -> None:
    """Written on the engine's thread, as its own saves are."""
    kept.daemon.read(lambda _: kept.store.save(saves)).result(60)


def span(job: str, model: str, begins_ms: int) -> Span:
    return Span(
        TaskId(f"{job}.1"), JobId(job), "", "ml", "", "", "", (Part(model, 2000, 2000),), False, 100, begins_ms
    )  # fmt: skip


def history(kept: Kept, query: str = "") -> dict[str, Any]:
    answer = kept.call("GET", f"/v1/history{query}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_job_stays_in_the_history_when_it_is_forgotten_until_records_are_folded(kept: Kept) -> None:
    job = ended(kept, "one", queue="ml", gpus=2, labels={"team": "x"})
    written(
        kept,
        KeepRecord(
            Closed(
                span(job, "A100", 0),
                HOUR_MS,
                1000,
                0,
                SpanEnd.LOST,
                (MeasuredWork(0, "A100", idle=4_000_000),),
            )
        ),
        KeepRecord(Closed(span(job, "T4", HOUR_MS), 2 * HOUR_MS, 0, 0, SpanEnd.KILLED)),
        ForgetJob(JobId(job)),
    )
    (told,) = history(kept)["jobs"]
    assert (told["id"], told["state"], told["gpus"], told["queue"]) == (job, "killed", 2.0, "ml")
    assert (told["gpu_hours"], told["gpu_models"]) == (4.0, ["A100", "T4"])
    assert told["lost_gpu_hours"] == pytest.approx(2 / 3600)
    assert told["idle_gpu_hours"] == pytest.approx(4 / 3600)
    assert told["labels"] == {"team": "x"}
    kept.stop()
    kept.start()
    assert history(kept)["jobs"] == [told], "and after a restart"
    written(kept, FoldRecords(int(told["ended_at"] * 1000)))
    assert history(kept) == {"jobs": [], "cursor": None}


def test_filters_and_pages(kept: Kept) -> None:
    jobs = [ended(kept, f"n{number}", queue=("ml", "ops")[number % 2]) for number in range(5)]
    running = kept.submit(name="waits")
    ids = [each["id"] for each in history(kept)["jobs"]]
    assert ids == jobs[::-1]
    assert running not in ids
    assert [each["id"] for each in history(kept, "?queue=ops")["jobs"]] == [jobs[3], jobs[1]]
    assert [each["id"] for each in history(kept, "?named=n2&named=n4")["jobs"]] == [jobs[4], jobs[2]]
    assert history(kept, "?state=finished")["jobs"] == []
    first = history(kept, "?limit=2")
    second = history(kept, f"?limit=3&cursor={first['cursor']}")
    assert [each["id"] for each in (*first["jobs"], *second["jobs"])] == jobs[::-1]
    assert second["cursor"] is None, "that was all, though as many as were asked for"
    at = first["jobs"][0]["ended_at"]
    assert [each["id"] for each in history(kept, f"?since={at}")["jobs"]] == [jobs[4]]
    assert len(history(kept, f"?until={at}")["jobs"]) == 4
    for wrong in ("state=running", "cursor=x", "limit=0"):
        assert kept.call("GET", f"/v1/history?{wrong}").status_code == 422


def test_the_command_lists_filters_and_says_where_there_are_more(kept: Kept) -> None:
    jobs = [ended(kept, f"n{number}", queue=("ml", "ops")[number % 2]) for number in range(3)]
    done = call("history", "--queue", "ml", "-o", "json")
    assert [each["id"] for each in json.loads(done.stdout)] == [jobs[2], jobs[0]]
    table = call("history", "--columns", "id,state,gpu_h").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["ID", "STATE", "GPU_H"],
        *([job, "killed", "0"] for job in reversed(jobs)),
    ]
    short = call("history", "--limit", "2", "-q")
    assert (short.stdout.split(), "more than 2" in short.stderr) == ([jobs[2], jobs[1]], True)
    assert "more than" not in call("history", "--limit", "3", "-q").stderr
    assert call("history", "--name", "none", "-q").stdout == ""
