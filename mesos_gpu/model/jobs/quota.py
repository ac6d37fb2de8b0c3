"""Limits of what jobs may take of the scheduler itself."""

from dataclasses import dataclass

from mesos_gpu.model.jobs.job import JobSpec


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a user, or of a queue; 0: no limit."""

    pending: int = 0  # jobs that wait at once
    stored_mib: int = 0  # of all jobs that are remembered, ended ones too


def owners(spec: JobSpec) -> tuple[tuple[str, str], tuple[str, str]]:
    """Whose limits a job counts against: its user's ("": the default one) and its queue's."""
    return ("user", spec.user or ""), ("queue", spec.queue)
