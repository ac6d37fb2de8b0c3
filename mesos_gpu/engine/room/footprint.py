"""Resources that one task of a job takes in Mesos: those of the task and those of its executor."""

from functools import lru_cache
from typing import Final, NamedTuple

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.resources import Resources

#: Thousandths of a task's CPUs that are left for its executor and for the monitor of its node (`settings.MONITOR`): on
#: a node with at least one CPU, tasks that ask for all of its CPUs leave as much as the monitor takes.
OVERHEAD_PERMILLE: Final = 20


class Footprint(NamedTuple):
    """Resources that a launch takes of an offer."""

    task: Resources
    executor: Resources
    total: Resources  # sum of both


def footprint_of(job: Job, settings: Settings) -> Footprint:
    """Return the resources of a task of a job, without its ports.

    The CPUs of the executor come out of those that the task asks for; its memory comes on top.
    """
    return _footprint(job.spec.resources.milli, settings.programs.executor.milli)


@lru_cache(maxsize=4096)
def _footprint(asked_milli: tuple[int, ...], executor_milli: tuple[int, ...]) -> Footprint:
    """Return the footprint of a task by its request and the executor's resources; see `footprint_of`."""
    requested, executor = Resources.of_milli(asked_milli), Resources.of_milli(executor_milli)
    most = executor.cpu_milli
    if not most:
        return Footprint(requested, executor, requested + executor)
    total = max(requested.cpu_milli - requested.cpu_milli * OVERHEAD_PERMILLE // 1000, most)
    own = max(total - requested.cpu_milli, min(most, total // 2))
    own_task, own_executor = requested.with_cpu_milli(total - own), executor.with_cpu_milli(own)
    return Footprint(own_task, own_executor, own_task + own_executor)
