"""What queues are due now, of each pool, and the places of users within a leaf.

All of it follows from the document, from what is held and asked for, from what the pools have, and from past use as it
is at the last full minute. It is worked out when one of them has changed, and remembered until then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.capacity import PoolCapacity, capacities
from mesos_gpu.engine.tenancy.past_uses import shares_of, start_value, value_of
from mesos_gpu.model.tenancy import EVERYBODY, ROOT, Fairness, Guarantee, Stop
from mesos_gpu.model.usage import PastUse
from mesos_gpu.policy.admission.limits import class_of
from mesos_gpu.policy.tenancy.drf import NOTHING, Amounts, dominant_shares, kind_of, plus
from mesos_gpu.policy.tenancy.fair_tree import Account, ranks
from mesos_gpu.policy.tenancy.share import Branch, Layout, Share
from mesos_gpu.policy.tenancy.tree import Tree, lineage
from mesos_gpu.policy.tenancy.usage import MICRO

_MINUTE: Final = 60 * MICRO
_NOTE: Final = "shares"
_RANKS: Final = "ranks"


@dataclass(slots=True)
class _Known:
    """What was worked out last, and of what."""

    tree: Tree
    layouts: dict[str, Layout] = field(default_factory=dict)  # by pool
    branches: dict[str, Branch] = field(default_factory=dict)  # the same where dominant shares count
    key: Any = None
    dues: dict[str, list[int]] = field(default_factory=dict)  # by pool
    minute: int = -1
    uses: dict[str, tuple[PastUse, int]] = field(default_factory=dict)  # by leaf, at that minute

    def __copy__(self) -> "_Known":
        return replace(self, layouts=dict(self.layouts), branches=dict(self.branches), uses=dict(self.uses))


class Shares:
    """What queues are due, as long as a step lasts."""

    def __init__(self, state: State, charges: Charges, now: float) -> None:
        """Work nothing out yet.

        Args:
            state: The engine's.
            charges: What tasks hold, by a tree of queues.
            now: Seconds since the epoch.
        """
        tree = charges.tree
        self._state, self._tree, self._sums = state, tree, charges.sums
        self.minute = int(now * MICRO) // _MINUTE * _MINUTE
        self._capacities: Mapping[str, PoolCapacity] | None = None
        self._dues: dict[str, list[int]] | None = None

    @cached_property
    def _known(self) -> _Known:
        notes = self._state.books.notes
        known: _Known | None = notes.get(_NOTE)
        if known is None or known.tree is not self._tree:
            known = notes[_NOTE] = _Known(self._tree)
        return known

    def due(self, path: str, pool: str) -> int:
        """What a queue is due of a pool; of what is in no tree, or has no GPUs, nothing."""
        dues = self._worked_out().get(pool)
        place = self.layout(pool).places.get(path) if dues is not None else None
        return dues[place] if dues is not None and place is not None else 0

    def amount(self, pool: str) -> int:
        """What a pool has, thousandths of cost; of one without GPUs nothing."""
        capacity = self.pools.get(pool)
        return capacity.milli if capacity is not None else 0

    @property
    def pools(self) -> Mapping[str, PoolCapacity]:
        """What each pool has that has GPUs."""
        if self._capacities is None:
            self._capacities = capacities(self._state, self._tree)
        return self._capacities

    def layout(self, pool: str) -> Layout:
        """The tree with a pool's figures."""
        layout = self._known.layouts.get(pool)
        if layout is None:
            layout = self._known.layouts[pool] = Layout(branch_of(self._tree, pool))
        return layout

    def pending(self, pool: str) -> dict[str, int]:
        """What jobs of each leaf wait for that could run in a pool, as it would cost at most."""
        sums: dict[str, int] = {}
        for leaf, (gpus, _, _) in self._wanted(pool):
            sums[leaf] = sums.get(leaf, 0) + gpus
        return sums

    def _wanted(self, pool: str) -> Iterator[tuple[str, Amounts]]:
        """What jobs wait for that could run in a pool, GPUs by cost, with their leaf."""
        capacity, tree = self.pools[pool], self._tree
        for (queue, models, job_class), (gpu_milli, cpus_milli, mem_mib) in self._state.books.wanted.items():
            leaf, known = tree.leaf_of(queue), class_of(tree, job_class)
            elsewhere = pool not in tree.pools_of(leaf) or (known and known.pools and pool not in known.pools)
            if leaf and tree.queues[leaf].stop is Stop.NONE and not elsewhere:
                cost = capacity.cost_of(self._state.cluster.models_of(models), gpu_milli)
                if cost or not gpu_milli:
                    yield leaf, (cost, cpus_milli, mem_mib)

    def held(self, pool: str) -> dict[str, int]:
        """What each leaf holds of a pool."""
        return {leaf: cost for leaf, (cost, _, _) in self._held(pool)}

    def _held(self, pool: str) -> Iterator[tuple[str, Amounts]]:
        queues = self._tree.queues
        for (queue, of_pool), amounts in self._sums.leaves.items():
            if of_pool == pool and queue in queues:
                yield queue, amounts

    def demands(self, pool: str) -> dict[str, int]:
        """What each leaf holds and waits for."""
        sums = self.pending(pool)
        for queue, milli in self.held(pool).items():
            sums[queue] = sums.get(queue, 0) + milli
        return sums

    def explained(self, pool: str, uses: Mapping[str, int]) -> Mapping[str, Share]:
        """The numbers that dues follow from, by path. `uses`: past use, where it counts."""
        percent, capacity = self._tree.document.history_percent, self.pools[pool]
        if self._tree.document.fairness is not Fairness.DRF:
            return self.layout(pool).explained(capacity.milli, self.demands(pool), uses, percent)
        branch = self._known.branches.get(pool)
        if branch is None:
            branch = self._known.branches[pool] = branch_of(self._tree, pool)
        has = capacity.milli, capacity.cpus_milli, capacity.mem_mib
        return dominant_shares(branch, has, self._amounts(pool), uses, percent)

    def _amounts(self, pool: str) -> dict[str, dict[int, Amounts]]:
        """What each leaf holds and waits for of all that counts beside GPUs, by what is needed together."""
        sums: dict[str, dict[int, Amounts]] = {}
        for queue, amounts in chain(self._wanted(pool), self._held(pool)):
            leaf = sums.setdefault(queue, {})
            leaf[kind_of(amounts)] = plus(leaf.get(kind_of(amounts), NOTHING), amounts)
        return sums

    def uses(self) -> dict[str, int]:
        """What each queue has used of late, with all that is below it."""
        known, users, minute = self._known, self._state.books.users, self.minute
        if known.minute != minute:
            known.minute, known.uses = minute, {}
        half_life_s = self._tree.document.half_life_s
        sums: dict[str, int] = {}
        for leaf, of_users in users.items():
            use = of_users.get(EVERYBODY)
            if use is None:
                continue
            seen = known.uses.get(leaf)
            if seen is None or seen[0] is not use:
                seen = known.uses[leaf] = use, value_of(use, minute, half_life_s)
            for path in lineage(leaf):
                sums[path] = sums.get(path, 0) + seen[1]
        return sums

    def ranks(self, leaf: str) -> Mapping[str, int]:
        """Places of a leaf's users by what they have used for their shares, the first is 0; a user of whom nothing is
        known is not in it, and stands where the first does."""
        state, tree = self._state, self._tree
        if tree.is_flat:
            return {}
        users = state.books.users.get(leaf, {})
        if len(users) < 3 or leaf not in tree.queues:  # all together, and one
            return {}
        notes: dict[str, tuple[object, dict[str, int]]] = state.books.notes.setdefault(_RANKS, {})
        key = tree, self.minute, state.books.changes[leaf]
        known = notes.get(leaf)
        if known is None or known[0] != key:
            half_life_s = tree.document.half_life_s
            accounts = [
                Account(use.user, shares_of(tree, leaf, use.user), value_of(use, self.minute, half_life_s))
                for use in users.values()
                if use.user != EVERYBODY
            ]
            known = notes[leaf] = key, ranks(Account(leaf, children=tuple(accounts)))
        return known[1]

    def rank(self, leaf: str, user: str) -> int:
        """The place of a user of a leaf, also of one of whom nothing is known."""
        return self.ranks(leaf).get(user, 0)

    def start_value(self, leaf: str, user: str) -> int:
        """What a user of whom nothing is known would begin with."""
        return start_value(self._state, self._tree, leaf, user, self.minute)

    def _worked_out(self) -> dict[str, list[int]]:
        if self._dues is not None:
            return self._dues
        known, books, percent = self._known, self._state.books, self._tree.document.history_percent
        amounts = {pool: (has.milli, has.cpus_milli, has.mem_mib) for pool, has in self.pools.items()}
        uses = self.uses() if percent else {}
        key = books.revision, self._sums.revision, amounts, uses
        if known.key != key:
            known.key = key
            known.dues = {pool: self._dues_of(pool, amount, uses) for pool, amount in amounts.items()}
        self._dues = known.dues
        return known.dues

    def _dues_of(self, pool: str, amount: Amounts, uses: Mapping[str, int]) -> list[int]:
        document, layout = self._tree.document, self.layout(pool)
        if document.fairness is not Fairness.DRF:
            return layout.dues(amount[0], self.demands(pool), uses, document.history_percent)
        explained = self.explained(pool, uses)
        return [explained[path].due if path in explained else amount[0] for path in layout.paths]


