"""Names of instances and their tasks: they count on from one job to the next, and no task's name comes twice."""

import pytest

from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.policy.apps.task_ids import instance_of_job, job_id, launch_id, launch_of, name_of, next_job_id

UUID = "00000000-0000-0000-0000-000000000001"
FIRST = job_id("/shop/db", UUID)
INSTANCE = f"shop_db.instance-{UUID}"


def test_instances_tasks_count_on_over_its_jobs() -> None:
    job, seen = FIRST, []
    for launches in (2, 1, 0, 3):  # of one that was never launched, too
        assert instance_of_job(job) == INSTANCE
        for launch in range(1, launches + 1):
            task = launch_id(job, launch)
            assert launch_of(job, task) == launch
            name = name_of(task)
            assert name is not None
            assert (name.app, name.uuid) == ("/shop/db", UUID)
            seen.append(name.launch)
        job = next_job_id(job, launches)
    assert seen == sorted(set(seen))
    assert seen[:3] == [1, 2, 3]
    assert f"{INSTANCE}._app" == FIRST
    assert next_job_id(FIRST, 1) == f"{INSTANCE}._app.2" == launch_id(next_job_id(FIRST, 1), 1)


@pytest.mark.parametrize("job", ["train-1a2b", "a.b", "x._app", "web.instance-1._app"])
def test_task_ids_of_other_jobs_have_their_own_numbers(job: str) -> None:
    assert launch_id(JobId(job), 2) == f"{job}.2"
    assert launch_of(JobId(job), TaskId(f"{job}.2")) == launch_of(JobId(job), TaskId(f"{job}.2.0")) == 2
