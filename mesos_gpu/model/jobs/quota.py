"""Limits of what jobs may take of the scheduler itself, and whose they are."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.job import Job, JobSpec

PROOFLESS: Final = "?"  # at the end of the name of a user that nobody has proved


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


def owner_of(job: Job) -> str:
    """Who a job is put down to: the proved name of who submitted it, else, marked so, the user that it names; "":
    neither."""
    return job.owner or (f"{job.spec.user}{PROOFLESS}" if job.spec.user else "")
