"""The benchmarks of the API, small, with a scheduler of their own."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import api as bench_api
from bench import store as bench_store
from bench.access import ROUTES
from bench.commands import bench


@pytest.mark.long
def test_bench_api_measures_every_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_api, "_RUNS", 1)
    few = ["--apps", "2", "--instances", "2", "--seconds", "1", "--many", "3", "--listeners", "2"]
    done = CliRunner().invoke(bench, ["api", *few, "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["launches_per_s"] > 0
    assert told["launches_per_s_2_listeners"] > 0
    assert told["events_mib_per_listener"] > 0
    routes = {(each["during"], each["route"]): each for each in told["routes"]}
    mixed = [each["times"] for (during, _), each in routes.items() if during == "mix"]
    assert (len(mixed), sum(mixed)) == (7, 20), "twenty requests a second, of seven kinds"
    assert routes["create", "POST /v2/apps"]["times"] == 2
    assert routes["3 apps", "GET /v2/apps"]["p99_ms"] >= routes["3 apps", "GET /v2/apps"]["p50_ms"] > 0


@pytest.mark.long
def test_bench_access_asks_every_route_with_every_proof() -> None:
    few = ["--jobs", "100", "--apps", "50", "--rounds", "2"]
    done = CliRunner().invoke(bench, ["access", *few, "--json"])
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    proofs = [
        "none",
        "token",
        "htpasswd",
        "oidc",
        "token, few",
        "none, socket",
        "socket",
        "none, TLS",
        "certificate",
    ]
    assert [(row["route"], row["proof"]) for row in rows] == [
        (route, proof) for route in ROUTES for proof in proofs
    ]
    sizes = {(row["route"], row["proof"]): row["kib"] for row in rows}
    for route in ("GET /v1/jobs", "GET /v2/apps"):
        assert sizes[route, "token"] == sizes[route, "none"], "who may see all sees what everybody did"
        assert sizes[route, "token, few"] < sizes[route, "none"] / 5
    for row in rows:
        assert row["p50_ms"] > 0
        assert (row["added_ms"] is None) == row["proof"].startswith("none")


@pytest.mark.long
def test_bench_reports_asks_for_each_report_of_what_it_kept() -> None:
    done = CliRunner().invoke(bench, ["reports", "--records", "300", "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"usage_ms", "usage by day_ms", "wait by month_ms", "records_one_by_one_ms"} <= told.keys()
    assert all(figure > 0 for figure in told.values())


def test_bench_store_measures_the_disk_groups_and_a_scheduler(tmp_path: Path) -> None:
    few = ["--seconds", "0.02", "--jobs", "20", "--directory", str(tmp_path)]
    done = CliRunner().invoke(bench, ["store", *few, "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"fsync_per_s", *(f"groups_of_{size}_per_s" for size in bench_store.GROUPS)} <= told.keys()
    assert all(figure > 0 for figure in told.values())
    assert told["scheduler_transitions_per_commit"] > 1, "what waits together is committed together"
    assert list(tmp_path.iterdir()) == []


def test_bench_scale_launches_every_job_and_looks_at_both_kinds_of_reports(tmp_path: Path) -> None:
    few = ["--agents", "3", "--gpus", "4", "--jobs", "7", "--running", "5", "--seconds", "0.2"]
    done = CliRunner().invoke(bench, ["scale", *few, "--directory", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["agents"], told["gpus"], told["running"], told["jobs"]) == (3, 12, 5, 7)
    assert told["launches_per_cpu_s"] < told["engine_launches_per_cpu_s"], (
        "decisions are a part of the scheduler"
    )
    for name in ("launches_per_s", "batch_p99_s", "idle_core_pct", "idle_uses_core_pct", "rss_mib"):
        assert told[name] > 0, name
    assert {"/v1/jobs", "/v1/nodes", "/v1/cards", "/metrics/prometheus"} <= told["reads"].keys()
    assert all(read["ms"] > 0 and read["kib"] > 0 for read in told["reads"].values())
    assert list(tmp_path.iterdir()) == []


def test_bench_scale_of_more_jobs_than_gpus_is_refused() -> None:
    done = CliRunner().invoke(bench, ["scale", "--agents", "2", "--gpus", "4", "--jobs", "9"])
    assert done.exit_code == 2, done.output
    assert "--jobs and --running are 9, and there are 8 GPUs" in done.stderr


def test_bench_idle_measures_reports_of_busy_and_of_idle_jobs() -> None:
    done = CliRunner().invoke(bench, ["idle", "--nodes", "2", "--rounds", "2", "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == [
        "no_document_busy_us",
        "no_document_idle_us",
        "document_busy_us",
        "document_idle_us",
    ]
    assert all(us > 0 for us in told.values())


@pytest.mark.long
def test_bench_bookings_judges_what_fits_and_what_does_not() -> None:
    done = CliRunner().invoke(bench, ["bookings", "--queues", "16", "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == ["once_ms", "daily_ms", "daily_refused_ms", "match_ms"]
    assert all(ms > 0 for ms in told.values())
