"""Fair shares of queues for readers, with all numbers from which they follow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.past_uses import micro, shares_of, value_of
from mesos_gpu.engine.tenancy.shares import Shares, limit_of
from mesos_gpu.errors import NotFound
from mesos_gpu.model.queue_share import PathShare, QueueShare, UserShare
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.policy.tenancy.filling import shrink
from mesos_gpu.policy.tenancy.share import Share
from mesos_gpu.policy.tenancy.tree import Tree, lineage, parent_of, with_above

LIST: Final = "list them with: mesos-gpu queue list"


def queue_shares(state: State, settings: Settings, now: float) -> tuple[QueueShare, ...]:
    """Return every queue of the document in every pool that has GPUs, by path and pool."""
    return () if state.quota.tree.is_flat else _all(state, charges_of(state, settings), now)


def path_share(state: State, settings: Settings, path: str, now: float) -> PathShare:
    """Return the shares of a queue and of those above it, and its users.

    Raises:
        NotFound: The queue does not exist.
    """
    charges = charges_of(state, settings)
    queue = None if state.quota.tree.is_flat else charges.tree.queues.get(path)
    if queue is None:
        raise NotFound(f"there is no queue {path}", remedy=LIST)
    above = lineage(path)[::-1]
    steps = {(share.pool, share.path): share for share in _all(state, charges, now)}
    pools = dict.fromkeys(pool for pool, _ in steps)
    users = _users(state, charges, path, now) if queue.is_leaf else ()
    return PathShare(path, tuple(steps[pool, queue_path] for pool in pools for queue_path in above), users)


def _all(state: State, charges: Charges, now: float) -> tuple[QueueShare, ...]:
    """Return the shares of all queues in all pools, by path and pool."""
    tree, shares = charges.tree, Shares(state, charges, now)
    percent = tree.document.history_percent
    uses = shares.uses()
    counted_uses = uses if percent else {}
    listed: list[QueueShare] = []
    for pool in shares.pools:
        layout, steps = shares.layout(pool), shares.explained(pool, counted_uses)
        held, pending = with_above(shares.held(pool)), with_above(shares.pending(pool))
        weights = _weights(tree, steps)
        for path, step in steps.items():
            place = layout.places[path]
            listed.append(
                QueueShare(
                    path,
                    pool,
                    layout.guarantees[place],
                    limit_of(tree, path, pool),
                    held.get(path, 0),
                    pending.get(path, 0),
                    uses.get(path, 0),
                    step.given,
                    step.floor,
                    step.kept,
                    step.rest,
                    step.weight,
                    weights[_band(tree, path)],
                    step.borrowed,
                    step.due,
                )
            )
    lent = _lent(listed)
    shown = [replace(share, lent=lent.get((share.pool, share.path), 0)) for share in listed]
    return tuple(sorted(shown, key=lambda share: (share.path.split("/"), share.pool)))


def _lent(shares: Sequence[QueueShare]) -> dict[tuple[str, str], int]:
    """Return the part of each queue's guarantee that its siblings use, by pool and path.

    That is what they hold beyond their own guarantees, less what is guaranteed to no sibling.
    """
    families: dict[tuple[str, str], list[QueueShare]] = {}
    by_path = {(share.pool, share.path): share for share in shares}
    for share in shares:
        families.setdefault((share.pool, parent_of(share.path)), []).append(share)
    lent: dict[tuple[str, str], int] = {}
    for (pool, path), children in families.items():
        parent = by_path.get((pool, path))
        total = children[0].given if parent is None else max(parent.guarantee, parent.held)
        free = max(0, total - sum(child.guarantee for child in children))
        taken = max(0, sum(child.over for child in children) - free)
        parts = shrink(taken, [child.idle for child in children])
        lent |= {(pool, child.path): part for child, part in zip(children, parts, strict=True)}
    return lent


def _band(tree: Tree, path: str) -> tuple[str, int]:
    """Return the key of the queues that divide GPUs with a queue."""
    return parent_of(path), tree.queues[path].spec.band


def _weights(tree: Tree, steps: Mapping[str, Share]) -> Mapping[tuple[str, int], int]:
    """Return the sum of weights of each group of queues that divide GPUs."""
    sums: dict[tuple[str, int], int] = {}
    for path, step in steps.items():
        band = _band(tree, path)
        sums[band] = sums.get(band, 0) + step.weight
    return sums


def _users(state: State, charges: Charges, leaf: str, now: float) -> tuple[UserShare, ...]:
    """Return the users of a leaf with past use or pending jobs, by rank."""
    tree, shares = charges.tree, Shares(state, charges, now)
    half_life_s, at = tree.document.half_life_s, micro(now)
    past_uses = {user: use for user, use in state.books.users.get(leaf, {}).items() if user != EVERYBODY}
    waiting = (state.work.jobs[job_id] for _, job_id in state.work.queue)
    new = {job.charged_to for job in waiting if tree.leaf_of(job.spec.queue) == leaf} - set(past_uses)
    users = [
        UserShare(
            user,
            shares_of(tree, leaf, user),
            value_of(use, at, half_life_s),
            use.rate,
            shares.rank(leaf, user),
        )
        for user, use in past_uses.items()
    ]
    users += [
        UserShare(
            user, shares_of(tree, leaf, user), shares.start_value(leaf, user), 0, shares.rank(leaf, user)
        )
        for user in new
    ]
    return tuple(sorted(users, key=lambda each: (each.rank, each.user)))
