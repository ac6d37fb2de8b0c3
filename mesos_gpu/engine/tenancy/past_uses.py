"""What queues and their users have used of late: changed when a grant begins, changes or ends, by no clock.

Of each leaf there is what all its users have used together, under "*", and what each of them has, who is remembered as
long as something of it is left. A user of whom nothing is known begins where the one stands who has had the least for
his shares: a new name is as good as the best of the names that are there, and no better.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.tenancy import EVERYBODY, QueueDocument
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.tenancy.fair_tree import start_of
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.tenancy.usage import MICRO, Usage

NOTHING: Final = 1000  # a GPU second of cost 1: less is nothing
MAX_USERS: Final = 256  # of a leaf, that are remembered while they hold nothing
SWEEP_S: Final = 3600.0
MAX_VALUE: Final = 1 << 62  # what JSON's readers take for a whole number


@dataclass(frozen=True, slots=True)
class Change:
    """A user of a queue holds so much more, or less, since a time in seconds since the epoch."""

    queue: str
    user: str
    by: int
    at: float


def micro(at: float) -> int:
    """Seconds since the epoch as whole microseconds."""
    return round(at * MICRO)


def value_of(use: PastUse, now: int, half_life_s: int) -> int:
    """What is not forgotten at a time, in microseconds since the epoch."""
    return Usage(use.value, use.since, use.rate).at(now, half_life_s)


def on_changes(turn: Turn, tree: Tree, changes: Iterable[Change]) -> None:
    """Charge them, what a step changes of one user together."""
    sums: dict[tuple[str, str, float], int] = {}
    for change in changes:
        for user in (change.user, EVERYBODY):
            key = change.queue, user, change.at
            sums[key] = sums.get(key, 0) + change.by
    # What begins is entered first: nobody is seen to give back more than he has.
    for (queue, user, at), by in sorted(sums.items(), key=lambda item: item[1] < 0):
        if by:
            turn.put(_changed(turn, tree, queue, user, by, at))


def _changed(turn: Turn, tree: Tree, queue: str, user: str, by: int, at: float) -> PastUse:
    half_life_s, now = tree.document.half_life_s, micro(turn.now)
    known = turn.state.books.users.get(queue, {}).get(user)
    if known is None:
        value = 0 if user == EVERYBODY else start_value(turn.state, tree, queue, user, now)
        known = PastUse(queue, user, value, now)
    use = Usage(known.value, known.since, known.rate)
    changed = use.changed(now, by, half_life_s) if by > 0 else use.returned(now, micro(at), -by, half_life_s)
    return PastUse(queue, user, min(changed.value, MAX_VALUE), changed.since, changed.rate)


def start_value(state: State, tree: Tree, queue: str, user: str, now: int) -> int:
    """What a user begins with of whom nothing is known, at a time in microseconds since the epoch."""
    known = (use for use in state.books.users.get(queue, {}).values() if use.user != EVERYBODY)
    mine = shares_of(tree, queue, user)
    return start_of(
        mine,
        [(shares_of(tree, queue, use.user), value_of(use, now, tree.document.half_life_s)) for use in known],
    )


def shares_of(tree: Tree, queue: str, user: str) -> int:
    """How many shares a user has in a leaf."""
    shares = tree.queues[queue].spec.user_shares
    return shares.get(user, shares.get(EVERYBODY, 1))


def on_document(turn: Turn, before: QueueDocument) -> None:
    """The tree has become another: what was used is forgotten by the new half-life from now on."""
    half_life_s, now = before.half_life_s, micro(turn.now)
    if before.half_life_s == turn.state.quota.queues.half_life_s:
        return
    for use in list(turn.state.quota.past_uses.values()):
        value = value_of(use, now, half_life_s)
        turn.put(PastUse(use.queue, use.user, value, max(now, use.since), use.rate))


def drop_gone(turn: Turn, tree: Tree) -> None:
    """Forget queues that take no jobs any more."""
    for use in list(turn.state.quota.past_uses.values()):
        queue = tree.queues.get(use.queue)
        if queue is None or not queue.is_leaf:
            turn.drop(PastUse, use.queue, use.user)


def on_tick(turn: Turn) -> None:
    """Forget, from time to time, of whom nothing is left."""
    state, tree = turn.state, turn.state.quota.tree
    if turn.now - state.quota.past_uses_swept_at < SWEEP_S:
        return
    state.quota.past_uses_swept_at = turn.now
    now = micro(turn.now)
    for users in list(state.books.users.values()):
        idle = [
            (value_of(use, now, tree.document.half_life_s), use) for use in users.values() if not use.rate
        ]
        for use in _forgettable(idle):
            turn.drop(PastUse, use.queue, use.user)


def _forgettable(idle: Sequence[tuple[int, PastUse]]) -> list[PastUse]:
    """Choose, of idle users, those with nothing left, and the least where they are too many."""
    gone = [use for value, use in idle if value < NOTHING]
    left = sorted((value, use.user, use) for value, use in idle if value >= NOTHING and use.user != EVERYBODY)
    return gone + [use for _, _, use in left[: max(0, len(left) - MAX_USERS)]]
