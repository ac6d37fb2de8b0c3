"""Indexes of members of job arrays, and drafts: members that are not saved yet."""

from dataclasses import dataclass, field
from typing import Any, Final

from mesos_gpu.model.arrays.array import ArrayCounts, JobArray
from mesos_gpu.model.arrays.indexes import Runs, count, each_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState

MAX_DRAFTS: Final = 256  # drafts of one array


@dataclass(slots=True)
class Members:
    """Indexes of arrays.

    A *draft* is a member of which nothing is saved: a job in the queue for its array, whose record still lists the
    position of the job as one without a job.

    Attributes:
        jobs: Members that have not ended, with drafts, by array.
        drafts: Drafts with their positions, by array.
        unmade: Number of positions without a job or draft, by array.
        windows: Number of drafts that an array may have; 1 for an array that is missing.
        launched: Arrays of which a draft was launched since the last match.
        changed: Arrays that have changed since they were looked at.
        ended: Arrays that have ended, in the order of their ends.
    """

    jobs: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    drafts: dict[JobId, dict[JobId, int]] = field(default_factory=dict)
    unmade: dict[JobId, int] = field(default_factory=dict)
    windows: dict[JobId, int] = field(default_factory=dict)
    launched: dict[JobId, None] = field(default_factory=dict)
    changed: dict[JobId, None] = field(default_factory=dict)
    ended: dict[JobId, None] = field(default_factory=dict)

    def enter_job(self, job: Job) -> None:
        """Update the indexes after a change of a member."""
        assert job.array is not None, f"{job.id} is no member of an array"
        self.changed[job.array] = None
        members = self.jobs.setdefault(job.array, {})
        if not job.state.ended:
            members[job.id] = None
        elif members.pop(job.id, 0) is None:
            self.windows[job.array] = min(self.windows.get(job.array, 1) + 1, MAX_DRAFTS)
        if not members:
            del self.jobs[job.array]

    def enter_array(self, array: JobArray) -> int:
        """Update the indexes after a change of an array or its drafts.

        Returns:
            Change of the number of positions without a job.
        """
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
        """All indexes, in the order of their fields."""
        return (
            self.jobs, self.drafts, self.unmade, self.windows, self.launched, self.changed, self.ended,
        )  # fmt: skip

    def drop_array(self, array_id: JobId) -> None:
        """Remove an array."""
        for index in self.all:
            index.pop(array_id, None)

    def take_up(self, job: Job) -> None:
        """Count a draft that was saved as a job from now on."""
        if job.array is None or job.id not in self.drafts.get(job.array, ()):
            return
        if job.state is JobState.STARTING:
            self.launched[job.array] = None
        self.drop_draft(job.array, job.id)

    def drop_draft(self, array_id: JobId, job_id: JobId) -> None:
        """Remove a draft."""
        del self.drafts[array_id][job_id]
        if not self.drafts[array_id]:
            del self.drafts[array_id]

    def slots(self, array: JobArray) -> int | None:
        """Return how many more members the array may have at once; None if there is no limit.

        Each member that has not ended counts.
        """
        at_once = array.indexes.at_once
        return None if at_once is None else max(at_once - len(self.jobs.get(array.id, ())), 0)

    def startable(self, array: JobArray) -> int:
        """Return how many positions without a job may start now by the limit of the array."""
        waiting, slots = self.unmade.get(array.id, 0), self.slots(array)
        return waiting if slots is None else min(waiting, slots)

    def next_of(self, array: JobArray, most: int) -> list[int]:
        """Return up to `most` positions for the next drafts."""
        slots, drafts = self.slots(array), set(self.drafts.get(array.id, {}).values())
        wanted_count = min(most, self.unmade.get(array.id, 0), most if slots is None else slots)
        chosen: list[int] = []
        for position in each_of(array.left):
            if len(chosen) >= wanted_count:
                break
            if position not in drafts:
                chosen.append(position)
        return chosen

    def counts(self, array: JobArray, running: int) -> ArrayCounts:
        """Return the counts of an array by state.

        Args:
            running: Number of its members that hold resources, or are about to.
        """
        jobs = len(self.jobs.get(array.id, ())) - len(self.drafts.get(array.id, ()))
        return array.counts(running, jobs - running)


def overlaps(array: JobArray) -> bool:
    """Return whether a position of an array is in two of its sets."""
    sets: tuple[Runs, ...] = (array.left, array.finished, array.failed, array.killed)
    return sum(map(count, sets)) != len({place for runs in sets for place in each_of(runs)})
