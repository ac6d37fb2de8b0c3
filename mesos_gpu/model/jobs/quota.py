"""Limits of what jobs may take of the scheduler itself."""

from dataclasses import dataclass

from mesos_gpu.model.jobs.job import JobSpec


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a user, of a proved name, or of a queue; 0: no limit."""

    pending: int = 0  # jobs that wait at once
    stored_mib: int = 0  # of all jobs that are remembered, ended ones too


def owners(spec: JobSpec, owner: str) -> tuple[tuple[str, str], ...]:
    """Whose limits a job counts against: its user's ("": the default one), its queue's, and the proved name's of who
    submitted it ("": there is none)."""
    of_name = (("name", owner),) if owner else ()
    return ("user", spec.user or ""), ("queue", spec.queue), *of_name
