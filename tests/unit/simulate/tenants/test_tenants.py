"""The judge: figures by hand, what a scenario is made of, and a slice of the trace by every policy."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.figures import Figures, measure
from mesos_gpu.simulate.tenancy.record import Record, Span, Stopped
from mesos_gpu.simulate.tenancy.scenario import Costs, Scenario, arrange
from mesos_gpu.simulate.tenancy.trace import TenantJob, read_tenants
from mesos_gpu.simulate.tenants import ALONE, POLICIES, judge, run_alone

PHILLY6 = Path(__file__).parents[3] / "data" / "tenants" / "philly6.csv"
HOUR = 3600.0
A, B = TenantJob("a", "a", 4, 0, HOUR), TenantJob("b", "b", 4, HOUR, HOUR)
SCENARIO = Scenario((A, B), Cluster(2, 4), {"a": 1, "b": 1}, Costs())
OWN = Record(ALONE, {"a": HOUR, "b": 2 * HOUR}, {"a": [Span(0, HOUR)], "b": [Span(HOUR, 2 * HOUR)]}, ())


def test_tenants_figures_of_two_jobs_are_as_computed_by_hand() -> None:
    record = Record(
        "x",
        {"a": 2 * HOUR, "b": 2 * HOUR},
        {"a": [Span(0, HOUR / 2), Span(1.5 * HOUR, 2 * HOUR)], "b": [Span(HOUR, 2 * HOUR)]},
        [Stopped("a", HOUR / 2, "b", 60, 240)],
    )
    figures, more = measure(SCENARIO, record, OWN)
    assert figures == Figures(
        unfair_pct=50,  # a took two hours, and alone one
        p99_delay_h=1,
        mean_jct_h=1.5,
        lost_gpu_h=0.1,
        preemptions=1,
        in_vain=1,  # b began half an hour later
        stopped_3x=0,
        utilisation=0.25,  # 4 of 8 GPUs in half of the hour in which jobs came
        worst_tenant=100,
        jain=0.5,
    )
    assert (more.worst_ratio, more.restore_worst_h, more.unfair_by_tenant) == (2, 1, {"a": 100, "b": 0})
    assert more.gini == 0.5


def test_tenants_stop_after_which_the_other_starts_is_not_in_vain() -> None:
    stops = [Stopped("a", HOUR - 10, "b", 60, 240)]
    figures, _ = measure(SCENARIO, replace(OWN, stopped=stops), OWN)
    assert (figures.preemptions, figures.in_vain, figures.unfair_pct) == (1, 0, 0)


def test_tenants_guarantees_are_mean_demand_in_whole_nodes() -> None:
    jobs = read_tenants(PHILLY6).jobs
    scenario = arrange(jobs, Cluster(40, 8), Costs(), stretch_s=60 * 86400)
    assert scenario.guarantees == {
        "103959": 2, "2869ce": 1, "6214e9": 15, "6c71a0": 6, "7f04ca": 11, "b436b2": 5,
    }  # fmt: skip
    assert max(job.submitted_s for job in scenario.jobs) == 60 * 86400


@pytest.mark.parametrize(("wrong", "nodes"), [("half", 20), ("double", 80), ("equal", 36)])
def test_tenants_guarantees_can_be_made_wrong(wrong: str, nodes: int) -> None:
    jobs = read_tenants(PHILLY6).jobs
    scenario = arrange(jobs, Cluster(40, 8), Costs(), stretch_s=60 * 86400, wrong=wrong)
    assert sum(scenario.guarantees.values()) == pytest.approx(nodes, abs=2)


def test_tenants_load_brings_jobs_faster_and_a_seed_rotates_them() -> None:
    jobs = [TenantJob(f"{tenant}{n}", tenant, 1, n * 10.0, 5.0) for tenant in "ab" for n in range(5)]
    plain = arrange(jobs, Cluster(1, 8), Costs(), stretch_s=400)
    faster = arrange(jobs, Cluster(1, 8), Costs(), stretch_s=400, load=2)
    turned = arrange(jobs, Cluster(1, 8), Costs(), stretch_s=400, seed=3)
    assert [job.submitted_s for job in plain.jobs if job.tenant == "a"] == [0, 100, 200, 300, 400]
    assert max(job.submitted_s for job in faster.jobs) == 200
    assert faster.guarantees == plain.guarantees == turned.guarantees
    assert turned == arrange(jobs, Cluster(1, 8), Costs(), stretch_s=400, seed=3)
    assert {job.job_id for job in turned.jobs} == {job.job_id for job in jobs}
    assert [job.job_id for job in turned.jobs] != [job.job_id for job in plain.jobs]


def test_tenants_arrivals_are_unchanged_without_a_stretch() -> None:
    jobs = [TenantJob("a", "a", 1, 0, 5), TenantJob("b", "b", 1, 7, 5)]
    assert arrange(jobs, Cluster(1, 8), Costs(), stretch_s=None).jobs == tuple(jobs)


def test_tenants_job_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="job a asks for 9 GPUs, and the cluster has 8"):
        arrange([TenantJob("a", "a", 9, 0, 5)], Cluster(1, 8), Costs(), stretch_s=None)


def test_tenants_alone_have_no_other_in_the_way() -> None:
    jobs = (TenantJob("a1", "a", 4, 0, 10), TenantJob("a2", "a", 4, 1, 10), TenantJob("b1", "b", 4, 1, 10))
    own = run_alone(Scenario(jobs, Cluster(2, 4), {"a": 1, "b": 1}, Costs()))
    assert own.ended_s == {"a1": 10, "a2": 20, "b1": 11}


def test_tenants_alone_have_nodes_for_a_job_larger_than_the_guarantee() -> None:
    own = run_alone(Scenario((TenantJob("a", "a", 8, 0, 10),), Cluster(2, 4), {"a": 1}, Costs()))
    assert own.ended_s == {"a": 10}


def slice_of(tmp_path: Path, every: int, times_shorter: int = 1) -> Path:
    """Write a part of the trace, with shorter jobs if asked for."""
    head, *lines = PHILLY6.read_text().splitlines()
    rows = [line.rpartition(",") for line in lines[::every]]
    path = tmp_path / "slice.csv"
    path.write_text(
        "\n".join([head, *(f"{row},{int(lasts) // times_shorter + 1}" for row, _, lasts in rows)])
    )
    return path


ARGS = ("--nodes", "6", "--seeds", "2")
ON_CHANGE = pytest.mark.on_change("simulate")


@pytest.mark.parametrize(
    ("every", "times_shorter", "days"), [(1000, 200, 1), pytest.param(40, 1, 20, marks=ON_CHANGE)]
)
def test_tenants_slice_by_every_policy_gives_each_figure(
    tmp_path: Path, every: int, times_shorter: int, days: int
) -> None:
    trace = slice_of(tmp_path, every, times_shorter)
    words = ["--trace", str(trace), *ARGS, "--stretch", f"{days}d", "--json"]
    result = CliRunner().invoke(main, ["simulate", "tenants", *words])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    names = [each.name for each in fields(Figures)]
    assert {policy: list(figures) for policy, figures in document["policies"].items()} == dict.fromkeys(
        POLICIES, names
    )
    assert document["policies"][ALONE]["unfair_pct"] == 0
    assert document["scenario"]["users_drawn"] is True
    assert [len(each) for each in document["by_seed"].values()] == [2] * len(POLICIES)


def test_tenants_table_names_the_assumptions(tmp_path: Path) -> None:
    args = [
        "simulate",
        "tenants",
        "--trace",
        str(slice_of(tmp_path, 200)),
        "--policy",
        "drf",
        "--checkpoint",
        "none",
    ]
    result = CliRunner().invoke(main, [*args, *ARGS, "--stretch", "20d"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split("  ")[0] == "POLICY"
    assert "users: drawn by chance, the trace names none" in result.stdout


def test_tenants_time_span_that_is_malformed_is_refused(tmp_path: Path) -> None:
    args = ["simulate", "tenants", "--trace", str(slice_of(tmp_path, 200)), "--checkpoint", "often"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2
    assert "is not a time span" in result.output


@pytest.mark.parametrize(
    ("count", "days", "times_shorter"), [(12, 1, 100), pytest.param(60, 10, 1, marks=ON_CHANGE)]
)
def test_tenants_scenario_gives_the_same_figures_again(count: int, days: int, times_shorter: int) -> None:
    jobs = [replace(job, lasts_s=job.lasts_s / times_shorter) for job in read_tenants(PHILLY6).jobs[:count]]
    scenario = arrange(jobs, Cluster(4, 8), Costs(), stretch_s=86400 * days)
    first, again = (judge([scenario], ["node-reclaim", "cook"]) for _ in range(2))
    assert [asdict(each) for each in first] == [asdict(each) for each in again]
