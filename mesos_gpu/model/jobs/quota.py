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
    """Return whose limits a job counts against: its queue's, its user's ("": the default one), and the proved name's of
    who submitted it ("": there is none). A name's job of the default user does not count for that user, which all names
    share: one of them could keep all others from submitting."""
    of_name = (("name", owner),) if owner else ()
    of_user = (("user", spec.user or ""),) if spec.user or not owner else ()
    return *of_user, ("queue", spec.queue), *of_name


def owner_of(job: Job) -> str:
    """Who a job is put down to: the proved name of who submitted it, else, marked so, the user that it names; "":
    neither."""
    return job.owner or (f"{job.spec.user}{PROOFLESS}" if job.spec.user else "")
