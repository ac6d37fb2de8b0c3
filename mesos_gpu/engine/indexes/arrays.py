"""Members of job arrays by what a step looks for, and those of them that no store has."""

from dataclasses import dataclass, field
from typing import Any, Final

from mesos_gpu.model.arrays.array import ArrayCounts, JobArray
from mesos_gpu.model.arrays.indexes import Runs, count, each_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState

MAX_DRAFTS: Final = 256  # of one array


@dataclass(slots=True)
class Members:
    """What is kept of arrays beside them. A *draft* is a member of which nothing is saved: it stands in the queue for
    its array, whose record has its position still among those that are left.

    Attributes:
        jobs: By array, members that have not ended, drafts too.
        drafts: By array, those of them that are drafts, with their positions.
        unmade: By array, how many wait of which there is no job.
        windows: By array, how many drafts it may have; 1 where it is not said.
        launched: Arrays of which a draft was launched since the last match.
        changed: Arrays that were not looked at since they changed.
        ended: Arrays that have ended, the first to end first.
    """

    jobs: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    drafts: dict[JobId, dict[JobId, int]] = field(default_factory=dict)
    unmade: dict[JobId, int] = field(default_factory=dict)
    windows: dict[JobId, int] = field(default_factory=dict)
    launched: dict[JobId, None] = field(default_factory=dict)
    changed: dict[JobId, None] = field(default_factory=dict)
    ended: dict[JobId, None] = field(default_factory=dict)

    def enter_job(self, job: Job) -> None:
        """A member has changed."""
        assert job.array is not None, f"{job.id} is no member of an array"
        self.changed[job.array] = None
        here = self.jobs.setdefault(job.array, {})
        if not job.state.ended:
            here[job.id] = None
        elif here.pop(job.id, 0) is None:
            self.windows[job.array] = min(self.windows.get(job.array, 1) + 1, MAX_DRAFTS)
        if not here:
            del self.jobs[job.array]

    def enter_array(self, array: JobArray) -> int:
        """An array has changed, or its drafts have; how many more wait without a job."""
        self.changed[array.id] = None
        if array.ended_at is not None:
            self.ended.setdefault(array.id)
            self.windows.pop(array.id, None)
        waiting = count(array.left) - len(self.drafts.get(array.id, ()))
        more = waiting - self.unmade.pop(array.id, 0)
        if waiting:
            self.unmade[array.id] = waiting
        return more

    @property
    def all(self) -> tuple[dict[JobId, Any], ...]:
        """Each of these, in their order."""
        return (
            self.jobs, self.drafts, self.unmade, self.windows, self.launched, self.changed, self.ended,
        )  # fmt: skip

    def drop_array(self, array_id: JobId) -> None:
        """An array is forgotten."""
        for known in self.all:
            known.pop(array_id, None)

    def take_up(self, job: Job) -> None:
        """A draft is one no more: it is saved."""
        if job.array is None or job.id not in self.drafts.get(job.array, ()):
            return
        if job.state is JobState.STARTING:
            self.launched[job.array] = None
        self.drop_draft(job.array, job.id)

    def drop_draft(self, array_id: JobId, job_id: JobId) -> None:
        """A job is no draft any more."""
        del self.drafts[array_id][job_id]
        if not self.drafts[array_id]:
            del self.drafts[array_id]

    def slots(self, array: JobArray) -> int | None:
        """How many more members there may be; None: any number. Each that has not ended has one."""
        at_once = array.indexes.at_once
        return None if at_once is None else max(at_once - len(self.jobs.get(array.id, ())), 0)

    def startable(self, array: JobArray) -> int:
        """How many of those that wait without a job the limit lets start, as things are."""
        waiting, slots = self.unmade.get(array.id, 0), self.slots(array)
        return waiting if slots is None else min(waiting, slots)

    def next_of(self, array: JobArray, most: int) -> list[int]:
        """The next positions of which a draft may be made."""
        slots, drafts = self.slots(array), set(self.drafts.get(array.id, {}).values())
        wanted = min(most, self.unmade.get(array.id, 0), most if slots is None else slots)
        chosen: list[int] = []
        for position in each_of(array.left):
            if len(chosen) >= wanted:
                break
            if position not in drafts:
                chosen.append(position)
        return chosen

    def counts(self, array: JobArray, running: int) -> ArrayCounts:
        """How far an array is; `running`: so many of its members hold something, or are about to."""
        made = len(self.jobs.get(array.id, ())) - len(self.drafts.get(array.id, ()))
        return array.counts(running, made - running)


def overlaps(array: JobArray) -> bool:
    """Whether a position of an array is in two of its sets."""
    sets: tuple[Runs, ...] = (array.left, array.finished, array.failed, array.killed)
    return sum(map(count, sets)) != len({place for runs in sets for place in each_of(runs)})
