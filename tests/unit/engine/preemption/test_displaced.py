"""The cost of a job that a booking displaces."""

from dataclasses import replace

import pytest

from mesos_gpu.engine.preemption.running import displace
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.policy.room.knapsack import Victim
from tests.doubles.builders import spec

NOW = 1000.0


@pytest.mark.parametrize("stopped", [0, 3])
@pytest.mark.parametrize(
    ("started_at", "checkpoint_at", "lost_s"), [(None, None, 0), (900.0, None, 100), (900.0, 960.0, 40)]
)
def test_displaced_job_costs_its_work_since_the_checkpoint(
    started_at: float | None, checkpoint_at: float | None, lost_s: int, stopped: int
) -> None:
    job = Job(JobId("j"), spec(gpus=2, tasks=3), 0.0, 1, state=JobState.RUNNING, started_at=started_at)
    job = replace(job, checkpoint_at=checkpoint_at, stopped=stopped)
    assert displace(job, 1, NOW) == Victim(JobId("j"), 1, 6000 * lost_s)
