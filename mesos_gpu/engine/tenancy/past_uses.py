"""Past use of queues and of their users, changed when a grant begins, changes or ends, without a clock.

Each leaf has a sum for all its users, under "*", and an entry for each user that has past use left. A user without an
entry begins with the value of the user of the leaf who has had least for the user's shares, so that a new name gains
nothing.
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

NOTHING: Final = 1000  # one GPU second of cost 1; a smaller value counts as nothing
MAX_USERS: Final = 256  # users of a leaf without GPUs whose past use is remembered
SWEEP_S: Final = 3600.0
MAX_VALUE: Final = 1 << 62  # readers of JSON take it for an integer


@dataclass(frozen=True, slots=True)
class Change:
    """Change of what a user of a queue holds.

    Attributes:
        by: Change of the rate in thousandths of cost; negative if the user holds less.
        at: Time of the change in seconds since the epoch.
    """

    queue: str
    user: str
    by: int
    at: float


def micro(at: float) -> int:
    """Return seconds since the epoch as whole microseconds."""
    return round(at * MICRO)


def value_of(use: PastUse, now: int, half_life_s: int) -> int:
    """Return the past use that is left at a time in microseconds since the epoch."""
    return Usage(use.value, use.since, use.rate).at(now, half_life_s)


def on_changes(turn: Turn, tree: Tree, changes: Iterable[Change]) -> None:
    """Charge changes to past use, those of one user and time together."""
    sums: dict[tuple[str, str, float], int] = {}
    for change in changes:
        for user in (change.user, EVERYBODY):
            key = change.queue, user, change.at
            sums[key] = sums.get(key, 0) + change.by
    # Increases first, so that no user gives back more than the user's entry holds.
    for (queue, user, at), by in sorted(sums.items(), key=lambda item: item[1] < 0):
        if by:
            turn.put(_changed(turn, tree, queue, user, by, at))


def _changed(turn: Turn, tree: Tree, queue: str, user: str, by: int, at: float) -> PastUse:
    """Return the past use of a user of a queue after a change of what the user holds."""
    half_life_s, now = tree.document.half_life_s, micro(turn.now)
    past_use = turn.state.books.users.get(queue, {}).get(user)
    if past_use is None:
        value = 0 if user == EVERYBODY else start_value(turn.state, tree, queue, user, now)
        past_use = PastUse(queue, user, value, now)
    use = Usage(past_use.value, past_use.since, past_use.rate)
    changed = use.changed(now, by, half_life_s) if by > 0 else use.returned(now, micro(at), -by, half_life_s)
    return PastUse(queue, user, min(changed.value, MAX_VALUE), changed.since, changed.rate)


def start_value(state: State, tree: Tree, queue: str, user: str, now: int) -> int:
    """Return the past use that a user without an entry begins with, at a time in microseconds since the epoch."""
    past_uses = (use for use in state.books.users.get(queue, {}).values() if use.user != EVERYBODY)
    own = shares_of(tree, queue, user)
    return start_of(
        own,
        [
            (shares_of(tree, queue, use.user), value_of(use, now, tree.document.half_life_s))
            for use in past_uses
        ],
    )


def shares_of(tree: Tree, queue: str, user: str) -> int:
    """Return the number of shares that a user has in a leaf."""
    shares = tree.queues[queue].spec.user_shares
    return shares.get(user, shares.get(EVERYBODY, 1))


def on_document(turn: Turn, before: QueueDocument) -> None:
    """Bring past use up to now by the half-life of the document before; the new one counts from now on."""
    half_life_s, now = before.half_life_s, micro(turn.now)
    if before.half_life_s == turn.state.quota.queues.half_life_s:
        return
    for use in list(turn.state.quota.past_uses.values()):
        value = value_of(use, now, half_life_s)
        turn.put(PastUse(use.queue, use.user, value, max(now, use.since), use.rate))


def drop_gone(turn: Turn, tree: Tree) -> None:
    """Drop the past use of queues that take no jobs any more."""
    for use in list(turn.state.quota.past_uses.values()):
        queue = tree.queues.get(use.queue)
        if queue is None or not queue.is_leaf:
            turn.drop(PastUse, use.queue, use.user)


def on_tick(turn: Turn) -> None:
    """Drop, once an hour, entries of users without GPUs whose past use has decayed."""
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
    """Return the entries to drop: those that have decayed, and the smallest beyond `MAX_USERS`."""
    decayed = [use for value, use in idle if value < NOTHING]
    left = sorted((value, use.user, use) for value, use in idle if value >= NOTHING and use.user != EVERYBODY)
    return decayed + [use for _, _, use in left[: max(0, len(left) - MAX_USERS)]]
