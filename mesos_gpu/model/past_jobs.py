"""What is remembered of jobs that have ended, when the scheduler has forgotten them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owner_of


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that has ended. What it ran is not in it: a command may hold what nobody shall read for years.

    Attributes:
        id: Its own.
        name: That its request has.
        owner: The proved name of who submitted it; "": nobody was asked.
        user: Whom it is put down to, as `owner_of` says.
        queue: That it was in.
        app: Of an app's instance: its app; else "".
        job_class: Of its queues; "": none.
        state: How it ended.
        submitted_at, started_at, ended_at: Seconds since the epoch; of its latest attempt, None: it never ran.
        exit_code: As a shell gives it; None: there is none.
        attempts: How often it ran.
        tasks: How many it had.
        gpu_milli: Thousandths of GPUs of each of them, as limits count them.
        hosts: Where it ran last.
        labels: Its own.
        message: The last thing that happened to it, for people.
    """

    id: JobId
    name: str
    owner: str
    user: str
    queue: str
    app: str
    job_class: str
    state: JobState
    submitted_at: float
    started_at: float | None
    ended_at: float
    exit_code: int | None
    attempts: int
    tasks: int
    gpu_milli: int
    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What a job has held of GPUs, by its records. Amounts are thousandths of GPUs, times milliseconds.

    Attributes:
        gpu: Of GPUs.
        lost: Of that, of work that was lost with its task.
        idle: Of that, of GPUs that did nothing.
        models: Of the GPUs, by name.
    """

    gpu: int = 0
    lost: int = 0
    idle: int = 0
    models: tuple[str, ...] = ()


def past(job: Job, hosts: tuple[str, ...], now: float) -> PastJob:
    """What is remembered of a job that has ended. `now`: when that is seen, seconds since the epoch."""
    spec = job.spec
    app = spec.app if job.app_version is not None else None
    return PastJob(
        job.id, spec.name, job.owner, owner_of(job), spec.queue, app or "",
        spec.job_class or "", job.state, job.submitted_at, job.started_at, job.ended_at or now, job.exit_code,
        job.attempts, spec.tasks, spec.counted_milli, hosts, dict(spec.labels), job.message,
    )  # fmt: skip
