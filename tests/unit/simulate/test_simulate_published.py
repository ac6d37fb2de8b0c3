"""The simulator against the figures that others have published for the same traces."""

import csv
from functools import cache
from pathlib import Path

import pytest

from mesos_gpu.simulate.jobs import Cluster, Figures, Prices, figures, simulate
from mesos_gpu.simulate.orders import ORDERS, PAUSES_S, RESTARTS_S
from mesos_gpu.simulate.trace import read_jobs

DATA = Path(__file__).parents[2] / "data" / "jobs"
CLUSTER = Cluster(8, 8)
WITHIN = {"trace3": 0.07, "trace4": 0.03}


@cache
def _published() -> dict[tuple[str, str], float]:
    with (DATA / "published.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["policy_metric"], trace): float(row[trace]) for row in rows for trace in WITHIN}


@cache
def _found(policy: str, trace: str) -> Figures:
    jobs = read_jobs(DATA / f"{trace}.csv.gz")
    prices = Prices(round(RESTARTS_S.get(policy, 0) * 1000), round(PAUSES_S.get(policy, 0) * 1000))
    return figures(jobs, CLUSTER, simulate(jobs, CLUSTER, ORDERS[policy], prices))


@pytest.mark.parametrize("trace", ["trace3", pytest.param("trace4", marks=pytest.mark.on_change("simulate"))])
@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_published_traces_with_known_durations_give_published_figures(policy: str, trace: str) -> None:
    measured, name = _found(policy, trace), policy.upper()
    assert measured.avg_jct_s == pytest.approx(_published()[f"{name}_JCT", trace], rel=WITHIN[trace])
    assert measured.makespan_s == pytest.approx(_published()[f"{name}_makespan", trace], rel=0.02)


#: Its simulation without known durations takes most of the time.
TRACES = ("trace3", pytest.param("trace4", marks=pytest.mark.long))


@pytest.mark.parametrize("trace", TRACES)
def test_published_traces_are_served_better_without_durations(trace: str) -> None:
    measured = _found("mesos-gpu", trace)
    assert measured.avg_jct_s < 0.85 * _published()["TiresiasL_JCT", trace]
    assert measured.avg_jct_s < _published()["Themis_JCT", trace]  # on trace4 level rather than ahead
    assert (
        measured.avg_jct_s > _found("srsf", trace).avg_jct_s
    )  # who knows more does better: it would smell otherwise


@pytest.mark.parametrize("trace", TRACES)
def test_published_traces_gain_no_gpu_time(trace: str) -> None:
    for policy in ("srtf", "srsf", "mesos-gpu"):
        measured = _found(policy, trace)
        assert 0 < measured.gpu_utilisation_pct <= 100
        assert measured.avg_jct_s < measured.makespan_s


def test_published_shockwave_jobs_are_treated_fairer_than_by_other_blind_policies() -> None:
    folder = DATA / "shockwave"
    with (folder / "published.csv").open(newline="") as file:
        published = {row["policy"]: row for row in csv.DictReader(file)}
    jobs, cluster = read_jobs(folder / "jobs.csv"), Cluster(8, 4)
    measured = figures(jobs, cluster, simulate(jobs, cluster, ORDERS["mesos-gpu"], Prices(30_000)))
    for blind in ("max-min", "gandiva-fair"):
        assert measured.unfair_pct < float(published[blind]["unfair_pct"])
        assert measured.avg_jct_s < float(published[blind]["avg_jct_s"])
    assert measured.unfair_pct > float(
        published["shockwave"]["unfair_pct"]
    )  # who forecasts durations does better
