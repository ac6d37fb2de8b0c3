"""The real engine with one queue of `order: las` does as well as the simulator of one line from which that came."""

from pathlib import Path

import pytest

from mesos_gpu.model.tenancy import QueueDocument, QueueOrder, QueueSpec
from mesos_gpu.simulate.jobs import Cluster, Prices, figures, simulate
from mesos_gpu.simulate.orders import ORDERS
from mesos_gpu.simulate.tenancy.live import run_live
from mesos_gpu.simulate.tenancy.scenario import Costs, Scenario
from mesos_gpu.simulate.tenancy.trace import TenantJob
from mesos_gpu.simulate.trace import read_jobs

TRACES = Path(__file__).parents[3] / "data" / "jobs"
CLUSTER = Cluster(8, 8)
RESTART_S = 30.0
LAS = QueueDocument(queues={"las": QueueSpec(order=QueueOrder.LAS)})


def _both(trace: str, most: int | None) -> tuple[float, float]:
    """Average completion times, hours: of the simulator of one line, and of the engine."""
    jobs = sorted(read_jobs(TRACES / f"{trace}.csv.gz"), key=lambda job: (job.submitted_ms, job.job_id))[
        :most
    ]
    outcome = simulate(jobs, CLUSTER, ORDERS["mesos-gpu"], Prices(restart_ms=round(RESTART_S * 1000)))
    ours = tuple(
        TenantJob(job.job_id, "las", job.gpus, job.submitted_ms / 1000, job.lasts_ms / 1000) for job in jobs
    )
    # What has been done is kept when a job is stopped, as it is there.
    record = run_live(Scenario(ours, CLUSTER, {"las": 1}, Costs(checkpoint_s=1.0, restart_s=RESTART_S)), LAS)
    took = [record.ended_s[job.job_id] - job.submitted_s for job in ours]
    return figures(jobs, CLUSTER, outcome).avg_jct_s / 3600, sum(took) / len(took) / 3600


@pytest.mark.parametrize("jobs", [12, pytest.param(150, marks=pytest.mark.on_change("simulate"))])
def test_las_by_the_engine_does_as_well_as_by_the_simulator(jobs: int) -> None:
    simulated, live = _both("trace3", jobs)
    assert live == pytest.approx(simulated, rel=0.05)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trace", ["trace3", "trace4"])
def test_las_by_the_engine_does_as_well_as_by_the_simulator_on_whole_traces(trace: str) -> None:
    simulated, live = _both(trace, None)
    assert live == pytest.approx(simulated, rel=0.05)
