"""Fair shares of queues, for users. Amounts are thousandths of cost; past use is such an amount times seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Fair share of a queue in one pool, with the steps of its computation.

    Attributes:
        path: Path of the queue.
        pool: Pool whose GPUs are divided.
        guarantee: Guarantee of the queue.
        limit: Upper limit of what it may hold; None if it has none.
        held: Amount held by jobs of the queue and of all queues below it.
        pending: Demand of waiting jobs that could run in the pool.
        use: Decayed past use.
        given: Amount that the parent queue divides among its children.
        floor: Part of the guarantee that the queue gets: its demand at most, less where guarantees exceed `given`.
        kept: Amount kept idle for the queue by its lend limit.
        rest: Amount left over when the queue's band was served.
        weight: Weight in the division of `rest`, lowered by past use.
        weights: Sum of the weights of all queues of its band.
        borrowed: Part of `rest` that the queue gets.
        due: Fair share in total.
        lent: Part of the guarantee that sibling queues hold.
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
        """Amount held beyond the guarantee."""
        return max(0, self.held - self.guarantee)

    @property
    def idle(self) -> int:
        """Part of the guarantee that the queue does not hold."""
        return max(0, self.guarantee - self.held)


@dataclass(frozen=True, slots=True)
class UserShare:
    """Use and rank of one user of a leaf queue.

    Attributes:
        user: Name of the user; "" for jobs without a user.
        shares: Number of shares of the user.
        use: Decayed past use of the user.
        held: Amount charged to the user now.
        rank: Position in the order of users, from 0; equal users have equal ranks.
    """

    user: str
    shares: int
    use: int
    held: int
    rank: int


@dataclass(frozen=True, slots=True)
class PathShare:
    """Fair share of a queue, with that of the queues above it and of its users.

    Attributes:
        path: Path of the queue.
        steps: Shares by pool, of the ancestors and the queue itself, the root's child first.
        users: Users of a leaf that have past use or waiting jobs, in the order of rank.
    """

    path: str
    steps: tuple[QueueShare, ...]
    users: tuple[UserShare, ...]