def standing_of(state: State, settings: Settings, now: float) -> Shares:
    """Return what queues are due."""
    return Shares(state, charges_of(state, settings), now)


def branch_of(tree: Tree, pool: str, path: str = ROOT) -> Branch:
    """The tree, or what is below a queue, with its figures in a pool."""
    children: Sequence[str] = tree.queues[path].children if path else tree.top
    below = tuple(branch_of(tree, pool, child) for child in children)
    if not path:
        return Branch(ROOT, children=below)
    spec = tree.queues[path].spec
    owed = sum(branch.guarantee for branch in below)
    return Branch(
        path,
        max(spec.guarantee_gpus.get(pool, _NONE).milli, owed),
        limit_of(tree, path, pool),
        spec.borrow_limit_gpus.get(pool),
        spec.lend_limit_gpus.get(pool),
        spec.weight,
        spec.band,
        children=below,
    )


def limit_of(tree: Tree, path: str, pool: str) -> int | None:
    """The most that a queue may hold of a pool by its own limits, thousandths of cost; None: any."""
    spec = tree.queues[path].spec
    limit, most = spec.limit_gpus.get(pool), spec.limits.max_gpus
    limits = [] if limit is None else [limit]
    return min([*limits, *([] if most is None else [round(most * 1000)])], default=None)


_NONE: Final = Guarantee()
