"""Quotas of the scheduler's own resources, and the users that jobs count against."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.job import Job, JobSpec

PROOFLESS: Final = "?"  # appended to the name of a user that is not proved


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a user, of a proved name, or of a queue; 0 for no limit."""

    pending: int = 0  # number of waiting jobs
    stored_mib: int = 0  # state of all stored jobs, including ended ones


def owners(spec: JobSpec, owner: str) -> tuple[tuple[str, str], ...]:
    """Return the quotas that a job counts against, as pairs of kind and name.

    These are its queue, its user ("" for the default user) and the proved name of its submitter. A job of a proved name
    without a user does not count against the default user: all names share that, and one could block all others.
    """
    of_name = (("name", owner),) if owner else ()
    of_user = (("user", spec.user or ""),) if spec.user or not owner else ()
    return *of_user, ("queue", spec.queue), *of_name


def owner_of(job: Job) -> str:
    """Return the user that a job is accounted to: the proved name of its submitter, or else the user of its request
    marked as unproved; "" if it has neither."""
    return job.owner or (f"{job.spec.user}{PROOFLESS}" if job.spec.user else "")
