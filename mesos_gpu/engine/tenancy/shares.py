"""Fair share of each queue in each pool, and the order of users within a leaf.

The results follow from the document, holdings and demand, the capacity of pools, and past use as of the last full
minute. They are kept until one of these changes.
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
    """Last results, and the values that they were computed from."""

    tree: Tree
    layouts: dict[str, Layout] = field(default_factory=dict)  # by pool
    branches: dict[str, Branch] = field(default_factory=dict)  # by pool, where dominant shares count
    key: Any = None
    dues: dict[str, list[int]] = field(default_factory=dict)  # by pool
    minute: int = -1
    uses: dict[str, tuple[PastUse, int]] = field(default_factory=dict)  # by leaf, at that minute

    def __copy__(self) -> "_Known":
        return replace(self, layouts=dict(self.layouts), branches=dict(self.branches), uses=dict(self.uses))


class Shares:
    """Fair shares of queues during one step.

    Args:
        state: State of the engine.
        charges: Charges of tasks by a tree of queues.
        now: Time of the step, in seconds since the epoch.
    """

    def __init__(self, state: State, charges: Charges, now: float) -> None:
        tree = charges.tree
        self._state, self._tree, self._sums = state, tree, charges.sums
        self.minute = int(now * MICRO) // _MINUTE * _MINUTE
        self._capacities: Mapping[str, PoolCapacity] | None = None
        self._dues: dict[str, list[int]] | None = None

    @cached_property
    def _known(self) -> _Known:
        """Results of earlier steps for this tree."""
        notes = self._state.books.notes
        cache: _Known | None = notes.get(_NOTE)
        if cache is None or cache.tree is not self._tree:
            cache = notes[_NOTE] = _Known(self._tree)
        return cache

    def due(self, path: str, pool: str) -> int:
        """Return the fair share of a queue in a pool, in thousandths of cost; 0 if the tree or the pool lacks it."""
        dues = self._worked_out().get(pool)
        place = self.layout(pool).places.get(path) if dues is not None else None
        return dues[place] if dues is not None and place is not None else 0

    def amount(self, pool: str) -> int:
        """Return the capacity of a pool in thousandths of cost; 0 without GPUs."""
        capacity = self.pools.get(pool)
        return capacity.milli if capacity is not None else 0

    @property
    def pools(self) -> Mapping[str, PoolCapacity]:
        """Capacity of each pool that has GPUs."""
        if self._capacities is None:
            self._capacities = capacities(self._state, self._tree)
        return self._capacities

    def layout(self, pool: str) -> Layout:
        """Return the tree with the guarantees and limits of a pool."""
        layout = self._known.layouts.get(pool)
        if layout is None:
            layout = self._known.layouts[pool] = Layout(branch_of(self._tree, pool))
        return layout

    def pending(self, pool: str) -> dict[str, int]:
        """Return the demand of each leaf: the highest cost of pending jobs that could run in a pool."""
        sums: dict[str, int] = {}
        for leaf, (gpus, _, _) in self._wanted(pool):
            sums[leaf] = sums.get(leaf, 0) + gpus
        return sums

    def _wanted(self, pool: str) -> Iterator[tuple[str, Amounts]]:
        """Yield leaves with amounts that pending jobs of a kind ask for and that a pool could serve, GPUs by cost."""
        capacity, tree = self.pools[pool], self._tree
        for (queue, models, job_class), (gpu_milli, cpus_milli, mem_mib) in self._state.books.wanted.items():
            leaf, class_spec = tree.leaf_of(queue), class_of(tree, job_class)
            elsewhere = pool not in tree.pools_of(leaf) or (
                class_spec and class_spec.pools and pool not in class_spec.pools
            )
            if leaf and tree.queues[leaf].stop is Stop.NONE and not elsewhere:
                cost = capacity.cost_of(self._state.cluster.models_of(models), gpu_milli)
                if cost or not gpu_milli:
                    yield leaf, (cost, cpus_milli, mem_mib)

    def held(self, pool: str) -> dict[str, int]:
        """Return the holdings of each leaf in a pool."""
        return {leaf: cost for leaf, (cost, _, _) in self._held(pool)}

    def _held(self, pool: str) -> Iterator[tuple[str, Amounts]]:
        """Yield leaves with their holdings in a pool."""
        queues = self._tree.queues
        for (queue, of_pool), amounts in self._sums.leaves.items():
            if of_pool == pool and queue in queues:
                yield queue, amounts

    def demands(self, pool: str) -> dict[str, int]:
        """Return holdings plus pending demand of each leaf in a pool."""
        sums = self.pending(pool)
        for queue, milli in self.held(pool).items():
            sums[queue] = sums.get(queue, 0) + milli
        return sums

    def explained(self, pool: str, uses: Mapping[str, int]) -> Mapping[str, Share]:
        """Return the numbers from which fair shares of a pool follow, by path.

        Args:
            pool: Pool with GPUs.
            uses: Past use by path; empty where it does not count.
        """
        percent, capacity = self._tree.document.history_percent, self.pools[pool]
        if self._tree.document.fairness is not Fairness.DRF:
            return self.layout(pool).explained(capacity.milli, self.demands(pool), uses, percent)
        branch = self._known.branches.get(pool)
        if branch is None:
            branch = self._known.branches[pool] = branch_of(self._tree, pool)
        has = capacity.milli, capacity.cpus_milli, capacity.mem_mib
        return dominant_shares(branch, has, self._amounts(pool), uses, percent)

    def _amounts(self, pool: str) -> dict[str, dict[int, Amounts]]:
        """Return holdings plus pending demand of each leaf in a pool, by kinds of resources asked for together."""
        sums: dict[str, dict[int, Amounts]] = {}
        for queue, amounts in chain(self._wanted(pool), self._held(pool)):
            leaf = sums.setdefault(queue, {})
            leaf[kind_of(amounts)] = plus(leaf.get(kind_of(amounts), NOTHING), amounts)
        return sums

    def uses(self) -> dict[str, int]:
        """Return the past use of each queue with those below it, as of the last full minute."""
        cache, users, minute = self._known, self._state.books.users, self.minute
        if cache.minute != minute:
            cache.minute, cache.uses = minute, {}
        half_life_s = self._tree.document.half_life_s
        sums: dict[str, int] = {}
        for leaf, of_users in users.items():
            use = of_users.get(EVERYBODY)
            if use is None:
                continue
            cached = cache.uses.get(leaf)
            if cached is None or cached[0] is not use:
                cached = cache.uses[leaf] = use, value_of(use, minute, half_life_s)
            for path in lineage(leaf):
                sums[path] = sums.get(path, 0) + cached[1]
        return sums

    def ranks(self, leaf: str) -> Mapping[str, int]:
        """Return the places of a leaf's users by past use per share; the first place is 0.

        A user without past use is missing, and has place 0.
        """
        state, tree = self._state, self._tree
        if tree.is_flat:
            return {}
        users = state.books.users.get(leaf, {})
        if len(users) < 3 or leaf not in tree.queues:  # the entry of all users and one user
            return {}
        notes: dict[str, tuple[object, dict[str, int]]] = state.books.notes.setdefault(_RANKS, {})
        key = tree, self.minute, state.books.changes[leaf]
        cached = notes.get(leaf)
        if cached is None or cached[0] != key:
            half_life_s = tree.document.half_life_s
            accounts = [
                Account(use.user, shares_of(tree, leaf, use.user), value_of(use, self.minute, half_life_s))
                for use in users.values()
                if use.user != EVERYBODY
            ]
            cached = notes[leaf] = key, ranks(Account(leaf, children=tuple(accounts)))
        return cached[1]

    def rank(self, leaf: str, user: str) -> int:
        """Return the place of a user in a leaf; 0 for a user without past use."""
        return self.ranks(leaf).get(user, 0)

    def start_value(self, leaf: str, user: str) -> int:
        """Return the past use that a user without an entry would begin with."""
        return start_value(self._state, self._tree, leaf, user, self.minute)

    def _worked_out(self) -> dict[str, list[int]]:
        """Return the fair shares of each pool by places of the layout; they are computed only after a change."""
        if self._dues is not None:
            return self._dues
        cache, books, percent = self._known, self._state.books, self._tree.document.history_percent
        amounts = {pool: (has.milli, has.cpus_milli, has.mem_mib) for pool, has in self.pools.items()}
        uses = self.uses() if percent else {}
        key = books.revision, self._sums.revision, amounts, uses
        if cache.key != key:
            cache.key = key
            cache.dues = {pool: self._dues_of(pool, amount, uses) for pool, amount in amounts.items()}
        self._dues = cache.dues
        return cache.dues

    def _dues_of(self, pool: str, amount: Amounts, uses: Mapping[str, int]) -> list[int]:
        """Return the fair shares of all queues in a pool, by places of the layout."""
        document, layout = self._tree.document, self.layout(pool)
        if document.fairness is not Fairness.DRF:
            return layout.dues(amount[0], self.demands(pool), uses, document.history_percent)
        explained = self.explained(pool, uses)
        return [explained[path].due if path in explained else amount[0] for path in layout.paths]


def standing_of(state: State, settings: Settings, now: float) -> Shares:
    """Return the fair shares of queues at a time."""
    return Shares(state, charges_of(state, settings), now)


def branch_of(tree: Tree, pool: str, path: str = ROOT) -> Branch:
    """Return the tree, or the part below a queue, with its guarantees and limits in a pool.

    Args:
        pool: Name of the pool.
        path: Queue at the top; the root for the whole tree.
    """
    children: Sequence[str] = tree.queues[path].children if path else tree.top
    below = tuple(branch_of(tree, pool, child) for child in children)
    if not path:
        return Branch(ROOT, children=below)
    spec = tree.queues[path].spec
    below_guarantee = sum(branch.guarantee for branch in below)
    return Branch(
        path,
        max(spec.guarantee_gpus.get(pool, _NONE).milli, below_guarantee),
        limit_of(tree, path, pool),
        spec.borrow_limit_gpus.get(pool),
        spec.lend_limit_gpus.get(pool),
        spec.weight,
        spec.band,
        children=below,
    )


def limit_of(tree: Tree, path: str, pool: str) -> int | None:
    """Return the most that a queue may hold of a pool by its own limits, thousandths of cost; None without limit."""
    spec = tree.queues[path].spec
    limit, most = spec.limit_gpus.get(pool), spec.limits.max_gpus
    limits = [] if limit is None else [limit]
    return min([*limits, *([] if most is None else [round(most * 1000)])], default=None)


_NONE: Final = Guarantee()
