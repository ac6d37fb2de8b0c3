"""A job array: many jobs that differ by an index only, kept as one record beside those of them that have started."""

import re
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.arrays.indexes import Indexes, Runs, count, has, parsed, union
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState

MAX_NAME_LENGTH: Final = 63
EXIT_FAILED: Final = 1  # of an array of which any task has failed
_ENDS: Final = (JobState.FINISHED, JobState.FAILED, JobState.KILLED)
_MEMBER: Final = re.compile(r"(.+)\.([0-9]{1,10})(-[^.-]*)?")


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """How many tasks of an array are how far."""

    tasks: int
    waiting: int
    running: int
    finished: int
    failed: int
    killed: int

    @property
    def words(self) -> str:
        """For people, without what there is none of."""
        said = (
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
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class JobArray:
    """What is wanted of all its tasks, and how far they came. A task of it is a job, its *member*, as soon as anything
    of it is saved; until then it is one of those that are left.

    Attributes:
        id: As of a job, and of none.
        spec: What each asks for; its `array` says the indexes.
        submitted_at: Seconds since the epoch.
        sequence: The first one's place in the queue; the others follow it one by one.
        owner: As of a job.
        left: Of which there is no job on disk, and will be one.
        finished, failed, killed: That have ended so, for good; their jobs may be forgotten.
        version: Grows with each change.
        ended_at: When the last of it ended.
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
        """The indexes, and how many run at once."""
        return parsed(self.spec.array or "0")

    @property
    def charged_to(self) -> str:
        """Whose use and limits its tasks count in."""
        return self.owner or self.spec.user or ""

    @property
    def outcome(self) -> JobState:
        """What it is called when all have ended: by the worst end of any."""
        if self.failed:
            return JobState.FAILED
        return JobState.KILLED if self.killed else JobState.FINISHED

    def counts(self, running: int = 0, waiting: int = 0) -> ArrayCounts:
        """How far it is, if so many of its jobs run and wait."""
        ends = (count(self.finished), count(self.failed), count(self.killed))
        return ArrayCounts(self.indexes.count, count(self.left) + waiting, running, *ends)

    def member_id(self, index: int) -> JobId:
        """The id of the job of an index: its name, and the end of the array's id."""
        name, dash, tail = self.id.rpartition("-")
        return JobId(f"{name}.{index}{dash}{tail}") if dash else JobId(f"{tail}.{index}")

    def member(self, position: int) -> Job:
        """The job at a position, as it begins. Nobody is told of the end of each: the array's is told."""
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
        """How the task at a position ended; None: it has not."""
        return next((state for state in _ENDS if has(getattr(self, state.value), position)), None)

    def end_of(self, position: int, state: JobState) -> "JobArray":
        """The array when a member has ended so."""
        here: Runs = ((position, position),)
        match state:
            case JobState.FINISHED:
                return replace(self, finished=union(self.finished, here))
            case JobState.FAILED:
                return replace(self, failed=union(self.failed, here))
            case _:
                return replace(self, killed=union(self.killed, here))


def environment(array: JobArray, index: int) -> dict[str, str]:
    """What a task of an array is told of itself."""
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
    """The array and the index that the id of a member says; None: it is no such id. There need be no such array."""
    match = _MEMBER.fullmatch(member_id)
    return None if match is None else (JobId(match[1] + (match[3] or "")), int(match[2]))


def as_job(array: JobArray, counts: ArrayCounts) -> Job:
    """The array as a job is shown: its state is what most of it is about, its message says how far it is."""
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
    """The task at a position of which there is no job: as it will begin, or as it ended, if its job is forgotten."""
    job, ended = array.member(position), array.outcome_of(position)
    if ended is None:
        return job
    said = "ended before it was launched, or so long ago that no more is remembered"
    return replace(job, state=ended, message=said, exit_code=0 if ended is JobState.FINISHED else None)
