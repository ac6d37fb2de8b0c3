"""Costs of stopping a job, to the millisecond."""

import pytest

from mesos_gpu.policy.room.lost import Ran, cost, least_ms, lost_milli_s, ran


@pytest.mark.parametrize(
    ("started_at", "checkpoint_at", "want"),
    [
        (None, None, (0, 0)),
        (None, 5.0, (0, 0)),
        (10.0, None, (2500, 2500)),
        (10.0, 12.0, (2500, 500)),
        (10.0, 9.0, (2500, 2500)),
        (10.0, 99.0, (2500, 0)),
        (99.0, None, (0, 0)),
        (99.0, 10.0, (0, 0)),
    ],
)
def test_job_has_run_since_its_start_and_its_checkpoint(
    started_at: float | None, checkpoint_at: float | None, want: tuple[int, int]
) -> None:
    assert ran(started_at, checkpoint_at, 12.5, 7, 2) == Ran(*want, 7, 2)


def test_least_loss_is_half_of_the_low_median_of_what_checkpoints_leave() -> None:
    jobs = [Ran(99, since, 1) for since in (8, 2, 6, 4)]
    assert least_ms(jobs) == 2
    assert least_ms(jobs[:3]) == 3
    assert least_ms([]) == 0


@pytest.mark.parametrize(
    ("job", "lost", "costs"),
    [
        (Ran(9000, 1000, 2000), (1000 + 500) * 2, (1000 + 500) * 2),
        (Ran(9000, 1000, 2000, 1), (4000 + 500) * 2, (4000 + 500) * 2 * 4),
        (Ran(3000, 1000, 2000, 1), (3000 + 500) * 2, (3000 + 500) * 2 * 4),
        (Ran(9000, 5000, 2000, 2), (5000 + 500) * 2, (5000 + 500) * 2 * 9),
        (Ran(0, 1, 999), 500, 500),
        (Ran(0, 1, 1), 0, 0),
    ],
)
def test_stopped_job_loses_its_work_and_the_restart_and_costs_more_each_time(
    job: Ran, lost: int, costs: int
) -> None:
    assert lost_milli_s(job, 4000, 500) == lost
    assert cost(job, 4000, 500) == costs
