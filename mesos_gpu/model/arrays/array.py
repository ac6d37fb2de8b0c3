"""Job arrays: jobs that differ only by an index, kept as one record plus the jobs that have started."""

import re
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.arrays.indexes import Indexes, Runs, count, has, parsed, union
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState

MAX_NAME_LENGTH: Final = 63
EXIT_FAILED: Final = 1  # exit code of an array with a failed task
_ENDS: Final = (JobState.FINISHED, JobState.FAILED, JobState.KILLED)
_MEMBER: Final = re.compile(r"(.+)\.([0-9]{1,10})(-[^.-]*)?")


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """Number of tasks of an array in each state."""

    tasks: int
    waiting: int
    running: int
    finished: int
    failed: int
    killed: int

    @property
    def words(self) -> str:
        """Counts as text for people, without zeros."""
        counts = (
            f"{number} {word}"
            for number, word in (
                (self.running, "running"),
                (self.waiting, "waiting"),
                (self.finished, "finished"),
                (self.failed, "failed"),
                (self.killed, "killed"),
            )
            if number
        )
        return ", ".join(counts)


@dataclass(frozen=True, slots=True)
class JobArray:
    """A job array. A task becomes a job, its *member*, when it is first saved; until then its position is in `left`.

    Attributes:
        id: Id of the array, unique also among jobs.
        spec: Request of each task, with the indexes in `array`.
        submitted_at: Time of submission, seconds since the epoch.
        sequence: Place of the first task in the submission order; the other tasks have the next numbers.
        owner: Proved name of the submitter; "" if the scheduler did not authenticate.
        left: Positions of tasks that have no saved job yet.
        finished, failed, killed: Positions of tasks with this final state, whose jobs may have been deleted.
        version: Number that grows with each change.
        ended_at: End of the last task; None before.
    """

    id: JobId
    spec: JobSpec
    submitted_at: float
    sequence: int
    owner: str = ""
    left: Runs = ()
    finished: Runs = ()
    failed: Runs = ()
    killed: Runs = ()
    version: int = 1
    ended_at: float | None = None

    @property
    def indexes(self) -> Indexes:
        """Parsed indexes and the number of tasks that may run at once."""
        return parsed(self.spec.array or "0")

    @property
    def charged_to(self) -> str:
        """User whose use and limits count the tasks."""
        return self.owner or self.spec.user or ""

    @property
    def outcome(self) -> JobState:
        """Final state of the array when all tasks have ended: the worst of any task."""
        if self.failed:
            return JobState.FAILED
        return JobState.KILLED if self.killed else JobState.FINISHED

    def counts(self, running: int = 0, waiting: int = 0) -> ArrayCounts:
        """Return the counts of tasks, given the numbers of jobs that run and wait."""
        ends = (count(self.finished), count(self.failed), count(self.killed))
        return ArrayCounts(self.indexes.count, count(self.left) + waiting, running, *ends)

    def member_id(self, index: int) -> JobId:
        """Return the id of the job of an index: the array's id with the index after the name."""
        name, dash, tail = self.id.rpartition("-")
        return JobId(f"{name}.{index}{dash}{tail}") if dash else JobId(f"{tail}.{index}")

    def member(self, position: int) -> Job:
        """Return the new job at a position. It has no `notify`, as only the end of the array is notified."""
        index = self.indexes.at(position)
        spec = replace(self.spec, name=f"{self.spec.name}.{index}", array=None, notify=())
        return Job(
            self.member_id(index),
            spec,
            self.submitted_at,
            self.sequence + position,
            message="queued",
            owner=self.owner,
            array=self.id,
            index=index,
        )

    def outcome_of(self, position: int) -> JobState | None:
        """Return the final state of the task at a position; None if it has not ended."""
        return next((state for state in _ENDS if has(getattr(self, state.value), position)), None)

    def end_of(self, position: int, state: JobState) -> "JobArray":
        """Return the array after the member at a position ended in a state."""
        here: Runs = ((position, position),)
        match state:
            case JobState.FINISHED:
                return replace(self, finished=union(self.finished, here))
            case JobState.FAILED:
                return replace(self, failed=union(self.failed, here))
            case _:
                return replace(self, killed=union(self.killed, here))


def environment(array: JobArray, index: int) -> dict[str, str]:
    """Return the environment variables that tell a task its place in the array."""
    indexes = array.indexes
    return {
        "MESOS_GPU_ARRAY_JOB_ID": array.id,
        "MESOS_GPU_ARRAY_INDEX": str(index),
        "MESOS_GPU_ARRAY_COUNT": str(indexes.count),
        "MESOS_GPU_ARRAY_FIRST": str(indexes.first),
        "MESOS_GPU_ARRAY_LAST": str(indexes.last),
        "MESOS_GPU_ARRAY_STEP": str(indexes.step),
    }


def whose(member_id: str) -> tuple[JobId, int] | None:
    """Return the array id and index in the id of a member; None for any other id. The array need not exist."""
    match = _MEMBER.fullmatch(member_id)
    return None if match is None else (JobId(match[1] + (match[3] or "")), int(match[2]))


def as_job(array: JobArray, counts: ArrayCounts) -> Job:
    """Return the array in the form of a job for display, with the counts of tasks as its message."""
    state = JobState.RUNNING if counts.running else JobState.PENDING
    exit_code = None
    if array.ended_at is not None:
        state = array.outcome
        exit_code = {JobState.FINISHED: 0, JobState.FAILED: EXIT_FAILED}.get(state)
    return Job(
        array.id,
        array.spec,
        array.submitted_at,
        array.sequence,
        state,
        array.version,
        ended_at=array.ended_at,
        exit_code=exit_code,
        message=counts.words,
        owner=array.owner,
    )


def as_waiting(array: JobArray, position: int) -> Job:
    """Return the task at a position that has no saved job: as it will begin, or as it ended if its job was deleted."""
    job, ended = array.member(position), array.outcome_of(position)
    if ended is None:
        return job
    message = "ended before launch, or so long ago that its record was deleted"
    return replace(job, state=ended, message=message, exit_code=0 if ended is JobState.FINISHED else None)
