"""What queues are due, as others see it. Amounts are thousandths of cost, past use such times seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueShare:
    """What a queue is due of a pool, and the steps that it follows from.

    Attributes:
        path: Of the queue.
        pool: Whose GPUs are divided.
        guarantee: What it is guaranteed.
        limit: The most that it may hold; None: no limit.
        held: What its jobs hold, and those of all queues below it.
        pending: What its jobs wait for that could run there.
        use: What it has used of late.
        given: What the queue above it divides among its children.
        floor: What it gets of its guarantee: as much as it wants, and less where all guarantees are more than `given`.
        kept: What is kept idle for it, by its lend limit.
        rest: What was left over when the turn of its band came.
        weight: Its weight in that division, after its past use.
        weights: Of all of its band.
        borrowed: What it gets of `rest`.
        due: What it is due in all.
        lent: What of its guarantee queues beside it hold.
    """

    path: str
    pool: str
    guarantee: int
    limit: int | None
    held: int
    pending: int
    use: int
    given: int
    floor: int
    kept: int
    rest: int
    weight: int
    weights: int
    borrowed: int
    due: int
    lent: int = 0

    @property
    def over(self) -> int:
        """What it holds beyond its guarantee."""
        return max(0, self.held - self.guarantee)

    @property
    def idle(self) -> int:
        """What of its guarantee it does not hold."""
        return max(0, self.guarantee - self.held)


@dataclass(frozen=True, slots=True)
class UserShare:
    """A user of a leaf beside its other users.

    Attributes:
        user: Whose; "": of jobs that name nobody.
        shares: His.
        use: What he has used of late.
        held: What is charged to him now.
        rank: His place, from 0; equals share one.
    """

    user: str
    shares: int
    use: int
    held: int
    rank: int


@dataclass(frozen=True, slots=True)
class PathShare:
    """Everything that a queue's share follows from.

    Attributes:
        path: Of the queue.
        steps: By pool, the queues above it and itself, the top one first.
        users: Of a leaf: who is remembered or waits, the first in rank first.
    """

    path: str
    steps: tuple[QueueShare, ...]
    users: tuple[UserShare, ...]
