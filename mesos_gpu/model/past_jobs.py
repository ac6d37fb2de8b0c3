"""Records of ended jobs that the scheduler no longer holds in its live state."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owner_of


@dataclass(frozen=True, slots=True)
class PastJob:
    """An ended job. Its command is left out: it may hold secrets, and these records are kept for years.

    Attributes:
        id: Id of the job.
        name: Name in its request.
        owner: Proved name of its submitter; "" if the scheduler did not authenticate.
        user: User that its use is accounted to, as returned by `owner_of`.
        queue: Path of its queue.
        app: Id of the app of which the job was an instance; "" if none.
        job_class: Name of its job class; "" if none.
        state: State in which it ended.
        submitted_at, started_at, ended_at: Seconds since the epoch; `started_at` is that of the latest attempt, None if
            the job never ran.
        exit_code: Exit code as a shell reports it; None if it has none.
        attempts: Number of attempts used.
        tasks: Number of tasks.
        gpu_milli: GPUs per task in thousandths, as limits count them.
        hosts: Hosts of the last launch.
        labels: Labels of the job.
        message: Last message about the job, for people.
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
    """GPU use of one job, from its usage records. Amounts are thousandths of GPUs times milliseconds.

    Attributes:
        gpu: GPU time held.
        lost: Part of `gpu` whose work was lost with its task.
        idle: Part of `gpu` in which the GPUs did nothing.
        models: Names of the GPU models.
    """

    gpu: int = 0
    lost: int = 0
    idle: int = 0
    models: tuple[str, ...] = ()


def past(job: Job, hosts: tuple[str, ...], now: float) -> PastJob:
    """Return the record to keep of an ended job.

    Args:
        job: The ended job.
        hosts: Hosts of its last launch.
        now: End time to record if the job has none, seconds since the epoch.
    """
    spec = job.spec
    app = spec.app if job.app_version is not None else None
    return PastJob(
        job.id, spec.name, job.owner, owner_of(job), spec.queue, app or "",
        spec.job_class or "", job.state, job.submitted_at, job.started_at, job.ended_at or now, job.exit_code,
        job.attempts, spec.tasks, spec.counted_milli, hosts, dict(spec.labels), job.message,
    )  # fmt: skip
