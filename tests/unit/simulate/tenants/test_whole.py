"""The engine on the whole trace of six virtual clusters, beside what others do: docs/tenants.md."""

from pathlib import Path

import pytest

from mesos_gpu.simulate.jobs import Cluster
from mesos_gpu.simulate.tenancy.scenario import Costs, arrange
from mesos_gpu.simulate.tenancy.trace import read_tenants
from mesos_gpu.simulate.tenants import ALONE, POLICIES, judge

PHILLY6 = Path(__file__).parents[3] / "data" / "tenants" / "philly6.csv"


@pytest.mark.long
@pytest.mark.timeout(3600)  # 600 s of one processor, most of it the engine's
def test_live_engine_is_the_fairest_on_the_whole_trace() -> None:
    scenario = arrange(read_tenants(PHILLY6).jobs, Cluster(40, 8), Costs(), stretch_s=60 * 86400)
    judged = {each.policy: each.figures for each in judge([scenario], POLICIES)}
    ours = judged["mesos-gpu"]
    assert (ours.in_vain, ours.stopped_3x <= 10) == (0, True)
    assert ours.unfair_pct <= 1.1
    assert ours.p99_delay_h <= 3.2
    assert ours.lost_gpu_h <= 200  # measured: 161
    assert ours.mean_jct_h <= 95  # measured: 85.8
    assert ours.utilisation >= 0.775  # measured: 0.782
    others = {policy: figures for policy, figures in judged.items() if policy not in (ALONE, "mesos-gpu")}
    assert ours.worst_tenant <= min(figures.worst_tenant for figures in others.values())
    assert ours.unfair_pct <= min(figures.unfair_pct for figures in others.values())
