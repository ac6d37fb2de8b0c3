"""Queues: their document, past use by users, and guaranteed admission."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from mesos_gpu.engine.books import Books
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.indexes.hours import HoursNow
from mesos_gpu.engine.indexes.leaves import Leaves
from mesos_gpu.engine.indexes.memory import Use
from mesos_gpu.engine.parts.metadata import DERIVED
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.quota import owners
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.tenancy import NO_QUEUES, QueueDocument
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.tenancy.tree import Tree


@dataclass(slots=True)
class QuotaPart:
    """Queues of the state. Times are in seconds since the epoch.

    Attributes:
        queue_versions: Versions of the document of queues, oldest first.
        past_uses: Past use of each user of each leaf.
        past_uses_swept_at: Time at which past use that has faded was last removed.
        hours_at: Time at which the hours of queues were last looked at, at first the start of the process.
        uses: Jobs of each user and queue that wait, and their size; by "user" or "queue" and the name.
        sizes: Size in bytes of each job that is no instance of an app.
        seats_given: Seats that the latest match gave to jobs that wait.
        made_hours: Document as it is at `hours_at`; None until first used.
        made_books: Sums over jobs and past use; None until first used.
        leaves: Pending jobs by leaf; None until first used.
        moved_jobs: Jobs that have changed since `leaves` was brought up to date.
        charges: Charges of all tasks; None until first used.
        uncharged: Tasks that have changed since `charges` was brought up to date.
    """

    queue_versions: dict[int, QueueDocument] = field(default_factory=dict)
    past_uses: dict[tuple[str, str], PastUse] = field(default_factory=dict)
    past_uses_swept_at: float = 0.0
    hours_at: float = 0.0
    uses: dict[tuple[str, str], Use] = field(default_factory=dict)
    sizes: dict[JobId, int] = field(default_factory=dict)
    seats_given: Mapping[JobId, GuaranteedAdmission] = field(
        default_factory=dict, compare=False, repr=False, metadata=DERIVED
    )
    made_hours: HoursNow | None = field(default=None, compare=False, metadata=DERIVED)
    made_books: Books | None = field(default=None, compare=False, metadata=DERIVED)
    leaves: Leaves | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    moved_jobs: set[JobId] = field(default_factory=set, compare=False, repr=False, metadata=DERIVED)
    charges: Charges | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    uncharged: set[TaskId] = field(default_factory=set, compare=False, repr=False, metadata=DERIVED)

    @property
    def queues(self) -> QueueDocument:
        """Latest version of the document of queues, of version 0 before the first one."""
        return next(reversed(self.queue_versions.values())) if self.queue_versions else NO_QUEUES

    @property
    def hours(self) -> HoursNow:
        """Latest document as it is at `hours_at`."""
        hours, latest = self.made_hours, self.queues if self.queue_versions else NO_QUEUES
        if hours is None or hours.written is not latest:
            hours = self.made_hours = HoursNow(latest, self.hours_at)
        return hours

    @property
    def tree(self) -> Tree:
        """Tree of queues with the figures of the current hours."""
        return self.hours.tree

    def set_past_use(self, use: PastUse) -> None:
        """Put the past use of a user of a leaf into the state."""
        self.past_uses[use.queue, use.user] = use
        if self.made_books is not None:
            self.made_books.enter_use(use)

    def drop_past_use(self, queue: str, user: str) -> None:
        """Remove the past use of a user of a leaf."""
        del self.past_uses[queue, user]
        if self.made_books is not None:
            self.made_books.drop_use(queue, user)

    def count(self, job: Job | JobArray, *, new: bool = False, pending: int = 0, gone: bool = False) -> None:
        """Count a job or array in the uses of its user and queue.

        Args:
            job: Job or array that has changed.
            new: Whether it was not counted before.
            pending: Change of the number of its tasks that wait.
            gone: Whether it is removed.
        """
        size = len(msgspec.json.encode(job.spec)) if new else 0
        if new:
            self.sizes[job.id] = size
        size = -self.sizes.pop(job.id, 0) if gone else size
        for key in owners(job.spec, job.owner):
            use = self.uses.setdefault(key, Use())
            use.pending, use.size = use.pending + pending, use.size + size
            if use == Use():
                del self.uses[key]
