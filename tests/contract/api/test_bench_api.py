"""The benchmark of the API, small, with a scheduler of its own."""

import json

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.dev import bench_api


def test_bench_api_measures_every_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_api, "_RUNS", 1)
    few = ["--apps", "2", "--instances", "2", "--seconds", "1", "--many", "3", "--listeners", "2"]
    done = CliRunner().invoke(main, ["bench", "api", *few, "--json"])
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
